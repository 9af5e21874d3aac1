import BlobStorage
import SystemPackage

/// Saves the log entry that the only collecting machine is about to put, in its state folder.
///
/// After a crash the machine puts exactly these bytes again. Without conditional puts, a late put of other bytes would
/// change an entry that others have read.
struct PendingLogEntry: Sendable {
  private let folder: FilePath
  private let files: any FileSystem

  init(_ folder: StoreFolder) {
    self.folder = folder.path
    files = folder.files
  }

  private var path: FilePath { folder.appending("entry") }

  func keep(_ number: UInt32, _ bytes: [UInt8]) throws(BlobStorageError) {
    var writer = ByteWriter(capacity: bytes.count + 8)
    writer.integer(number)
    writer.raw(bytes)
    writer.checksum()
    try files.replace(path, with: writer.bytes).close()
  }

  /// Reads the saved entry; nil if there is none.
  func read() throws(BlobStorageError) -> (number: UInt32, bytes: [UInt8])? {
    guard let status = try files.status(of: path) else { return nil }
    let file = try files.open(path, .read)
    defer { file.close() }
    let bytes = try file.bytesThere(
      at: 0, Int(min(status.byteCount, Int64(Limits.collectionByteCountMax) + 8)))
    return try bridge(bytes) { (raw) throws(BlobStorageError) in
      guard raw.count >= 8, raw.endsWithChecksum else {
        throw BlobStorageError(.corrupted, "\(path) is damaged.", path: path.string)
      }
      return (raw.loadUnaligned(as: UInt32.self).littleEndian, Array(raw[4..<(raw.count - 4)]))
    }
  }
}

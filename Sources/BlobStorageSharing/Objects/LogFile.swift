import BlobStorage
import SystemPackage

/// Keeps an object of the log in the state folder.
///
/// `log` is a checkpoint of the newest known state, so that each process reads only later entries. Losing it costs
/// requests. `entry` is the next entry of the only collecting machine, saved before its put. After a crash the machine
/// puts exactly these bytes again. Without conditional put, a late put of other bytes would change an entry that others
/// have read.
struct LogFile: Sendable {
  private let path: FilePath
  private let kind: SharedObject.Kind
  private let files: any FileSystem
  private let storeID: [UInt8]

  init(_ kind: SharedObject.Kind, in folder: FilePath, _ files: any FileSystem, storeID: [UInt8]) {
    path = folder.entry(kind == .checkpoint ? "log" : "entry")
    self.kind = kind
    self.files = files
    self.storeID = storeID
  }

  func keep(_ bytes: [UInt8]) throws(BlobStorageError) { try files.replace(path, with: bytes).close() }

  /// Reads the kept object; nil if there is none.
  ///
  /// - Throws: `corrupted`
  func read() throws(BlobStorageError) -> (state: Collections, bytes: [UInt8])? {
    guard let file = try files.openIfThere(path, .read) else { return nil }
    defer { file.close() }
    let byteCount = min(try file.status().byteCount, Int64(BlobLimits.collectionByteCountMax))
    let bytes = try file.bytesThere(at: 0, Int(byteCount))
    return (try Collections(bytes, kind, number: nil, storeID: storeID, name: path.string), bytes)
  }
}

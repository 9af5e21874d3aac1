import BlobStorage
import CBlobKernels
import SystemPackage

/// A new file below a folder, written under a temporary name and then renamed atomically.
///
/// Dropping it without ``commit(overwriting:modified:)`` removes what was written.
package struct OutputFile: ~Copyable {
  /// A step of committing a file.
  package enum Step: Sendable { case synced, named }

  private let folder: OutputFolder
  private let relativePath: [UInt8]
  private let directory: OwnedDescriptor
  private let descriptor: OwnedDescriptor
  private let name: [CChar]
  private let temporaryName: [CChar]
  private var byteCount: Int64 = 0
  /// Whether the file ends in a hole, which its length does not include yet.
  private var endsInHole = false
  /// The block size of most file systems.
  private static let blockByteCount = 4_096
  private var isCommitted = false

  /// Creates the temporary file and the missing folders above it.
  ///
  /// - Parameters:
  ///   - relativePath: The path below the folder. A part that is empty, `.` or `..` is `invalidArgument`.
  ///   - trail: the folders that are open already.
  package init(
    in folder: OutputFolder, relativePath: [UInt8], through trail: inout FolderTrail
  ) throws(BlobStorageError) {
    guard FolderTrail.leadsDown(relativePath) else {
      throw OutputFolder.escapes(folder.path.appending(bytes: relativePath))
    }
    let directory = try folder.folder(of: relativePath, through: &trail)
    let temporaryName = folder.nextTemporaryName()
    let options = Int32(BS_OPEN_WRITE | BS_OPEN_CREATE | BS_OPEN_EXCLUSIVE)
    let descriptor = try folder.retrying(in: directory, relativePath) { () throws(BlobStorageError) in
      try OwnedDescriptor.open(
        directory.number, temporaryName, folder.path.appending(bytes: relativePath), options, "write")
    }
    // The lock keeps other exports from removing the file.
    _ = uninterrupted { bs_lock(descriptor.number, 1, 0) }
    self.folder = folder
    self.relativePath = relativePath
    self.directory = directory
    self.descriptor = descriptor
    self.name = FolderTrail.name(in: relativePath)
    self.temporaryName = temporaryName
  }

  deinit {
    if isCommitted { return }
    _ = bs_remove_at(directory.number, temporaryName)
  }

  /// The path after the commit.
  package var path: FilePath { folder.path.appending(bytes: relativePath) }

  /// Appends all bytes or throws. Whole blocks of zeros become holes.
  package mutating func write(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var start = 0
    while start < bytes.count {
      let isHole = Self.isZero(block(of: bytes, at: start))
      var end = start
      repeat {
        end += block(of: bytes, at: end).count
      } while end < bytes.count
        && Self.isZero(block(of: bytes, at: end)) == isHole
      if !isHole {
        try append(UnsafeRawBufferPointer(rebasing: bytes[start..<end]), at: byteCount + Int64(start))
      }
      endsInHole = isHole
      start = end
    }
    byteCount += Int64(bytes.count)
  }

  /// The bytes from `start` to the end of their block in the file.
  private func block(of bytes: UnsafeRawBufferPointer, at start: Int) -> UnsafeRawBufferPointer {
    let used = Int((byteCount + Int64(start)) % Int64(Self.blockByteCount))
    return UnsafeRawBufferPointer(
      rebasing: bytes[start..<min(bytes.count, start + Self.blockByteCount - used)])
  }

  /// Whether this is a whole block of zeros.
  private static func isZero(_ block: UnsafeRawBufferPointer) -> Bool {
    guard block.count == blockByteCount else { return false }
    for offset in stride(from: 0, to: blockByteCount, by: 8)
    where block.loadUnaligned(fromByteOffset: offset, as: UInt64.self) != 0 { return false }
    return true
  }

  private func append(_ bytes: UnsafeRawBufferPointer, at start: Int64) throws(BlobStorageError) {
    var done = 0
    while done < bytes.count {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
      let offset = start + Int64(done)
      let count = try systemCall("write to", path) {
        bs_write_at(descriptor.number, rest.baseAddress, rest.count, offset)
      }
      if count == 0 { throw .systemCall("write to", path: path, errno: Errno.ioError.rawValue) }
      done += count
    }
  }

  /// Renames the file to its final name.
  ///
  /// - Parameters:
  ///   - overwriting: Whether a file of that name is replaced; otherwise it is an error with `EEXIST`. The new bytes
  ///     are on the medium before the old ones go: a power cut leaves one or the other.
  ///   - modified: The modification time to set.
  package consuming func commit(
    overwriting: Bool, modified: FileTime? = nil
  ) throws(BlobStorageError) {
    _ = try commit(overwriting: overwriting, modified: modified, nil)
  }

  /// Sets these attributes, then renames the file to its final name.
  ///
  /// - Returns: false if some attributes could not be set.
  consuming func commit(
    overwriting: Bool, _ attributes: RestoredAttributes
  ) throws(BlobStorageError) -> Bool {
    try commit(overwriting: overwriting, modified: nil, attributes)
  }

  private consuming func commit(
    overwriting: Bool, modified: FileTime?, _ attributes: RestoredAttributes?
  ) throws(BlobStorageError) -> Bool {
    let number = descriptor.number
    let byteCount = byteCount
    if endsInHole { _ = try systemCall("set the length of", path) { bs_truncate(number, byteCount) } }
    let isComplete = try attributes?.apply(to: number, path) ?? true
    if let modified {
      _ = try systemCall("set the time of", path) {
        bs_set_modified(number, modified.seconds, modified.nanoseconds)
      }
    }
    // A file with several names is on the medium before links to it replace files under the others.
    if overwriting, isTaken || attributes?.attributes.device != nil {
      _ = try systemCall("sync", path) { bs_sync_data(number) }
      folder.tell(.synced)
    }
    try folder.rename(temporaryName, to: name, in: directory.number, overwriting: overwriting, path)
    folder.tell(.named)
    isCommitted = true
    return isComplete
  }

  /// Whether the final name is taken already.
  private var isTaken: Bool {
    var raw = bs_status()
    return uninterrupted { bs_status_at(directory.number, name, &raw) } == 0
  }
}

import CBlobKernels
import Synchronization
import SystemPackage

/// Reads a user's file, or a pipe, from front to back.
///
/// Reads a file as far as it reached when it was opened, and does not read its holes. A file of length 0 is read to its
/// end: those of `/proc` have bytes nevertheless.
package final class InputFile: Sendable {
  /// Where `read(into:)` goes on in a file, and the data or hole there.
  private struct Position {
    var offset: Int64 = 0
    var dataEnd: Int64 = 0
    var holeEnd: Int64 = 0
  }

  /// The folder that `relativePath` is relative to, or the file's own path.
  private let root: FilePath
  private let relativePath: [UInt8]
  /// The status at opening. For a pipe, only the kind is meaningful.
  package let status: FileStatus
  private let descriptor: Int32
  /// Closes the descriptor; nil if the caller closes it.
  private let owner: OwnedDescriptor?
  private let position = Mutex(Position())
  /// Whether pages that were changed in memory were written back before `status` was read, so that later stores through
  /// mappings show in the file's times.
  package let isWrittenBack: Bool

  /// Opens a regular file; refuses a symbolic link, folder, pipe or device with code `invalidArgument`.
  package convenience init(_ path: FilePath) throws(BlobStorageError) {
    let path = try path.absolute()
    try self.init(bs_working_directory(), [CChar](terminating: path.bytes), path, [])
  }

  /// Opens the file `name` in a folder. Messages show it as `relativePath` below `root`.
  ///
  /// - Parameter writesBack: whether to write back what mappings have changed: see `isWrittenBack`.
  package init(
    _ directory: Int32, _ name: [CChar], _ root: FilePath, _ relativePath: [UInt8], writesBack: Bool = false
  ) throws(BlobStorageError) {
    (self.root, self.relativePath) = (root, relativePath)
    var path: FilePath { root.appending(bytes: relativePath) }
    // Non-blocking, because opening a named pipe would wait for a writer.
    let options = Int32(BS_OPEN_NONBLOCK)
    let opened = uninterrupted { bs_open_at(directory, name, options) }
    if opened < 0 {
      if opened == -Int(Errno.tooManySymbolicLinkLevels.rawValue) { throw Self.notRegular(path) }
      throw .systemCall("open", path: path, errno: Int32(-opened))
    }
    let owner = OwnedDescriptor(owning: Int32(opened))
    (self.owner, descriptor) = (owner, owner.number)
    isWrittenBack = writesBack && uninterrupted { bs_write_back(owner.number) } >= 0
    status = try Self.status(of: owner.number, path)
    guard status.kind == .regular else { throw Self.notRegular(path) }
    // For shorter files the system's default read-ahead suffices.
    if status.byteCount > 128 << 10 { bs_advise_sequential(descriptor) }
  }

  /// Reads an open descriptor of any kind, such as standard input, from its current offset; does not close it.
  package init(borrowing descriptor: Int32, name: FilePath) throws(BlobStorageError) {
    (root, relativePath) = (name, [])
    self.descriptor = descriptor
    owner = nil
    isWrittenBack = false
    status = try Self.status(of: descriptor, name)
  }

  package var path: FilePath { root.appending(bytes: relativePath) }

  /// Fills the buffer up to the end of the input; returns the number of bytes read.
  package func read(into buffer: UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int {
    guard owner != nil, status.byteCount > 0 else {
      return try readAll(into: buffer, path) { (rest, _) in bs_read(descriptor, rest.baseAddress, rest.count)
      }
    }
    return try position.withLock { (position) throws(BlobStorageError) -> Int in
      var done = 0
      while done < buffer.count, position.offset < status.byteCount {
        if position.offset >= max(position.dataEnd, position.holeEnd) { findExtent(&position) }
        let isHole = position.offset < position.holeEnd
        let end = min(isHole ? position.holeEnd : position.dataEnd, status.byteCount)
        let wanted = Int(clamping: min(Int64(buffer.count - done), end - position.offset))
        let target = UnsafeMutableRawBufferPointer(rebasing: buffer[done..<done + wanted])
        if isHole {
          target.initializeMemory(as: UInt8.self, repeating: 0)
        } else {
          let count = try read(into: target, at: position.offset)
          if count < wanted {
            // It ends earlier than it says.
            position.offset += Int64(count)
            return done + count
          }
        }
        position.offset += Int64(wanted)
        done += wanted
      }
      return done
    }
  }

  /// Lets `read(into:)` begin again, unless the file has length 0.
  package func rewind() { position.withLock { $0 = Position() } }

  /// Finds the data or hole at the offset. Where the file system knows of no holes, all is data.
  private func findExtent(_ position: inout Position) {
    let offset = position.offset
    (position.dataEnd, position.holeEnd) = (.max, offset)
    guard status.allocatedByteCount < status.byteCount else { return }
    let data = uninterrupted { bs_next_data(descriptor, offset) }
    if data > offset {
      position.holeEnd = Int64(data)
    } else if data == -Int(Errno.noSuchAddressOrDevice.rawValue) {
      position.holeEnd = status.byteCount
    } else if data == offset {
      let hole = uninterrupted { bs_next_hole(descriptor, offset) }
      if hole > offset { position.dataEnd = Int64(hole) }
    }
  }

  /// Reads a regular file from `offset`. Does not move the offset of `read(into:)`.
  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    try readAll(into: buffer, path) { (rest, done) in
      bs_read_at(descriptor, rest.baseAddress, rest.count, offset + Int64(done))
    }
  }

  /// How the file has changed since it was opened; nil if it has not. Call it after reading.
  ///
  /// Compares the length and the file's times. Two changes within one tick of the file system's clock can go unnoticed.
  /// A file that was only removed has not changed. Pipes have no times.
  package func change() throws(BlobStorageError) -> SourceChange? {
    guard status.kind == .regular else { return nil }
    let now = try Self.status(of: descriptor, path)
    if now.byteCount == status.byteCount, now.modified == status.modified,
      now.changed == status.changed || now.linkCount == 0
    {
      return nil
    }
    return now.byteCount > status.byteCount ? .grown : .rewritten
  }

  /// Throws code `sourceFailed` if the file has changed since it was opened: see ``change()``.
  package func checkUnchanged() throws(BlobStorageError) { if try change() != nil { throw changedError } }

  package var changedError: BlobStorageError {
    BlobStorageError(.sourceFailed, "\(path.string) changed while it was read", path: path.string)
  }

  /// Calls `body` with the descriptor, for system calls that this class does not offer.
  package func withDescriptor<T>(
    _ body: (Int32) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    try body(descriptor)
  }

  private static func status(
    of descriptor: Int32, _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> FileStatus {
    var raw = bs_status()
    _ = try systemCall("stat", path()) { bs_status_of(descriptor, &raw) }
    return FileStatus(raw)
  }

  private static func notRegular(_ path: FilePath) -> BlobStorageError {
    BlobStorageError(.invalidArgument, "\(path.string) is not a regular file", path: path.string)
  }
}

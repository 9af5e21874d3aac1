import CBlobKernels
import SystemPackage

/// Reads a user's file, or a pipe, from front to back.
package final class InputFile: Sendable {
  /// The folder that `relativePath` is relative to, or the file's own path.
  private let root: FilePath
  private let relativePath: [UInt8]
  /// The status at opening. For a pipe, only the kind is meaningful.
  package let status: FileStatus
  private let descriptor: Int32
  /// Closes the descriptor; nil if the caller closes it.
  private let owner: OwnedDescriptor?

  /// Opens a regular file; refuses a symbolic link, folder, pipe or device with code `invalidArgument`.
  package convenience init(_ path: FilePath) throws(BlobStorageError) {
    let path = try path.absolute()
    try self.init(bs_working_directory(), [CChar](terminating: path.bytes), path, [])
  }

  /// Opens the file `name` in a folder. Messages show it as `relativePath` below `root`.
  package init(
    _ directory: Int32, _ name: [CChar], _ root: FilePath, _ relativePath: [UInt8]
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
    status = try Self.status(of: descriptor, name)
  }

  package var path: FilePath { root.appending(bytes: relativePath) }

  /// Fills the buffer up to the end of the input; returns the number of bytes read.
  package func read(into buffer: UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int {
    try readAll(into: buffer, path) { (rest, _) in bs_read(descriptor, rest.baseAddress, rest.count) }
  }

  /// Reads a regular file from `offset`. Does not move the offset of `read(into:)`.
  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    try readAll(into: buffer, path) { (rest, done) in
      bs_read_at(descriptor, rest.baseAddress, rest.count, offset + Int64(done))
    }
  }

  /// Throws code `sourceFailed` if the file has changed since it was opened. Call it after reading.
  ///
  /// It compares the length and the file's times. Two changes within one tick of the file system's clock can go
  /// unnoticed. Pipes pass.
  package func checkUnchanged() throws(BlobStorageError) {
    guard status.kind == .regular else { return }
    let now = try Self.status(of: descriptor, path)
    if now.byteCount != status.byteCount || now.modified != status.modified || now.changed != status.changed {
      throw BlobStorageError(.sourceFailed, "\(path.string) changed while it was read", path: path.string)
    }
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

import CBlobKernels
import SystemPackage

/// A user's file, or a pipe, that is read from front to back.
package final class InputFile: Sendable {
  /// The folder that `relativePath` begins in, or the file's own path.
  private let root: FilePath
  private let relativePath: [UInt8]
  /// What the file was when it was opened; of a pipe only the kind means something.
  package let status: FileStatus
  private let descriptor: Int32
  /// Closes the descriptor; nil if somebody else does.
  private let owner: OwnedDescriptor?

  /// Opens a regular file; a symbolic link, folder, pipe or device is refused with code `invalidArgument`.
  package convenience init(_ path: FilePath) throws(BlobStorageError) {
    let path = try path.absolute()
    try self.init(
      bs_working_directory(),
      path.withPlatformString { Array(UnsafeBufferPointer(start: $0, count: bs_length($0) + 1)) },
      path, [])
  }

  /// Opens a file of that name in a folder. Messages call it `relativePath` below `root`.
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
    // The system reads as much ahead without being told.
    if status.byteCount > 128 << 10 { bs_advise_sequential(descriptor) }
  }

  /// Reads an open descriptor of any kind, such as standard input, from where it stands; does not close it.
  package init(borrowing descriptor: Int32, name: FilePath) throws(BlobStorageError) {
    (root, relativePath) = (name, [])
    self.descriptor = descriptor
    owner = nil
    status = try Self.status(of: descriptor, name)
  }

  package var path: FilePath { root.appending(bytes: relativePath) }

  /// Fills the buffer or stops at the end of the input; returns the count of bytes read.
  package func read(into buffer: UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int {
    try readAll(into: buffer, path) { (rest, _) in bs_read(descriptor, rest.baseAddress, rest.count) }
  }

  /// The same from any place of a regular file; where `read(into:)` goes on does not change.
  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    try readAll(into: buffer, path) { (rest, done) in
      bs_read_at(descriptor, rest.baseAddress, rest.count, offset + Int64(done))
    }
  }

  /// Throws code `sourceFailed` when the file is not what it was when it was opened; to be asked after reading.
  ///
  /// It notices a change of length or of the file's times; two changes within one tick of the file system's
  /// clock can look like none. Pipes pass.
  package func checkUnchanged() throws(BlobStorageError) {
    guard status.kind == .regular else { return }
    let now = try Self.status(of: descriptor, path)
    if now.byteCount != status.byteCount || now.modified != status.modified || now.changed != status.changed {
      throw BlobStorageError(.sourceFailed, "\(path.string) changed while it was read", path: path.string)
    }
  }

  /// Calls `body` with the descriptor, for calls that only some files need.
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

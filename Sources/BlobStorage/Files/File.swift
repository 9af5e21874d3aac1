import Dispatch
import SystemPackage

/// An open file. Every call may run on any thread; after ``close()`` they throw code `closed`.
package protocol File: AnyObject, Sendable {
  /// The absolute path that the file was opened at. A rename does not change it.
  var path: FilePath { get }

  /// Fills the buffer up to the end of the file; returns the number of bytes read.
  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(BlobStorageError) -> Int

  /// Fills the whole buffer from the page cache, or returns nil without waiting for the medium.
  ///
  /// Nil may hide an error: ``read(into:at:)`` reports it. Always nil if the system has no such call. After nil the
  /// buffer's bytes are unspecified.
  func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int?

  /// Writes all bytes or throws. After a throw, the file may have any part of them.
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError)

  /// Appends all bytes to a file that was opened for appending, or throws.
  ///
  /// Concurrent appends, also by other processes, do not interleave.
  func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError)

  /// Forces the bytes written so far to the medium.
  ///
  /// After a throw, writes since the last success may never reach the medium, even if a later call succeeds: the system
  /// may have dropped their pages.
  func synchronize() throws(BlobStorageError)

  /// Asks the system to start writing these bytes to the medium, so that the next ``synchronize()`` waits for less.
  ///
  /// Advice only: it does nothing if the system has no such call.
  func beginWriteback(from offset: Int64, byteCount: Int64)

  /// Sets the file's length; new bytes are zero.
  func truncate(to byteCount: Int64) throws(BlobStorageError)

  /// Allocates space for the first `byteCount` bytes and makes the file at least that long; new bytes are zero.
  func allocate(byteCount: Int64) throws(BlobStorageError)

  /// Allocates space for the first `byteCount` bytes without changing the file's length, if the file system can.
  /// ``truncate(to:)`` to the length frees unused space.
  func reserve(byteCount: Int64) throws(BlobStorageError)

  /// The current status of the file.
  func status() throws(BlobStorageError) -> FileStatus

  /// Takes the file's lock; false if another holder has it and `wait` is false.
  ///
  /// The lock belongs to this object: a second `File` on the same path, in any process, competes with it. Locking again
  /// changes the kind, but not atomically: another holder may take it meanwhile. ``unlock()``, ``close()`` or the end
  /// of the process releases it.
  func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool

  /// Takes the file's lock, and waits for at most `seconds`.
  func lock(_ kind: LockKind, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool

  /// Releases the lock; does nothing if it is not held.
  func unlock() throws(BlobStorageError)

  /// Locks bytes of the file against every other `File` on it; false if another holds one of them and `wait` is false.
  ///
  /// Such locks are independent of ``lock(_:wait:)``, and may lie beyond the file's end. ``unlock(bytes:)``,
  /// ``close()`` or the end of the process releases them.
  func lock(bytes: Range<Int64>, wait: Bool) throws(BlobStorageError) -> Bool

  /// Locks bytes, and waits for at most `seconds`.
  func lock(bytes: Range<Int64>, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool

  /// Releases locked bytes; does nothing for those that are not locked.
  func unlock(bytes: Range<Int64>) throws(BlobStorageError)

  /// Maps the first `byteCount` bytes as memory shared by all processes. They must be allocated: see
  /// ``allocate(byteCount:)``.
  func mapped(byteCount: Int) throws(BlobStorageError) -> SharedMemory

  /// Reads through a DispatchIO channel, for reads that probably wait for the medium.
  ///
  /// - Parameter completion: Called exactly once on `queue`, possibly before this call returns. Fewer bytes than
  ///   requested mean the end of the file.
  func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void)

  /// Whether reads go over a network. Then use ``read(into:at:)``, from any thread.
  var isRemote: Bool { get }

  /// Drops the local copy of a damaged range of a remote file; false if there is no local copy.
  @discardableResult
  func dropKept(_ range: Range<Int64>) -> Bool

  /// Closes the file; a second call does nothing.
  ///
  /// It does not wait: calls under way finish as usual, and the last of them closes the file.
  func close()
}

extension File {
  /// Reads up to `count` bytes, fewer at the end of the file.
  package func bytesThere(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    try [UInt8](filling: count) { (buffer) throws(BlobStorageError) in try read(into: buffer, at: offset) }
  }

  /// Writes an array.
  package func put(_ bytes: [UInt8], at offset: Int64) throws(BlobStorageError) {
    try bridge(bytes) { (bytes) throws(BlobStorageError) in try write(bytes, at: offset) }
  }

  /// Copies all bytes of this file to an empty one.
  func copyBytes(to target: any File) throws(BlobStorageError) {
    var offset: Int64 = 0
    while true {
      let bytes = try bytesThere(at: offset, 1 << 20)
      if bytes.isEmpty { return }
      try target.put(bytes, at: offset)
      offset += Int64(bytes.count)
    }
  }

  package var isRemote: Bool { false }
  package func dropKept(_ range: Range<Int64>) -> Bool { false }

  /// Runs `body`, which reads a range. If `body` finds damage, drops the local copy and runs `body` once more. A second
  /// `corrupted` error then means that the file itself is damaged.
  package func readingAfresh<T>(
    _ range: Range<Int64>, _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    do throws(BlobStorageError) { return try body() } catch {
      guard error.code == .corrupted, dropKept(range) else { throw error }
      return try body()
    }
  }

  package func lock(bytes: Range<Int64>, wait: Bool) throws(BlobStorageError) -> Bool {
    throw .systemCall("lock bytes of", path: path, errno: Errno.notSupported.rawValue)
  }
  package func lock(bytes: Range<Int64>, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    try lock(bytes: bytes, wait: true)
  }
  package func unlock(bytes: Range<Int64>) throws(BlobStorageError) {}
  package func mapped(byteCount: Int) throws(BlobStorageError) -> SharedMemory {
    throw .systemCall("map", path: path, errno: Errno.notSupported.rawValue)
  }

  package func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    try write(bytes, at: try status().byteCount)
  }

  package func lock(_ kind: LockKind, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    try lock(kind, wait: true)
  }
}

/// The kind of a file lock.
package enum LockKind: Sendable, Hashable {
  /// Any number of holders, none exclusive.
  case shared
  /// One holder.
  case exclusive
}

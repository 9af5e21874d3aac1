import Dispatch
import SystemPackage

/// An open file. Every call may run on any thread; after ``close()`` they throw code `closed`.
package protocol File: AnyObject, Sendable {
  /// The absolute path it was opened at; a rename does not change it.
  var path: FilePath { get }

  /// Fills the buffer or stops at the end of the file; returns the count of bytes read.
  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(BlobStorageError) -> Int

  /// Fills the whole buffer from the page cache, or returns nil without having waited for the medium.
  ///
  /// Nil says nothing about the file: ``read(into:at:)`` tells an error, and where the system has no such call
  /// it is always nil. After nil the buffer's bytes are unspecified.
  func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int?

  /// Writes all bytes or throws; after a throw any part of them may be in the file.
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError)

  /// Writes all bytes behind the end of a file that was opened for appending, or throws.
  ///
  /// Others may append at the same time, also other processes: what each of them writes stays together.
  func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError)

  /// Forces the bytes written so far to the medium.
  ///
  /// After a throw, nothing written since the last success can be trusted to reach the medium, whatever a later
  /// call says: the system may have forgotten that it was never written.
  func synchronize() throws(BlobStorageError)

  /// Lets the system begin to write those bytes to the medium, so that the next ``synchronize()`` waits for less.
  ///
  /// It promises nothing, and nothing happens where the system has no such call.
  func beginWriteback(from offset: Int64, byteCount: Int64)

  /// Makes the file that long; new bytes are zero.
  func truncate(to byteCount: Int64) throws(BlobStorageError)

  /// Reserves space for the first `byteCount` bytes and makes the file at least that long; new bytes are zero.
  func allocate(byteCount: Int64) throws(BlobStorageError)

  /// Reserves space for the first `byteCount` bytes without changing the file's length, where the file system can.
  /// ``truncate(to:)`` to the length gives back what was not used.
  func reserve(byteCount: Int64) throws(BlobStorageError)

  /// What the file is now.
  func status() throws(BlobStorageError) -> FileStatus

  /// Takes the file's lock; false when another holds it and `wait` is false.
  ///
  /// The lock belongs to this object: a second `File` on the same path, in whichever process, competes with it.
  /// Locking again changes the kind, not atomically: another may have held the lock in between. It ends with
  /// ``unlock()``, with ``close()`` or with the process.
  func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool

  /// The same, but waits for at most `seconds`.
  func lock(_ kind: LockKind, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool

  /// Gives the lock back; nothing happens when there is none.
  func unlock() throws(BlobStorageError)

  /// Locks bytes of the file against every other `File` on it; false when another holds one of them and `wait` is false.
  ///
  /// Such locks are apart from ``lock(_:wait:)``, and bytes beyond the file's end can be locked too. They end with
  /// ``unlock(bytes:)``, with ``close()`` or with the process.
  func lock(bytes: Range<Int64>, wait: Bool) throws(BlobStorageError) -> Bool

  /// The same, but waits for at most `seconds`.
  func lock(bytes: Range<Int64>, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool

  /// Gives locked bytes back; nothing happens for those that are not locked.
  func unlock(bytes: Range<Int64>) throws(BlobStorageError)

  /// The first `byteCount` bytes as memory that all processes share. They must be allocated: see ``allocate(byteCount:)``.
  func mapped(byteCount: Int) throws(BlobStorageError) -> SharedMemory

  /// Reads through a DispatchIO channel: for bytes that are likely to wait for the medium.
  ///
  /// - Parameter completion: Called exactly once on `queue`, never before this call has returned unless the queue
  ///   is concurrent; fewer bytes than asked for mean the end of the file.
  func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void)

  /// Whether its bytes come over a network: then ``read(into:at:)`` is the way to them, from whichever thread.
  var isRemote: Bool { get }

  /// Forgets the local copy of a range of a remote file, because it is damaged; false when there is no local copy.
  @discardableResult
  func dropKept(_ range: Range<Int64>) -> Bool

  /// Closes the file; a second call does nothing.
  ///
  /// It does not wait: calls under way end as if the file were open, and the last of them closes it.
  func close()
}

extension File {
  /// As many of `count` bytes as there are.
  package func bytesThere(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    try [UInt8](filling: count) { (buffer) throws(BlobStorageError) in try read(into: buffer, at: offset) }
  }

  /// Writes an array.
  package func put(_ bytes: [UInt8], at offset: Int64) throws(BlobStorageError) {
    try bridge(bytes) { (bytes) throws(BlobStorageError) in try write(bytes, at: offset) }
  }

  package var isRemote: Bool { false }
  package func dropKept(_ range: Range<Int64>) -> Bool { false }

  /// What `body` reads in a range. If that is damaged, it forgets the local copy and `body` reads once more. So only
  /// damage of the file itself is left.
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

/// How a file is locked.
package enum LockKind: Sendable, Hashable {
  /// Any number of holders, none exclusive.
  case shared
  /// One holder.
  case exclusive
}

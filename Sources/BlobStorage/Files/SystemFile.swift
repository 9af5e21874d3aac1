import CBlobKernels
import Dispatch
import Foundation
import Synchronization
import SystemPackage

/// A file of the system.
package final class SystemFile: File {
  package let path: FilePath
  private let gate: DescriptorGate
  /// Set once the system has answered that it has no cached reads here, to avoid asking again.
  private let lacksCachedReads = Atomic<Bool>(false)
  private let channel = IOLock<DispatchIO?>(nil)
  private static let writeback = DispatchQueue(label: "blobstorage.writeback", qos: .utility)

  init(owning descriptor: Int32, path: FilePath) {
    self.gate = DescriptorGate(owning: descriptor)
    self.path = path
  }

  deinit { close() }

  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    precondition(offset >= 0)
    return try inUse { (descriptor) throws(BlobStorageError) in
      try readAll(into: buffer, path) { (rest, done) in
        bs_read_at(descriptor, rest.baseAddress, rest.count, offset + Int64(done))
      }
    }
  }

  package func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? {
    precondition(offset >= 0)
    if buffer.isEmpty { return 0 }
    if lacksCachedReads.load(ordering: .relaxed) { return nil }
    let outcome = gate.enter { descriptor in
      uninterrupted { bs_read_if_cached(descriptor, buffer.baseAddress, buffer.count, offset) }
    }
    guard let outcome else { return nil }
    if outcome == -Int(Errno.notSupported.rawValue) || outcome == -Int(Errno.notSupportedOnSocket.rawValue)
      || outcome == -Int(Errno.noFunction.rawValue)
    {
      lacksCachedReads.store(true, ordering: .relaxed)
    }
    return outcome == buffer.count ? outcome : nil
  }

  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    precondition(offset >= 0)
    try inUse { (descriptor) throws(BlobStorageError) in
      var done = 0
      while done < bytes.count {
        let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
        let count = try systemCall("write to", path) {
          bs_write_at(descriptor, rest.baseAddress, rest.count, offset + Int64(done))
        }
        // A write of zero bytes is not allowed to happen, and would loop forever.
        if count == 0 { throw .systemCall("write to", path: path, errno: Errno.ioError.rawValue) }
        done += count
      }
    }
  }

  package func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    if bytes.isEmpty { return }
    let count = try call("append to") { bs_append($0, bytes.baseAddress, bytes.count) }
    // A second call could interleave with other appends. A short append means that the disk is full.
    if count < bytes.count { throw .systemCall("append to", path: path, errno: Errno.noSpace.rawValue) }
  }

  package func synchronize() throws(BlobStorageError) {
    try call("sync") { bs_sync_data($0) }
  }

  package func beginWriteback(from offset: Int64, byteCount: Int64) {
    // It costs half a microsecond for each page, so the caller does not wait for it.
    Self.writeback.async { [self] in _ = gate.enter { bs_begin_writeback($0, offset, byteCount) } }
  }

  package func truncate(to byteCount: Int64) throws(BlobStorageError) {
    precondition(byteCount >= 0)
    try call("truncate") { bs_truncate($0, byteCount) }
  }

  package func allocate(byteCount: Int64) throws(BlobStorageError) {
    precondition(byteCount >= 0)
    try call("reserve space for") { byteCount == 0 ? 0 : bs_allocate($0, byteCount) }
  }

  package func reserve(byteCount: Int64) throws(BlobStorageError) {
    precondition(byteCount >= 0)
    try call("reserve space for") { byteCount == 0 ? 0 : bs_reserve($0, byteCount) }
  }

  package func status() throws(BlobStorageError) -> FileStatus {
    var raw = bs_status()
    try call("stat") { bs_status_of($0, &raw) }
    return FileStatus(raw)
  }

  package func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool {
    try call("lock") { bs_lock($0, kind == .exclusive ? 1 : 0, wait ? 1 : 0) } == 1
  }

  package func lock(_ kind: LockKind, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    try PassingTime.system.retry(withinSeconds: seconds, pauseSeconds: 0.01...0.01) {
      () throws(BlobStorageError) in try lock(kind, wait: false)
    }
  }

  package func unlock() throws(BlobStorageError) {
    try call("unlock") { bs_unlock($0) }
  }

  package func lock(bytes: Range<Int64>, wait: Bool) throws(BlobStorageError) -> Bool {
    try call("lock bytes of") {
      bs_lock_range($0, bytes.lowerBound, Int64(bytes.count), wait ? 1 : 0)
    } == 1
  }

  package func lock(bytes: Range<Int64>, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    // The system cannot limit its own wait. Holders keep such locks for microseconds.
    try PassingTime.system.retry(withinSeconds: seconds, pauseSeconds: 0.000_02...0.005) {
      () throws(BlobStorageError) in try lock(bytes: bytes, wait: false)
    }
  }

  package func unlock(bytes: Range<Int64>) throws(BlobStorageError) {
    try call("unlock bytes of") { bs_unlock_range($0, bytes.lowerBound, Int64(bytes.count)) }
  }

  /// Locks bytes as others may at the same time; false if another has them alone.
  func share(bytes: Range<Int64>) throws(BlobStorageError) -> Bool {
    try call("lock bytes of") { bs_share_range($0, bytes.lowerBound, Int64(bytes.count)) } == 1
  }

  /// Ends a lock that another library has taken for this process, by `F_SETLK`.
  func endProcessLock(bytes: Range<Int64>) throws(BlobStorageError) {
    try call("unlock bytes of") { bs_end_process_lock($0, bytes.lowerBound, Int64(bytes.count)) }
  }

  package func mapped(byteCount: Int) throws(BlobStorageError) -> SharedMemory {
    var words: UnsafeMutablePointer<UInt64>?
    try call("map") { bs_map($0, byteCount, &words) }
    guard let words else { throw .systemCall("map", path: path, errno: Errno.noMemory.rawValue) }
    return SharedMemory(words: words, byteCount: byteCount)
  }

  package func close() {
    gate.shutGate()
    let channel = self.channel.withLock { $0.take() }
    // Without `.stop`: reads under way finish on the channel's own descriptor.
    channel?.close()
  }

  /// Runs one system call on the descriptor.
  @discardableResult
  func call(_ attempt: @autoclosure () -> String, _ body: (Int32) -> Int) throws(BlobStorageError) -> Int {
    try inUse { (descriptor) throws(BlobStorageError) in
      try systemCall(attempt(), path) { body(descriptor) }
    }
  }

  private func inUse<Value>(
    _ body: (Int32) throws(BlobStorageError) -> Value
  ) throws(BlobStorageError) -> Value {
    guard let value = try gate.enter(body) else { throw .closedFile(path) }
    return value
  }
}

extension FileStatus {
  package init(_ raw: bs_status) {
    let kind: Kind =
      switch Int(raw.kind) {
      case BS_KIND_REGULAR: .regular
      case BS_KIND_DIRECTORY: .directory
      case BS_KIND_SYMBOLIC_LINK: .symbolicLink
      default: .other
      }
    self.init(
      kind: kind, byteCount: raw.byte_count, allocatedByteCount: raw.allocated_byte_count,
      linkCount: Int(raw.link_count), inode: raw.inode, device: raw.device,
      modified: FileTime(seconds: raw.modified_seconds, nanoseconds: raw.modified_nanoseconds),
      changed: FileTime(seconds: raw.changed_seconds, nanoseconds: raw.changed_nanoseconds),
      permissions: UInt16(raw.permissions), user: raw.user, group: raw.group)
  }
}

extension SystemFile {
  package func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    precondition(offset >= 0 && byteCount >= 0)
    let gathered = Gathered()
    let path = self.path
    do throws(BlobStorageError) {
      try channel.withLock { (channel) throws(BlobStorageError) in
        if channel == nil { channel = try makeChannel() }
        // This only starts the read. Keep the lock, so that no thread closes the channel first.
        channel?.read(offset: numericCast(offset), length: byteCount, queue: queue) { isLast, data, errno in
          guard let data = gathered.add(data, isLast: isLast || errno != 0) else { return }
          if errno != 0 {
            completion(.failure(.systemCall("read", path: path, errno: errno)))
          } else {
            completion(.success(data))
          }
        }
      }
    } catch {
      // The process has no descriptor left for a channel. The file's own reads as well.
      queue.async { [self] in
        completion(
          Result { () throws(BlobStorageError) in
            try bytesThere(at: offset, byteCount).withUnsafeBytes { DispatchData(bytes: $0) }
          })
      }
    }
  }

  /// Creates a channel with a duplicate of the descriptor, so that the file can be closed during a read.
  private func makeChannel() throws(BlobStorageError) -> DispatchIO {
    let duplicate = Int32(try call("duplicate the descriptor of") { bs_duplicate($0) })
    return DispatchIO(
      type: .random, fileDescriptor: duplicate, queue: .global(),
      cleanupHandler: { _ in closeDescriptor(duplicate) })
  }
}

/// Collects the parts of one read.
///
/// Unchecked, because DispatchData is not Sendable on every platform. The channel calls its handler once for each part,
/// one call at a time on any queue, and nothing else uses this object.
private final class Gathered: @unchecked Sendable {
  private var data = DispatchData.empty
  private var isDone = false

  /// Adds a part. Returns all parts with the last one, and nil otherwise.
  func add(_ piece: DispatchData?, isLast: Bool) -> DispatchData? {
    if isDone { return nil }
    if let piece { data.append(piece) }
    isDone = isLast
    return isLast ? data : nil
  }
}

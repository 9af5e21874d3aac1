import BlobStorage
import Dispatch
import Synchronization
import SystemPackage

/// An open file of a simulated disk.
package final class SimulatedFile: File {
  package let path: FilePath
  private let disk: SimulatedDisk
  private let process: Int
  private let handle: Int
  private let isClosed = Atomic<Bool>(false)

  init(disk: SimulatedDisk, process: Int, handle: Int, path: FilePath) {
    self.disk = disk
    self.process = process
    self.handle = handle
    self.path = path
  }

  deinit { close() }

  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    precondition(offset >= 0)
    let byteCount = buffer.count
    let bytes = try call(.read, "\(offset)..<\(offset + Int64(byteCount))") {
      (state, opened) throws(SimulatedErrno) -> [UInt8] in
      guard let bytes = state.image.nodes[opened.node]?.live, offset < bytes.count else { return [] }
      let start = Int(offset)
      return Array(bytes[start..<start + min(byteCount, bytes.count - start)])
    }
    buffer.copyBytes(from: bytes)
    return bytes.count
  }

  package func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? {
    precondition(offset >= 0)
    if buffer.isEmpty { return 0 }
    guard let count = try? read(into: buffer, at: offset), count == buffer.count else { return nil }
    return count
  }

  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    precondition(offset >= 0)
    try write(bytes, at: Int(offset), "\(offset)..<\(Int(offset) + bytes.count)")
  }

  package func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    try write(bytes, at: nil, "append \(bytes.count)")
  }

  /// - Parameter offset: nil for the end of the file.
  private func write(
    _ bytes: UnsafeRawBufferPointer, at offset: Int?, _ detail: String
  ) throws(BlobStorageError) {
    if bytes.isEmpty { return }
    let bytes = Array(bytes)
    let handle = self.handle
    @Sendable func land(_ count: Int, _ state: inout SimulatedDisk.State) {
      guard count > 0, let node = state.handles[handle]?.node else { return }
      let start = offset ?? state.image.nodes[node]?.live.count ?? 0
      let landing = Array(bytes.prefix(count))
      state.image.change(node, .write(offset: start, bytes: landing), modified: state.now)
    }
    try call(.write, detail, onFault: { land($1.landingByteCount, &$0) }) {
      (state, opened) throws(SimulatedErrno) in
      guard opened.isWritable else { throw .init(.badFileDescriptor) }
      let length = state.image.nodes[opened.node]?.live.count ?? 0
      let start = offset ?? length
      let fitting = max(0, min(bytes.count, length - start + min(state.freeByteCount, .max - length)))
      land(fitting, &state)
      if fitting < bytes.count { throw .init(.noSpace) }
    }
  }

  package func synchronize() throws(BlobStorageError) {
    let handle = self.handle
    try call(
      .synchronize, "",
      onFault: { state, fault in
        guard let node = state.handles[handle]?.node else { return }
        state.image.loseData(of: node)
        for other in state.handles.keys where other != handle && state.handles[other]?.node == node {
          state.handles[other]?.lostData = fault.errno
        }
      }
    ) { (state, opened) throws(SimulatedErrno) in
      if let errno = opened.lostData {
        state.handles[handle]?.lostData = nil
        throw .init(errno)
      }
      state.image.syncData(of: opened.node)
    }
  }

  /// Does nothing: unsynced bytes may reach the medium at any time anyway.
  package func beginWriteback(from offset: Int64, byteCount: Int64) {}

  package func truncate(to byteCount: Int64) throws(BlobStorageError) {
    precondition(byteCount >= 0)
    try call(.truncate, "to \(byteCount)") { (state, opened) throws(SimulatedErrno) in
      guard opened.isWritable else { throw .init(.invalidArgument) }
      state.image.change(opened.node, .truncate(Int(byteCount)), modified: state.now)
    }
  }

  package func allocate(byteCount: Int64) throws(BlobStorageError) {
    precondition(byteCount >= 0)
    try call(.allocate, "\(byteCount)") { (state, opened) throws(SimulatedErrno) in
      if byteCount == 0 { return }
      guard opened.isWritable else { throw .init(.badFileDescriptor) }
      let missing = Int(byteCount) - (state.image.nodes[opened.node]?.live.count ?? 0)
      if missing <= 0 { return }
      if missing > state.freeByteCount { throw .init(.noSpace) }
      state.image.change(opened.node, .truncate(Int(byteCount)), modified: state.now)
    }
  }

  /// Reserves nothing, as on a file system that cannot.
  package func reserve(byteCount: Int64) throws(BlobStorageError) {
    precondition(byteCount >= 0)
    try call(.allocate, "\(byteCount) kept length") { (_, opened) throws(SimulatedErrno) in
      guard opened.isWritable else { throw .init(.badFileDescriptor) }
    }
  }

  package func status() throws(BlobStorageError) -> FileStatus {
    try call(.status, "") { (state, opened) throws(SimulatedErrno) in state.image.status(of: opened.node) }
  }

  package func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool {
    let handle = self.handle
    while true {
      let waiter = DispatchSemaphore(value: 0)
      let isHeld = try call(.lock, "\(kind)") { (state, opened) throws(SimulatedErrno) in
        // Like flock: a request for the other kind gives up the kind that is held, even if it is refused.
        var holders = state.locks[opened.node, default: [:]]
        if holders[handle] == kind { return true }
        let gaveUp = holders.removeValue(forKey: handle) != nil
        let isFree = kind == .shared ? !holders.values.contains(.exclusive) : holders.isEmpty
        if isFree { holders[handle] = kind }
        state.locks[opened.node] = holders
        if gaveUp { state.wakeWaiters() }
        if !isFree && wait { state.waiters.append(waiter) }
        return isFree
      }
      if isHeld || !wait { return isHeld }
      if let scheduler = disk.state.withLock({ $0.scheduler }) {
        scheduler.waitForWake()
      } else {
        waiter.wait()
      }
    }
  }

  package func unlock() throws(BlobStorageError) {
    let handle = self.handle
    try call(.unlock, "") { (state, opened) throws(SimulatedErrno) in
      if state.locks[opened.node]?.removeValue(forKey: handle) != nil { state.wakeWaiters() }
    }
  }

  package func close() {
    if isClosed.exchange(true, ordering: .acquiringAndReleasing) { return }
    disk.state.withLock { $0.closeHandle(handle) }
  }

  @discardableResult
  private func call<Value: Sendable>(
    _ kind: CallKind, _ detail: String,
    onFault: (inout SimulatedDisk.State, Fault) -> Void = { _, _ in },
    _ body: (inout SimulatedDisk.State, SimulatedDisk.Handle) throws(SimulatedErrno) -> Value
  ) throws(BlobStorageError) -> Value {
    if isClosed.load(ordering: .acquiring) { throw .closedFile(path) }
    return try disk.perform(kind, process, path, detail, onFault: onFault) {
      (state) throws(SimulatedErrno) in
      guard let opened = state.handles[handle] else { throw .init(.badFileDescriptor) }
      return try body(&state, opened)
    }
  }
}

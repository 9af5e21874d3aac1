import BlobStorage
import Synchronization
import SystemPackage

/// The real files of a catalog in one simulated process: they die with the process, and wait for a lock as the
/// scheduler says. Each word stored in the table of open packs is a call on the simulated disk.
///
/// With a scheduler, locks are kept here and not by the system. A lock of the file `lock`, even a shared one, is
/// exclusive: otherwise a write transaction of LMDB would wait for another where no scheduler sees it.
package struct CatalogFiles: ForwardingFiles {
  private let process: SimulatedProcess
  private let scheduler: Scheduler?
  private let locks: CatalogLocks?
  private let missing: Set<TableStep>
  package let system = SystemFiles()

  /// - Parameters:
  ///   - locks: shared by all processes that use the catalog; nil for those of the system.
  ///   - missing: steps that the process leaves out, for a test that must detect it.
  package init(
    _ process: SimulatedProcess, _ locks: CatalogLocks?, _ scheduler: Scheduler?,
    without missing: Set<TableStep> = []
  ) {
    self.process = process
    self.locks = locks
    self.scheduler = scheduler
    self.missing = missing
  }

  package func begin(_ call: String, _ path: FilePath) throws(BlobStorageError) {
    guard process.isAlive else { throw .simulatedStop }
  }

  package func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    try begin("open", path)
    let file = try system.open(path, intent)
    let names = locks == nil ? ["/live"] : ["/lock", "/users", "/live"]
    let text = path.string
    guard names.contains(where: { text.hasSuffix($0) }) else { return file }
    return LockedFile(file, process, locks, scheduler, missing)
  }
  /// These files need not survive a power cut.
  package func syncDirectory(_ path: FilePath) throws(BlobStorageError) { try begin("syncDirectory", path) }
}

/// The locks of a catalog and their holders.
package final class CatalogLocks: Sendable {
  struct Holder: Sendable {
    let file: ObjectIdentifier
    let process: SimulatedProcess
    let kind: LockKind
  }
  private struct State: Sendable {
    var holders: [FilePath: [Holder]] = [:]
    var hook: (@Sendable (FilePath) -> Void)?
    var ranges: [FilePath: [(bytes: Range<Int64>, file: ObjectIdentifier, process: SimulatedProcess)]] = [:]
  }
  private let state = Mutex(State())

  package init() {}

  func acquire(_ path: FilePath, _ new: Holder) -> Bool {
    state.withLock { state in
      var others = (state.holders[path] ?? []).filter { $0.process.isAlive && $0.file != new.file }
      defer { state.holders[path] = others }
      let isFree = new.kind == .shared ? others.allSatisfy { $0.kind == .shared } : others.isEmpty
      if isFree { others.append(new) }
      return isFree
    }
  }

  func acquire(
    _ bytes: Range<Int64>, of path: FilePath, _ file: ObjectIdentifier, _ process: SimulatedProcess
  ) -> Bool {
    state.withLock { state in
      var held = (state.ranges[path] ?? []).filter { $0.process.isAlive }
      defer { state.ranges[path] = held }
      if held.contains(where: { $0.file != file && $0.bytes.overlaps(bytes) }) { return false }
      held.append((bytes, file, process))
      return true
    }
  }

  /// - Parameter bytes: nil for all locks that the file holds.
  func release(_ bytes: Range<Int64>? = nil, of path: FilePath, _ file: ObjectIdentifier) {
    let hook = state.withLock { state in
      if bytes == nil { state.holders[path]?.removeAll { $0.file == file } }
      state.ranges[path]?.removeAll { $0.file == file && (bytes == nil || $0.bytes == bytes) }
      return state.hook
    }
    hook?(path)
  }

  /// Sets what runs when a lock is released: after a transaction or a commit, before its caller learns the outcome.
  package func afterRelease(_ hook: (@Sendable (FilePath) -> Void)?) { state.withLock { $0.hook = hook } }
}

private final class LockedFile: ForwardingFile {
  let file: any File
  private let process: SimulatedProcess
  private let locks: CatalogLocks?
  private let scheduler: Scheduler?
  private let missing: Set<TableStep>

  init(
    _ file: any File, _ process: SimulatedProcess, _ locks: CatalogLocks?, _ scheduler: Scheduler?,
    _ missing: Set<TableStep>
  ) {
    self.file = file
    self.process = process
    self.locks = locks
    self.scheduler = scheduler
    self.missing = missing
  }

  deinit { release() }

  func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool {
    guard let locks else { return try file.lock(kind, wait: wait) }
    let isOfCatalog = path.string.hasSuffix("/lock")
    let holder = CatalogLocks.Holder(
      file: ObjectIdentifier(self), process: process, kind: isOfCatalog ? .exclusive : kind)
    return try acquire(isOfCatalog ? .settle : nil, "lock", wait: wait) { locks.acquire(path, holder) }
  }

  /// Repeats `attempt` until it succeeds. Returns false if it fails and `wait` is false.
  private func acquire(
    _ step: TableStep?, _ name: String, wait: Bool, _ attempt: () -> Bool
  ) throws(BlobStorageError) -> Bool {
    while true {
      guard process.isAlive else { throw .simulatedStop }
      scheduler?.waitForTurn()
      if let step { process.log(step, name) }
      guard process.isAlive else { throw .simulatedStop }
      if attempt() { return true }
      guard wait else { return false }
      guard let scheduler else { preconditionFailure("no actor would end this waiting") }
      scheduler.waitForWake()
    }
  }

  func unlock() throws(BlobStorageError) {
    if locks == nil { try file.unlock() } else { release() }
  }

  func lock(bytes: Range<Int64>, wait: Bool) throws(BlobStorageError) -> Bool {
    let step = Self.step(bytes)
    if missing.contains(step) { return true }
    guard let locks else { return try file.lock(bytes: bytes, wait: wait) }
    return try acquire(step, "live", wait: wait) {
      locks.acquire(bytes, of: path, ObjectIdentifier(self), process)
    }
  }

  func lock(bytes: Range<Int64>, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    if locks != nil || missing.contains(Self.step(bytes)) { return try lock(bytes: bytes, wait: true) }
    return try file.lock(bytes: bytes, withinSeconds: seconds)
  }

  private static func step(_ bytes: Range<Int64>) -> TableStep {
    bytes.lowerBound < LiveTable.firstSlotByte ? .lockStripe : .lockSlot
  }

  func unlock(bytes: Range<Int64>) throws(BlobStorageError) {
    guard let locks else { return try file.unlock(bytes: bytes) }
    locks.release(bytes, of: path, ObjectIdentifier(self))
    scheduler?.wake()
  }

  func mapped(byteCount: Int) throws(BlobStorageError) -> SharedMemory {
    let memory = try file.mapped(byteCount: byteCount)
    return SharedMemory(memory, of: TableProcess(process: process, memory: memory, missing: missing))
  }

  func close() {
    release()
    file.close()
  }

  private func release() {
    guard let locks else { return }
    locks.release(of: path, ObjectIdentifier(self))
    scheduler?.wake()
  }

  func synchronize() throws(BlobStorageError) {}
  func beginWriteback(from offset: Int64, byteCount: Int64) {}
}

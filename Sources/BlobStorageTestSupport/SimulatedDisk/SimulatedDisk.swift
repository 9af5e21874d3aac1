import BlobStorage
import Dispatch
import Synchronization
import SystemPackage

/// A disk in memory that can lose power, fill up and fail.
///
/// It has two images. Processes see the *live* one. A power cut leaves the *durable* one: `synchronize` puts a file's
/// bytes and length there, and `syncDirectory` the names of a folder. It is stricter than common file systems, as POSIX
/// allows: syncing a new file does not make its name durable.
///
/// The disk is a ``FileSystem`` itself, for tests with one process. ``process()`` makes more, each with its own locks
/// and lifetime. Paths begin at `/`; there are no symbolic links. Calls are safe from any thread.
package final class SimulatedDisk: ForwardingFiles {
  /// Called before every mutating call, outside the disk's own lock. A hook that throws
  /// ``BlobStorage/BlobStorageError/simulatedStop`` kills the calling process, so that a test can cut at each call in
  /// turn.
  package typealias Hook = @Sendable (CallRecord) throws(BlobStorageError) -> Void

  struct Handle {
    var node: DiskImage.NodeNumber
    var process: Int
    var isWritable: Bool
    /// The error of a sync of the file that failed since it was opened. This handle reports it once, as on Linux since
    /// 4.13.
    var lostData: Errno?
  }

  struct State: Sendable {
    var image = DiskImage()
    var handles: [Int: Handle] = [:]
    var nextHandle = 1
    /// The locks on each node, by the handles that hold them.
    var locks: [DiskImage.NodeNumber: [Int: LockKind]] = [:]
    var waiters: [DispatchSemaphore] = []
    var aliveProcesses: Set<Int> = [0]
    var nextProcess = 1
    var defaultProcess = 0
    var faults: [Fault] = []
    var byteCountMax: Int?
    var hook: Hook?
    var afterHook: Hook?
    var callHook: Hook?
    var scheduler: Scheduler?
    var calls: [CallRecord] = []
    var callCount = 0
    var mutationCount = 0
  }

  let state: Mutex<State>
  /// The number of last calls that the log keeps.
  fileprivate static let callLogCountMax = 20_000

  /// An empty disk.
  package init() { state = Mutex(State()) }

  init(_ image: DiskImage) {
    var state = State()
    state.image = image
    self.state = Mutex(state)
  }

  /// A copy of the disk with its unsynced changes, and without processes.
  package func copy() -> SimulatedDisk { SimulatedDisk(state.withLock { $0.image }) }

  // MARK: Processes

  /// A new process that uses this disk.
  package func process() -> SimulatedProcess {
    state.withLock { state in
      let number = state.nextProcess
      state.nextProcess += 1
      state.aliveProcesses.insert(number)
      return SimulatedProcess(disk: self, number: number)
    }
  }

  /// Kills every process: their locks and open files are gone, and their writes stay. The disk itself can be used again
  /// at once, as a new process.
  package func crash() {
    state.withLock { state in
      for process in state.aliveProcesses { state.kill(process) }
      state.defaultProcess = state.nextProcess
      state.aliveProcesses = [state.nextProcess]
      state.nextProcess += 1
    }
  }

  // MARK: Faults

  /// Plans a failure.
  package func plan(_ fault: Fault) { state.withLock { $0.faults.append(fault) } }

  /// Removes all planned failures, the hooks and the limit.
  package func heal() {
    state.withLock { state in
      state.faults = []
      state.hook = nil
      state.afterHook = nil
      state.callHook = nil
      state.byteCountMax = nil
    }
  }

  /// Limits the bytes of all files together; a write beyond the limit lands in part and fails with `ENOSPC`.
  package func limit(byteCount: Int?) { state.withLock { $0.byteCountMax = byteCount } }

  /// Sets the hook that runs before every mutating call.
  package func beforeMutations(_ hook: Hook?) { state.withLock { $0.hook = hook } }

  /// Sets the hook that runs after every successful mutating call, before the caller gets its result.
  package func afterMutations(_ hook: Hook?) { state.withLock { $0.afterHook = hook } }

  /// Sets the hook that runs before every call, even one that changes nothing.
  package func beforeCalls(_ hook: Hook?) { state.withLock { $0.callHook = hook } }

  /// Makes every call of every process wait for its turn.
  package func schedule(by scheduler: Scheduler?) { state.withLock { $0.scheduler = scheduler } }

  /// Kills the process that is about to make the `number`-th mutating call, counted over the disk's lifetime.
  package func stop(beforeMutation number: Int) {
    beforeMutations { (call) throws(BlobStorageError) in
      if call.mutationNumber == number { throw .simulatedStop }
    }
  }

  /// The last calls, for messages.
  package var calls: [CallRecord] { state.withLock { $0.calls } }
  /// The number of mutating calls.
  package var mutationCount: Int { state.withLock { $0.mutationCount } }
  /// The number of calls.
  package var callCount: Int { state.withLock { $0.callCount } }

  // MARK: The one way of every call

  /// Counts and logs a call, runs the hooks, then fails with a planned fault or performs the call.
  func perform<Value: Sendable>(
    _ kind: CallKind, _ process: Int, _ path: FilePath, _ detail: String = "",
    onFault: (inout State, Fault) -> Void = { _, _ in },
    _ body: (inout State) throws(SimulatedErrno) -> Value
  ) throws(BlobStorageError) -> Value {
    let detail = "\(path.string) \(detail)"
    // A dead process fails without waiting for a turn.
    let scheduler = state.withLock { $0.aliveProcesses.contains(process) ? $0.scheduler : nil }
    scheduler?.waitForTurn()
    let (call, fault, hooks) = try state.withLock { (state) throws(BlobStorageError) in
      guard state.aliveProcesses.contains(process) else { throw .simulatedStop }
      let call = state.log(kind, process, detail)
      let fault = kind.canFail ? state.consumeFault(kind, path.string) : nil
      return (call, fault, [state.callHook, kind.isMutating ? state.hook : nil])
    }
    for hook in hooks { try run(hook, call) }
    let outcome = state.withLock { (state) -> Result<Value, BlobStorageError> in
      guard state.aliveProcesses.contains(process) else { return .failure(.simulatedStop) }
      do throws(SimulatedErrno) {
        if let fault {
          onFault(&state, fault)
          throw SimulatedErrno(fault.errno)
        }
        return .success(try body(&state))
      } catch {
        return .failure(.systemCall("\(kind.rawValue) (simulated)", path: path, errno: error.errno))
      }
    }
    let value = try outcome.get()
    if kind.isMutating { try run(state.withLock { $0.afterHook }, call) }
    return value
  }

  private func run(_ hook: Hook?, _ call: CallRecord) throws(BlobStorageError) {
    guard let hook else { return }
    do throws(BlobStorageError) { try hook(call) } catch {
      if error.code == .simulatedStop { state.withLock { $0.kill(call.process) } }
      throw error
    }
  }
}

extension SimulatedDisk.State {
  mutating func log(_ kind: CallKind, _ process: Int, _ detail: String) -> CallRecord {
    callCount += 1
    if kind.isMutating { mutationCount += 1 }
    let record = CallRecord(
      number: callCount, mutationNumber: kind.isMutating ? mutationCount : nil, process: process, kind: kind,
      detail: detail)
    if calls.count >= SimulatedDisk.callLogCountMax { calls.removeFirst(calls.count / 2) }
    calls.append(record)
    return record
  }

  /// Counts the call against all planned faults, and returns the first that is due.
  fileprivate mutating func consumeFault(_ kind: CallKind, _ path: String) -> Fault? {
    var due: Fault?
    for index in faults.indices where faults[index].isFor(kind, path) {
      if faults[index].count > 1 {
        faults[index].count -= 1
      } else if due == nil {
        due = faults[index]
        if !faults[index].isPermanent { faults[index].count = 0 }
      }
    }
    faults.removeAll { $0.count == 0 }
    return due
  }

  mutating func kill(_ process: Int) {
    aliveProcesses.remove(process)
    for (number, handle) in handles where handle.process == process { closeHandle(number) }
    wakeWaiters()
  }

  mutating func closeHandle(_ number: Int) {
    guard let handle = handles.removeValue(forKey: number) else { return }
    if locks[handle.node]?.removeValue(forKey: number) != nil { wakeWaiters() }
  }

  mutating func wakeWaiters() {
    for waiter in waiters { waiter.signal() }
    waiters = []
    scheduler?.wake()
  }

  /// A time that advances with every mutating call, so that runs can be repeated.
  var now: FileTime { FileTime(seconds: 1_000_000 + Int64(mutationCount), nanoseconds: 0) }

  /// Bytes that can still be written.
  var freeByteCount: Int {
    guard let byteCountMax else { return .max }
    let used = image.reachable().union(handles.values.map(\.node))
    return byteCountMax - used.reduce(0) { $0 + (image.nodes[$1]?.live.count ?? 0) }
  }
}

extension SimulatedDisk {
  package var system: SimulatedProcess {
    SimulatedProcess(disk: self, number: state.withLock { $0.defaultProcess })
  }

  package func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    try system.open(path, intent)
  }
}

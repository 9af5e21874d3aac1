import BlobStorage
import Logging
import Synchronization
import SystemPackage

/// The core of a cache that continues when its folder is removed or exchanged: systems delete the folders of caches
/// while programs run.
///
/// Each call first looks whether the path still leads to the store that was opened. If not, the cache opens or creates
/// the store there and runs the call on it. A call that fails meanwhile is repeated. That holds for a cache that is a
/// whole store: if other keys were lost too, an empty store must not take their place in silence.
final class OpenedCache: Sendable {
  let store: BlobStore
  private let memoryByteLimit: Int
  private let state: Mutex<State>
  private let ended = Atomic<Bool>(false)
  /// One thread starts again at a time.
  private let turn = IOLock<Void>(())

  private struct State: Sendable {
    var core: CacheCore
    /// The file `store` when it was found to be that of the opened store.
    var header: FileStatus?
    /// Why the cache could not start again, and when.
    var failure: (error: BlobStorageError, time: ContinuousClock.Instant)?
  }

  private static let attemptCount = 3

  init(store: BlobStore, core: CacheCore, memoryByteLimit: Int) {
    self.store = store
    self.memoryByteLimit = memoryByteLimit
    state = Mutex(State(core: core))
    endWithStore(core)
  }

  deinit { core.engine.closingHooks.withLock { hooks in hooks[ObjectIdentifier(self)] = nil } }

  var core: CacheCore { state.withLock { $0.core } }

  func checkOpen() throws(BlobStorageError) {
    if ended.load(ordering: .acquiring) { throw BlobStorageError(.closed, "The cache was closed.") }
  }

  func close() throws(BlobStorageError) {
    let core = core
    if ended.load(ordering: .acquiring) || hasFolder(core) { return try core.engine.close() }
    ended.store(true, ordering: .releasing)
    core.memory.removeAll()
    core.engine.abandon()
  }

  /// A cache whose store is closed does not start again.
  private func endWithStore(_ core: CacheCore) {
    core.engine.closingHooks.withLock { hooks in
      hooks[ObjectIdentifier(self)] = { [weak self] in self?.ended.store(true, ordering: .releasing) }
    }
  }

  /// Runs an operation, on a new core if the folder of the last one is gone.
  ///
  /// - Parameter fallback: the result if the folder is gone and the cache cannot start again: it has no value.
  func perform<T>(
    ifLost fallback: (() -> T)? = nil, _ body: (CacheCore) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    for _ in 0..<Self.attemptCount {
      let core = core
      do throws(BlobStorageError) {
        if hasFolder(core) { return try body(core) }
      } catch {
        guard isLost(core, error) else { throw error }
      }
      do throws(BlobStorageError) { try startAgain(insteadOf: core) } catch {
        guard let fallback else { throw error }
        return fallback()
      }
    }
    guard let fallback else { return try body(core) }
    return fallback()
  }

  private func isLost(_ core: CacheCore, _ error: BlobStorageError) -> Bool {
    guard core.prefix.isEmpty, !ended.load(ordering: .acquiring) else { return false }
    // A store that finds another folder in its place ends by itself; or another call has started again.
    if error.code == .closed || error.code == .noStore || !hasFolder(core) { return true }
    // A folder that is being deleted loses its files one after the other. Without its limits, the store looks like one
    // that is no cache any more.
    guard error.code == .invalidArgument, isWithoutLimits(core) else { return false }
    do throws(BlobStorageError) {
      return try PassingTime.system.retry(withinSeconds: 1, pauseSeconds: 0.005...0.02) {
        () throws(BlobStorageError) in !hasFolder(core)
      }
    } catch { return false }
  }

  private func isWithoutLimits(_ core: CacheCore) -> Bool {
    let files = core.engine.environment.files
    let folder = StoreFolder(core.engine.folder.path, files: files)
    do throws(BlobStorageError) { return try files.status(of: folder.cache) == nil } catch { return false }
  }

  /// Whether the path still leads to the store that was opened. True if the cache may not start again.
  ///
  /// - Complexity: one system call.
  private func hasFolder(_ core: CacheCore) -> Bool {
    guard core.prefix.isEmpty, !ended.load(ordering: .acquiring) else { return true }
    let files = core.engine.environment.files
    let folder = StoreFolder(core.engine.folder.path, files: files)
    do throws(BlobStorageError) {
      guard let status = try files.status(of: folder.header) else { return false }
      let known = state.withLock { $0.core === core ? $0.header : nil }
      if let known, known.identity == status.identity, known.changed == status.changed { return true }
      guard try folder.readHeader().storeID == core.engine.header.storeID else { return false }
      state.withLock { if $0.core === core { $0.header = status } }
      return true
    } catch {
      // A file or a pipe is in its place.
      if error.errno == Errno.notDirectory.rawValue { return false }
      // A folder that cannot be looked at is not gone: the call itself finds out.
      return error.code != .noStore && error.code != .notAStore
    }
  }

  /// Opens or creates the store at the path of the last one. Calls that have lost the same core wait for one of them.
  ///
  /// - Throws: why the cache cannot start again, at most once a second.
  private func startAgain(insteadOf lost: CacheCore) throws(BlobStorageError) {
    try turn.withLock { (_) throws(BlobStorageError) in
      try checkOpen()
      guard core === lost else { return }
      if let failure = state.withLock({ $0.failure }), failure.time.duration(to: .now) < .seconds(1) {
        throw failure.error
      }
      do throws(BlobStorageError) {
        let core = try opened(insteadOf: lost)
        endWithStore(core)
        state.withLock { $0 = State(core: core) }
        core.engine.logger.notice(
          "The cache's folder was removed or exchanged: the cache starts again there.",
          metadata: ["path": "\(core.engine.folder.path)"])
      } catch {
        state.withLock { $0.failure = (error, .now) }
        lost.engine.logger.warning(
          "The cache's folder was removed or exchanged, and the cache cannot start again there.",
          metadata: ["reason": "\(error.message)"])
        throw error
      }
    }
  }

  private func opened(insteadOf lost: CacheCore) throws(BlobStorageError) -> CacheCore {
    let (path, environment) = (lost.engine.folder.path, lost.engine.environment)
    let limits = lost.limits
    do throws(BlobStorageError) {
      try Engine.create(at: path.string, options: limits.storeOptions, environment: environment)
    } catch {
      guard error.code == .storeExists else { throw error }
    }
    var engine = try store.reopen(abandoning: lost.engine)
    // Another cache on the store may have started again before, in a folder that is gone, too.
    if try StoreFolder(path, files: environment.files).readHeader().storeID != engine.header.storeID {
      engine = try store.reopen(abandoning: engine)
    }
    // The limits of a cache that another process has created there hold for this one, too.
    let isCache = try unlessCorrupted(try engine.cacheSettings()) ?? nil != nil
    return try CacheCore(
      engine: engine, prefix: "", limits: isCache ? nil : limits, memoryByteLimit: memoryByteLimit,
      durability: lost.durability, takesKeys: false)
  }
}

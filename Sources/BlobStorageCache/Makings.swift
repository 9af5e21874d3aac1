import BlobStorage
import Foundation
import Synchronization

/// The values of a cache that are being made, or were made and are being stored: at most one for each key and type.
///
/// A making runs in a task of its own. Callers wait for it in continuations, so that a cancelled one leaves at once. The
/// last that leaves cancels the task. A making is *found* by later callers until its value is stored, or until its key
/// is set or removed; those who wait for it get its value in any case.
final class Makings: Sendable {
  /// Names a making or a waiting caller.
  typealias Number = Int
  /// The result of `make`.
  typealias Outcome = Result<any Sendable, any Error>

  private struct Making: Sendable {
    let key: [UInt8]
    let type: ObjectIdentifier
    let identity: MakingIdentity
    var waiters: [Number: CheckedContinuation<any Sendable, any Error>] = [:]
    /// Whether it continues without a waiter.
    var isKept = false
    var task: Task<Void, Never>?
    var outcome: Outcome?
    /// The bytes while they are being stored.
    var data: Data?
  }

  private struct State: Sendable {
    var makings: [Number: Making] = [:]
    /// The makings that later callers find. By the keys' bytes: as strings, composed and decomposed letters would be
    /// equal.
    var found: [[UInt8]: [Number]] = [:]
    /// The makings that callers wait for.
    var makingsOfWaiters: [Number: Number] = [:]
    /// How many makings have ended.
    var endCount = 0
    /// Bytes that are being stored.
    var storingByteCount = 0
    var storingCount = 0
    var waitingForRoom: [CheckedContinuation<Void, Never>] = []
    var waitingForStoring: [CheckedContinuation<Void, Never>] = []

    mutating func hide(_ number: Number) {
      guard let key = makings[number]?.key else { return }
      found[key]?.removeAll { $0 == number }
      if found[key]?.isEmpty == true { found[key] = nil }
    }
  }

  private let state = Mutex(State())
  private static let lastNumber = Atomic<Number>(0)
  /// No making begins while more bytes than this are being stored.
  private let storingByteCountMax: Int

  init(storingByteCountMax: Int) { self.storingByteCountMax = storingByteCountMax }

  private static func next() -> Number { lastNumber.add(1, ordering: .relaxed).newValue }

  /// How many makings have ended. If it has not changed since a lookup, none has stored a value since.
  var endCount: Int { state.withLock { $0.endCount } }

  var waiterCount: Int { state.withLock { $0.makingsOfWaiters.count } }

  // MARK: Waiting

  /// Waits for the value of a key that is being made, or begins to make it.
  ///
  /// - Parameters:
  ///   - begin: called with the number of a new making; its task makes and stores the value.
  /// - Throws: the error of the making, `CancellationError`, or `invalidArgument` if the making would wait for itself.
  func value<Value: Sendable>(
    _ type: Value.Type, of key: [UInt8], _ name: MakingIdentity.Name, isKept: Bool,
    begin: @escaping @Sendable (Number, MakingIdentity) -> Task<Void, Never>
  ) async throws -> Value {
    let waiter = Self.next()
    let value: any Sendable = try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        join(waiter, continuation, ObjectIdentifier(type), key, name, isKept: isKept, begin: begin)
      }
    } onCancel: {
      leave(waiter)
    }
    guard let value = value as? Value else {
      preconditionFailure("a making has the type that it is found by")
    }
    return value
  }

  /// Adds a waiter to a making, or begins one.
  private func join(
    _ waiter: Number, _ continuation: CheckedContinuation<any Sendable, any Error>, _ type: ObjectIdentifier,
    _ key: [UInt8], _ name: MakingIdentity.Name, isKept: Bool,
    begin: (Number, MakingIdentity) -> Task<Void, Never>
  ) {
    var new: (number: Number, identity: MakingIdentity)?
    let outcome: Outcome? = state.withLock { state in
      // The handler of a later cancellation finds the waiter.
      if Task.isCancelled { return .failure(CancellationError()) }
      let known = state.found[key]?.first { state.makings[$0]?.type == type }
      if let known, let outcome = state.makings[known]?.outcome { return outcome }
      let identity = known.flatMap { state.makings[$0]?.identity } ?? MakingIdentity(name)
      do throws(BlobStorageError) { try identity.beginWait(waiter) } catch { return .failure(error) }
      let number = known ?? Self.next()
      if known == nil {
        state.makings[number] = Making(key: key, type: type, identity: identity)
        state.found[key, default: []].append(number)
        new = (number, identity)
      }
      state.makings[number]?.waiters[waiter] = continuation
      state.makingsOfWaiters[waiter] = number
      if isKept { state.makings[number]?.isKept = true }
      return nil
    }
    if let outcome { return continuation.resume(with: outcome) }
    guard let new else { return }
    let task = begin(new.number, new.identity)
    let isAbandoned = state.withLock { state in
      state.makings[new.number]?.task = task
      return state.makings[new.number] == nil
    }
    // The only waiter has left meanwhile, or the making has ended.
    if isAbandoned { task.cancel() }
  }

  /// Ends the wait of a cancelled caller, and the making if it was the last.
  private func leave(_ waiter: Number) {
    let (continuation, task) = state.withLock { state in
      guard let number = state.makingsOfWaiters.removeValue(forKey: waiter),
        let continuation = state.makings[number]?.waiters.removeValue(forKey: waiter)
      else { return (CheckedContinuation<any Sendable, any Error>?.none, Task<Void, Never>?.none) }
      guard let making = state.makings[number], making.waiters.isEmpty, !making.isKept else {
        return (continuation, nil)
      }
      state.hide(number)
      state.makings[number] = nil
      making.identity.end()
      return (continuation, making.task)
    }
    MakingIdentity.endWait(waiter)
    task?.cancel()
    continuation?.resume(throwing: CancellationError())
  }

  // MARK: Making

  /// Waits until not too many bytes are being stored.
  func waitForRoom() async {
    await withCheckedContinuation { continuation in
      let isRoom = state.withLock { state in
        guard state.storingByteCount > storingByteCountMax else { return true }
        state.waitingForRoom.append(continuation)
        return false
      }
      if isRoom { continuation.resume() }
    }
  }

  /// Gives the outcome to all who wait.
  ///
  /// - Parameter data: the bytes to be stored, if there are any.
  /// - Returns: whether to store them and call ``endStoring(_:)``: false if the key was set or removed meanwhile, or
  ///   all waiters have left.
  func finish(_ number: Number, _ outcome: Outcome, data: Data? = nil) -> Bool {
    let (waiters, isToStore) = state.withLock { state in
      guard var making = state.makings[number] else {
        return ([Number: CheckedContinuation<any Sendable, any Error>](), false)
      }
      let waiters = making.waiters
      making.waiters = [:]
      for waiter in waiters.keys { state.makingsOfWaiters[waiter] = nil }
      making.outcome = outcome
      making.identity.end()
      let isFound = state.found[making.key]?.contains(number) ?? false
      if isFound, let data {
        making.data = data
        state.makings[number] = making
        state.storingByteCount += data.count
        state.storingCount += 1
        return (waiters, true)
      }
      state.hide(number)
      state.makings[number] = nil
      state.endCount += 1
      return (waiters, false)
    }
    for (waiter, continuation) in waiters {
      MakingIdentity.endWait(waiter)
      continuation.resume(with: outcome)
    }
    return isToStore
  }

  /// Ends a making whose value was stored, or cannot be stored.
  func endStoring(_ number: Number) {
    let waiting = state.withLock { state in
      state.hide(number)
      state.endCount += 1
      state.storingCount -= 1
      state.storingByteCount -= state.makings.removeValue(forKey: number)?.data?.count ?? 0
      var waiting: [CheckedContinuation<Void, Never>] = []
      if state.storingByteCount <= storingByteCountMax { swap(&waiting, &state.waitingForRoom) }
      if state.storingCount == 0 {
        waiting += state.waitingForStoring
        state.waitingForStoring = []
      }
      return waiting
    }
    for continuation in waiting { continuation.resume() }
  }

  /// Waits until the values that were made are stored.
  func waitForStoring() async {
    await withCheckedContinuation { continuation in
      let isDone = state.withLock { state in
        guard state.storingCount > 0 else { return true }
        state.waitingForStoring.append(continuation)
        return false
      }
      if isDone { continuation.resume() }
    }
  }

  /// The bytes of a key that are being stored.
  func dataBeingStored(_ key: String) -> Data? {
    state.withLock { state in
      guard state.storingCount > 0, let numbers = state.found[Array(key.utf8)] else { return nil }
      for number in numbers { if let data = state.makings[number]?.data { return data } }
      return nil
    }
  }

  /// Whether the key was neither set nor removed since its value is being made.
  func isFound(_ number: Number) -> Bool {
    state.withLock { state in
      state.makings[number].flatMap { state.found[$0.key] }?.contains(number) ?? false
    }
  }

  // MARK: Changes of keys

  /// Keeps the values that are being made for these keys from being stored. Comes before the change of the keys.
  func outdate(_ keys: [String]) {
    state.withLock { state in
      guard !state.found.isEmpty else { return }
      for key in keys { state.found[Array(key.utf8)] = nil }
    }
  }

  func outdate(prefix: KeyPrefix) {
    state.withLock { state in
      state.found = state.found.filter { !prefix.contains($0.key) }
    }
  }
}

/// A making as those see it that it may wait for: a value whose making waits for itself would never be made.
///
/// Each wait inside `make` is an edge from its making to the one that it waits for, among all caches of the process.
final class MakingIdentity: Sendable {
  /// A key of a store. All caches on a folder share it.
  struct Name: Hashable, Sendable {
    var folder: String
    var key: [UInt8]
  }

  /// The makings that the current task works for, the innermost last.
  @TaskLocal static var chain: [MakingIdentity] = []
  private static let waits = Mutex<[Makings.Number: (from: MakingIdentity, to: MakingIdentity)]>([:])

  private let name: Name
  private let hasEnded = Atomic<Bool>(false)

  init(_ name: Name) { self.name = name }

  func end() { hasEnded.store(true, ordering: .relaxed) }

  /// Notes that the current task is going to wait for this making.
  ///
  /// - Throws: `invalidArgument` if that making works for this one, or waits for it.
  func beginWait(_ waiter: Makings.Number) throws(BlobStorageError) {
    let chain = Self.chain.filter { !$0.hasEnded.load(ordering: .relaxed) }
    guard let last = chain.last else { return }
    let isCircle = Self.waits.withLock { waits in
      if chain.contains(where: { $0.name == name }) { return true }
      var reached: [MakingIdentity] = [self]
      var index = 0
      while index < reached.count {
        for wait in waits.values where wait.from === reached[index] {
          if wait.to === last { return true }
          if !reached.contains(where: { $0 === wait.to }) { reached.append(wait.to) }
        }
        index += 1
      }
      waits[waiter] = (last, self)
      return false
    }
    guard isCircle else { return }
    let key = String(decoding: name.key, as: UTF8.self)
    throw BlobStorageError(
      .invalidArgument,
      "The value of “\(key)” is being made and needs itself: let `make` ask only for keys that do not need this one.",
      key: key)
  }

  static func endWait(_ waiter: Makings.Number) { waits.withLock { $0[waiter] = nil } }
}

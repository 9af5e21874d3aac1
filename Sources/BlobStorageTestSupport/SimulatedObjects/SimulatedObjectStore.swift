import BlobStorage
import BlobStorageSharing
import Synchronization

/// A linearizable object store in memory, whose faults a seed decides. See ``ObjectFaults``.
///
/// It is the S3 service and all its clients in one; ``client(beforeCall:)`` makes a client that can be stopped or
/// killed by itself. Runs that make the same calls in the same order have the same faults.
package final class SimulatedObjectStore: ObjectStore {
  private struct Late: Sendable {
    var due: Int
    var name: String
    /// Nil for a delete.
    var bytes: [UInt8]?
    var ifAbsent: Bool
  }

  private struct State: Sendable {
    var random: SplitMix64
    var faults: ObjectFaults
    var objects: [String: [UInt8]] = [:]
    /// Every name in order; names in ASCII are in byte order.
    var names: [String] = []
    var late: [Late] = []
    var requestCount = 0
    var counts: [ObjectCallKind: Int] = [:]
    var readByteCount = 0
    var hook: Hook?
  }

  /// Runs before each request. If it throws, the call fails with that error and does nothing.
  package typealias Hook = @Sendable (ObjectCall) throws(BlobStorageError) -> Void

  private let state: Mutex<State>

  package init(seed: UInt64 = 1, faults: ObjectFaults = ObjectFaults()) {
    state = Mutex(State(random: SplitMix64(seed: seed), faults: faults))
  }

  // MARK: What tests see and set

  /// Requests made so far, by kind.
  package var counts: [ObjectCallKind: Int] { state.withLock { $0.counts } }
  package var requestCount: Int { state.withLock { $0.requestCount } }
  package var readByteCount: Int { state.withLock { $0.readByteCount } }

  package var faults: ObjectFaults {
    get { state.withLock { $0.faults } }
    set { state.withLock { $0.faults = newValue } }
  }

  /// Runs before each request of clients that have no hook of their own.
  package func setHook(_ hook: Hook?) { state.withLock { $0.hook = hook } }

  /// All objects, without a request.
  package var objects: [String: [UInt8]] { state.withLock { $0.objects } }

  /// One object, without a request.
  package func peek(_ name: String) -> [UInt8]? { state.withLock { $0.objects[name] } }

  /// Puts or removes an object without any client's knowledge.
  package func set(_ name: String, _ bytes: [UInt8]?) { state.withLock { Self.store(name, bytes, &$0) } }

  /// Performs all late requests now.
  package func settle() {
    state.withLock { state in
      for late in state.late { Self.land(late, &state) }
      state.late = []
    }
  }

  /// A copy of the objects, without late requests and without faults.
  package func copy() -> SimulatedObjectStore {
    let other = SimulatedObjectStore()
    let (objects, names) = state.withLock { ($0.objects, $0.names) }
    other.state.withLock {
      $0.objects = objects
      $0.names = names
    }
    return other
  }

  /// Another client of the same objects, with a hook of its own before each of its requests.
  package func client(beforeCall hook: @escaping Hook) -> SimulatedClient {
    SimulatedClient(store: self, hook: hook)
  }

  // MARK: Calls

  package func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome { try put(name, content, ifAbsent: ifAbsent, ownHook) }

  package func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]? {
    try get(name, range, ownHook)
  }

  package func tail(
    _ name: String, byteCount: Int
  ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? { try tail(name, byteCount, ownHook) }

  package func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage {
    try list(prefix, after: name, ownHook)
  }

  package func delete(_ name: String) throws(BlobStorageError) { try delete(name, ownHook) }

  private var ownHook: Hook? { state.withLock { $0.hook } }

  func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool, _ hook: Hook?
  ) throws(BlobStorageError) -> ObjectPutOutcome {
    let bytes = try content.whole()
    return try attempt(.put, name, hook) { (state) throws(BlobStorageError) in
      if Self.happens(state.faults.latePuts, &state) {
        Self.later(name, bytes, ifAbsent: ifAbsent, &state)
        return nil
      }
      if Self.happens(state.faults.doubledPuts, &state) {
        Self.later(name, bytes, ifAbsent: ifAbsent, &state)
      }
      if ifAbsent, state.objects[name] != nil { return .exists }
      if !(ifAbsent && state.faults.ignoresIfAbsent) { Self.store(name, bytes, &state) }
      return .stored
    } finish: { (outcome, state) in
      // Simulates a service that checked before others stored, and stores nevertheless.
      if outcome == .stored, ifAbsent, state.faults.ignoresIfAbsent { Self.store(name, bytes, &state) }
    }
  }

  func get(_ name: String, _ range: Range<Int64>, _ hook: Hook?) throws(BlobStorageError) -> [UInt8]? {
    precondition(range.lowerBound >= 0 && !range.isEmpty)
    return try attempt(.get, name, hook) { (state) throws(BlobStorageError) in
      guard let object = state.objects[name] else { return .some(nil) }
      let part = Array(object.dropFirst(Int(range.lowerBound)).prefix(range.count))
      state.readByteCount += part.count
      return .some(part)
    }
  }

  func tail(
    _ name: String, _ byteCount: Int, _ hook: Hook?
  ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? {
    precondition(byteCount > 0)
    return try attempt(.tail, name, hook) { (state) throws(BlobStorageError) in
      guard let object = state.objects[name] else { return .some(nil) }
      let part = Array(object.suffix(byteCount))
      state.readByteCount += part.count
      return .some((part, Int64(object.count)))
    }
  }

  func list(_ prefix: String, after name: String?, _ hook: Hook?) throws(BlobStorageError) -> ObjectPage {
    try attempt(.list, prefix, hook) { (state) throws(BlobStorageError) in
      var entries: [ObjectPage.Entry] = []
      let first = max(prefix, name ?? "")
      for candidate in state.names[Self.index(of: first, state.names)...] {
        guard candidate.hasPrefix(prefix) else { break }
        if candidate == name { continue }
        if entries.count == state.faults.pageCount { return ObjectPage(entries: entries, isTruncated: true) }
        entries.append(.init(name: candidate, byteCount: Int64(state.objects[candidate]?.count ?? 0)))
      }
      return ObjectPage(entries: entries, isTruncated: false)
    }
  }

  func delete(_ name: String, _ hook: Hook?) throws(BlobStorageError) {
    try attempt(.delete, name, hook) { (state) throws(BlobStorageError) -> Void? in
      if Self.happens(state.faults.lateDeletes, &state) {
        Self.later(name, nil, ifAbsent: false, &state)
        return nil
      }
      if Self.happens(state.faults.doubledDeletes, &state) { Self.later(name, nil, ifAbsent: false, &state) }
      Self.store(name, nil, &state)
      return ()
    }
  }

  // MARK: Inside

  /// Repeats a call as often as a client does. `body` returns nil if no answer comes.
  private func attempt<T: Sendable>(
    _ kind: ObjectCallKind, _ name: String, _ hook: Hook?,
    _ body: (inout State) throws(BlobStorageError) -> T?,
    finish: ((T, inout State) -> Void)? = nil
  ) throws(BlobStorageError) -> T {
    var number = 0
    while true {
      number += 1
      let call = ObjectCall(kind: kind, name: name, attempt: number)
      try hook?(call)
      let (answer, isLast) = try state.withLock { (state) throws(BlobStorageError) -> (T?, Bool) in
        state.requestCount += 1
        state.counts[kind, default: 0] += 1
        Self.landDue(&state)
        let isLast = number >= state.faults.attemptCountMax
        if Self.happens(state.faults.failures, &state) { return (nil, isLast) }
        guard let answer = try body(&state) else { return (nil, isLast) }
        return (answer, isLast)
      }
      if let answer {
        if let finish, faults.ignoresIfAbsent {
          // Others run between the check and the store.
          try hook?(call)
          state.withLock { finish(answer, &$0) }
        }
        let isAnswered = state.withLock { !Self.happens($0.faults.lostAnswers, &$0) }
        if isAnswered { return answer }
      }
      if isLast { throw BlobStorageError(.io, "The object store did not answer: \(call).", path: name) }
    }
  }

  private static func happens(_ share: Int, _ state: inout State) -> Bool {
    share > 0 && Int.random(in: 0..<1_000, using: &state.random) < share
  }

  private static func later(_ name: String, _ bytes: [UInt8]?, ifAbsent: Bool, _ state: inout State) {
    let distance = Int.random(in: 1...max(1, state.faults.lateCallCountMax), using: &state.random)
    state.late.append(
      Late(due: state.requestCount + distance, name: name, bytes: bytes, ifAbsent: ifAbsent))
  }

  private static func landDue(_ state: inout State) {
    guard !state.late.isEmpty else { return }
    let due = state.late.filter { $0.due <= state.requestCount }
    state.late.removeAll { $0.due <= state.requestCount }
    for late in due { land(late, &state) }
  }

  private static func land(_ late: Late, _ state: inout State) {
    if late.ifAbsent, state.objects[late.name] != nil, !state.faults.ignoresIfAbsent { return }
    store(late.name, late.bytes, &state)
  }

  private static func store(_ name: String, _ bytes: [UInt8]?, _ state: inout State) {
    let index = index(of: name, state.names)
    let isThere = index < state.names.count && state.names[index] == name
    if bytes != nil, !isThere { state.names.insert(name, at: index) }
    if bytes == nil, isThere { state.names.remove(at: index) }
    state.objects[name] = bytes
  }

  /// The first name that is `name` or comes after it.
  private static func index(of name: String, _ names: [String]) -> Int {
    var low = 0
    var high = names.count
    while low < high {
      let middle = (low + high) / 2
      if names[middle] < name { low = middle + 1 } else { high = middle }
    }
    return low
  }
}

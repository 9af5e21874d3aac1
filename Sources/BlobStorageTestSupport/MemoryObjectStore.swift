import BlobStorage
import BlobStorageSharing
import Synchronization

/// Objects in memory. Answers requests at once, counts them, and fails as a test says.
package final class MemoryObjectStore: ObjectStore {
  /// How a put fails.
  package enum Trouble: Sendable {
    /// It did not arrive.
    case refused
    /// It was done, and the answer was lost.
    case answerLost
    /// It was done twice, as by a client that asks again after a lost answer.
    case doubled
  }

  private struct State: Sendable {
    var objects: [String: [UInt8]] = [:]
    var counts: [String: Int] = [:]
    var gotByteCount = 0
    var putTroubles: [Trouble] = []
    var isDown = false
    var longestGetByteCount = 0
    var afterPage: (prefix: String, body: @Sendable (MemoryObjectStore) -> Void)?
    var beforeRequest: Hook?
    var hidden: Set<String> = []
  }

  /// Called before a request with its kind (put, get, tail, list, delete) and its name.
  package typealias Hook = @Sendable (_ request: String, _ name: String) -> Void

  private let state = Mutex(State())
  private let pageCount: Int

  /// - Parameter pageCount: the number of entries in a page of a listing.
  package init(pageCount: Int = 1_000) { self.pageCount = pageCount }

  package var place: String { "memory://objects" }

  // MARK: For tests

  package var names: [String] { state.withLock { $0.objects.keys.sorted() } }
  package var objects: [String: [UInt8]] {
    get { state.withLock { $0.objects } }
    set { state.withLock { $0.objects = newValue } }
  }

  /// The number of requests of a kind (put, get, tail, list, delete) since the last call of ``forgetCounts()``.
  package func count(of request: String) -> Int { state.withLock { $0.counts[request] ?? 0 } }
  /// The number of all requests.
  package var count: Int { state.withLock { $0.counts.values.reduce(0, +) } }
  package var gotByteCount: Int { state.withLock { $0.gotByteCount } }
  package var longestGetByteCount: Int { state.withLock { $0.longestGetByteCount } }
  package func forgetCounts() {
    state.withLock { state in
      state.counts = [:]
      state.gotByteCount = 0
    }
  }

  /// Sets how the next puts fail, one after the other.
  package func trouble(_ troubles: [Trouble]) { state.withLock { $0.putTroubles = troubles } }
  /// Runs `body` once, after the next page of a listing of that prefix.
  package func afterNextPage(of prefix: String, _ body: @escaping @Sendable (MemoryObjectStore) -> Void) {
    state.withLock { $0.afterPage = (prefix, body) }
  }
  /// Runs `hook` before each request from now on.
  package func beforeRequests(_ hook: Hook?) { state.withLock { $0.beforeRequest = hook } }
  /// Hides objects from reads, and not from listings.
  package func hide(_ names: Set<String>) { state.withLock { $0.hidden = names } }
  package func setDown(_ isDown: Bool) { state.withLock { $0.isDown = isDown } }

  // MARK: Requests

  private func request<T: Sendable>(
    _ name: String, _ object: String, _ body: (inout State) -> T
  ) throws(BlobStorageError) -> T {
    state.withLock { $0.beforeRequest }?(name, object)
    let result = state.withLock { state -> T? in
      state.counts[name, default: 0] += 1
      return state.isDown ? nil : body(&state)
    }
    guard let result else { throw Self.failure }
    return result
  }

  private static var failure: BlobStorageError { BlobStorageError(.io, "The object store does not answer.") }

  package func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome {
    let bytes = try content.whole()
    func store(_ state: inout State) -> ObjectPutOutcome {
      if ifAbsent, state.objects[name] != nil { return .exists }
      state.objects[name] = bytes
      return .stored
    }
    let outcome = try request("put", name) { state -> ObjectPutOutcome? in
      switch state.putTroubles.isEmpty ? nil : state.putTroubles.removeFirst() {
      case nil: return store(&state)
      case .refused: return nil
      case .answerLost:
        _ = store(&state)
        return nil
      case .doubled:
        _ = store(&state)
        return store(&state)
      }
    }
    guard let outcome else { throw Self.failure }
    return outcome
  }

  package func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]? {
    try request("get", name) { state in
      guard !state.hidden.contains(name), let object = state.objects[name] else { return nil }
      let bytes = Array(object.dropFirst(Int(range.lowerBound)).prefix(range.count))
      state.gotByteCount += bytes.count
      state.longestGetByteCount = max(state.longestGetByteCount, bytes.count)
      return bytes
    }
  }

  package func tail(
    _ name: String, byteCount: Int
  ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? {
    try request("tail", name) { state in
      guard !state.hidden.contains(name), let object = state.objects[name] else { return nil }
      let bytes = Array(object.suffix(byteCount))
      state.gotByteCount += bytes.count
      return (bytes, Int64(object.count))
    }
  }

  package func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage {
    let pageCount = pageCount
    defer {
      let body = state.withLock { state in
        state.afterPage?.prefix == prefix ? state.afterPage.take()?.body : nil
      }
      body?(self)
    }
    return try request("list", prefix) { state in
      let found = state.objects.keys.filter { key in key.hasPrefix(prefix) && name.map { key > $0 } ?? true }
        .sorted()
      return ObjectPage(
        entries: found.prefix(pageCount).map {
          ObjectPage.Entry(name: $0, byteCount: Int64(state.objects[$0]?.count ?? 0))
        }, isTruncated: found.count > pageCount)
    }
  }

  package func delete(_ name: String) throws(BlobStorageError) {
    try request("delete", name) { $0.objects[name] = nil }
  }
}

extension ObjectContent {
  func whole() throws(BlobStorageError) -> [UInt8] {
    let whole = try bytes(0..<byteCount)
    guard whole.count == byteCount else {
      throw BlobStorageError(.io, "A file that was to be put is shorter than it says.")
    }
    return whole
  }
}

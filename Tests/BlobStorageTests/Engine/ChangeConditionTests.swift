import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A change under a condition")
struct ChangeConditionTests {
  private static let long: Data = {
    var random = SplitMix64(seed: 9)
    return Data(random.noise(3_000_000))
  }()

  /// Contents that take different ways through the engine.
  private static let contents = [Data("short".utf8), long, Data("streamed".utf8)]

  private static func content(_ index: Int) -> BlobContent {
    let bytes = contents[index]
    guard index == 2 else { return .data(bytes) }
    let rest = Mutex(bytes)
    return .stream({
      rest.withLock { rest in
        defer { rest = Data() }
        return rest
      }
    })
  }

  private func expectFailure(
    _ current: BlobVersion.ID?, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
  ) {
    let error = #expect(throws: BlobStorageError.self, sourceLocation: sourceLocation) { try body() }
    #expect(error?.code == .conditionFailed, sourceLocation: sourceLocation)
    #expect(error?.currentVersion == current, sourceLocation: sourceLocation)
    #expect(error?.key == "k", sourceLocation: sourceLocation)
  }

  @Test("puts, archives and deletes only what is as expected", arguments: 0..<contents.count)
  func conditions(_ index: Int) throws {
    let place = try TemporaryFolder()
    let path = place.path.appending("store").string
    let store = try BlockingBlobStore.create(at: path)
    let bytes = Self.contents[index]
    let foreign = try store.put(.data(Data("x".utf8)), forKey: "other").version.id
    expectFailure(nil) {
      try store.put(Self.content(index), forKey: "k", options: PutOptions(condition: .current(foreign)))
    }
    #expect(try store.data(forKey: "k") == nil)
    let first = try store.put(.data(Data("one".utf8)), forKey: "k", options: PutOptions(condition: .absent))
      .version
      .id
    expectFailure(first) {
      try store.put(Self.content(index), forKey: "k", options: PutOptions(condition: .absent))
    }
    expectFailure(first) {
      try store.put(Self.content(index), forKey: "k", options: PutOptions(condition: .current(foreign)))
    }
    expectFailure(first) { _ = try store.delete("k", if: .absent) }
    expectFailure(first) { _ = try store.delete("k", if: .current(foreign)) }
    #expect(try store.versions(of: "k").map(\.id) == [first])
    let options = PutOptions(replacement: .archiveCurrent, condition: .current(first))
    let second = try store.put(Self.content(index), forKey: "k", options: options).version.id
    #expect(try store.data(forKey: "k") == bytes)
    #expect(try store.versions(of: "k").map(\.id) == [second, first])
    // The version of before is not the current one any more.
    expectFailure(second) { _ = try store.put(Self.content(index), forKey: "k", options: options) }
    expectFailure(second) { _ = try store.delete("k", if: .current(first)) }
    #expect(try store.delete("k", if: .current(second)))
    #expect(try !store.delete("k", if: .absent))
    #expect(try store.data(forKey: "k") == nil)
    try store.close()
  }

  @Test("of several threads that each add one to what they have read loses no addition")
  func counter() throws {
    let place = try TemporaryFolder()
    let path = place.path.appending("store").string
    try BlockingBlobStore.create(at: path).close()
    let refusedCount = Atomic<Int>(0)
    let failures = Mutex<[String]>([])
    DispatchQueue.concurrentPerform(iterations: 4) { _ in
      do {
        // Each has the store open for itself, as a process would.
        let store = try BlockingBlobStore.open(at: path)
        var count = 0
        while count < 25 {
          let current = try store.versions(of: "k").first
          let value = try current.flatMap { try store.data(forKey: "k", version: $0.id) }
          // Replaced since it was listed.
          if current != nil, value == nil { continue }
          let next = (value.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0) + 1
          do {
            try store.put(
              .data(Data("\(next)".utf8)), forKey: "k",
              options: PutOptions(
                durability: .relaxed, condition: current.map { .current($0.id) } ?? .absent))
            count += 1
          } catch let error as BlobStorageError where error.code == .conditionFailed {
            refusedCount.add(1, ordering: .relaxed)
          }
        }
        try store.close()
      } catch { failures.withLock { $0.append("\(error)") } }
    }
    #expect(failures.withLock { $0 } == [])
    let store = try BlockingBlobStore.open(at: path)
    #expect(
      try store.data(forKey: "k") == Data("100".utf8), "\(refusedCount.load(ordering: .relaxed)) refused")
    try store.close()
  }

  @Test("as one of several changes undoes all of them when it does not hold")
  func batch() throws {
    let place = try TemporaryFolder()
    let store = try BlockingBlobStore.create(at: place.path.appending("store").string)
    func item(_ key: String, _ text: String) -> PutItem { PutItem(key: key, data: Data(text.utf8)) }
    let first = try store.apply([
      .put(item("a", "1")), .put(item("b", "2"), if: .absent), .put(item("k", "3")),
    ])
    let (b, k) = (try #require(first[1]?.version.id), try #require(first[2]?.version.id))
    for change in [BlobChange.delete("k", if: .current(b)), .put(item("k", "new"), if: .absent)] {
      expectFailure(k) {
        try store.apply([.put(item("a", "other")), .delete("b"), .put(item("c", "new")), change])
      }
      #expect(try store.keys(limit: 9).map(\.key) == ["a", "b", "k"])
      #expect(try store.data(forKey: "a") == Data("1".utf8))
    }
    let second = try store.apply([
      .put(item("a", "4"), replacement: .archiveCurrent), .delete("b", if: .current(b)), .delete("nothing"),
      .put(item("c", "5"), if: .absent),
    ])
    #expect(second.map { $0 == nil } == [false, true, true, false])
    #expect(try store.keys(limit: 9).map(\.key) == ["a", "c", "k"])
    #expect(try store.versions(of: "a").count == 2)
    #expect(try store.data(forKey: "c") == Data("5".utf8))
    let twice = #expect(throws: BlobStorageError.self) {
      try store.apply([.delete("a"), .put(item("a", "6"))])
    }
    #expect(twice?.code == .invalidArgument)
    #expect(try store.versions(of: "a").count == 2)
    try store.close()
  }

  @Test("is compared once more by the commit: what came while the content was read is not overwritten")
  func changedMeanwhile() throws {
    let place = try TemporaryFolder()
    let path = place.path.appending("store").string
    let store = try BlockingBlobStore.create(at: path)
    let other = try BlockingBlobStore.open(at: path)
    let conditions = [ChangeCondition.absent, .current(try store.put(.data(Data()), forKey: "x").version.id)]
    for (index, condition) in conditions.enumerated() {
      let key = index == 0 ? "k" : "x"
      let isFirst = Mutex(true)
      let content = BlobContent.stream({
        let isOver = isFirst.withLock { isFirst in
          defer { isFirst = false }
          return !isFirst
        }
        if isOver { return nil }
        try other.put(.data(Data("other".utf8)), forKey: key)
        return Data("mine".utf8)
      })
      let error = #expect(throws: BlobStorageError.self) {
        try store.put(content, forKey: key, options: PutOptions(condition: condition))
      }
      #expect(error?.code == .conditionFailed)
      let versions = try store.versions(of: key)
      #expect(versions.count == 1 && error?.currentVersion == versions.first?.id)
      #expect(try store.data(forKey: key) == Data("other".utf8))
    }
    try other.close()
    try store.close()
  }

  @Test("is refused before anything is read or stored for it when it does not hold to begin with")
  func refusedAtOnce() throws {
    let place = try TemporaryFolder()
    let store = try BlockingBlobStore.create(at: place.path.appending("store").string)
    let first = try store.put(.data(Data("one".utf8)), forKey: "k").version.id
    let writer = store.store.engine.writer
    let before = writer.addedByteCount
    let isRead = Mutex(false)
    let contents: [BlobContent] = [
      .stream({
        isRead.withLock { $0 = true }
        return nil
      }), .data(Self.long), .data(Self.contents[0]), .file(place.path.appending("nothing").string),
    ]
    for content in contents {
      expectFailure(first) { try store.put(content, forKey: "k", options: PutOptions(condition: .absent)) }
    }
    expectFailure(first) {
      try store.apply([.put(PutItem(key: "new", data: Self.contents[0])), .delete("k", if: .absent)])
    }
    #expect(!isRead.withLock { $0 })
    #expect(writer.addedByteCount == before)
    #expect(try store.keys(limit: 9).map(\.current.id) == [first])
    try store.close()
  }

  @Test(
    "lets one of several who delete the same version do it, and tells the others", arguments: [false, true])
  func deletedOnce(inBatch: Bool) throws {
    let place = try TemporaryFolder()
    let path = place.path.appending("store").string
    try BlockingBlobStore.create(at: path).close()
    let stores = try (0..<4).map { _ in try BlockingBlobStore.open(at: path) }
    for round in 0..<20 {
      let id = try stores[0].put(.data(Data("\(round)".utf8)), forKey: "k", options: .relaxed).version.id
      let outcomes = Mutex<[String]>([])
      DispatchQueue.concurrentPerform(iterations: stores.count) { index in
        let outcome: String
        do throws(BlobStorageError) {
          if inBatch {
            _ = try stores[index].apply([.delete("k", if: .current(id))], durability: .relaxed)
            outcome = "deleted"
          } else {
            let isDeleted = try stores[index].delete("k", if: .current(id), durability: .relaxed)
            outcome = isDeleted ? "deleted" : "nothing"
          }
        } catch { outcome = error.code == .conditionFailed ? "refused" : "\(error)" }
        outcomes.withLock { $0.append(outcome) }
      }
      #expect(outcomes.withLock { $0.sorted() } == ["deleted", "refused", "refused", "refused"])
    }
    for store in stores { try store.close() }
  }
}

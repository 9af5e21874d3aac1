import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("What is open for reading")
struct ReaderTests {
  private struct Broken: Error {}

  private let place: StorePlace
  private let store: BlobStore

  init() async throws {
    place = try StorePlace()
    store = try await place.opened()
  }

  /// Collects all garbage, and says how many chunks went.
  private func collect() async throws -> Int {
    try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).deletedChunkCount
  }

  private func expectClosed(_ body: () async throws -> Void) async {
    let error = await #expect(throws: BlobStorageError.self) { try await body() }
    #expect(error?.code == .closed)
  }

  @Test("a history has the versions of its moment until it is closed, or gone", arguments: [true, false])
  func history(isClosed: Bool) async throws {
    let texts = ["one", "two", "three"]
    for text in texts { try await store.set("k", to: Data(text.utf8), archivingCurrent: true) }
    try await store.set("other", to: Data("stays".utf8))
    var history: VersionHistory? = try await store.history(of: "k")
    #expect(history?.versions.map(\.byteCount) == [5, 3, 3])
    #expect(try await store.delete("k"))
    #expect(try await collect() == 0)
    if let history {
      for (index, text) in texts.reversed().enumerated() {
        let (data, blocking) = (
          try await history.data(at: index), try store.blocking.data(at: index, of: history)
        )
        #expect(data == Data(text.utf8))
        #expect(blocking == data)
      }
      for index in [-1, 3] {
        let error = await #expect(throws: BlobStorageError.self) { try await history.data(at: index) }
        #expect(error?.code == .invalidArgument)
      }
      if isClosed {
        history.close()
        await expectClosed { _ = try await history.data(at: 0) }
      }
    }
    let kept = isClosed ? history : nil
    history = nil
    #expect(try await collect() == 3)
    withExtendedLifetime(kept) {}
    #expect(try await store.history(of: "k").versions == [])
    try await store.close()
  }

  /// The store's engine outlives the close.
  @Test("a store that is closed keeps no chunks in memory")
  func forgotten() async throws {
    let digest = try await store.put(.data(Data(count: 10_000)), forKey: "k").version.digest
    _ = try await store.withReader(forKey: "k") { _ = try await $0.read(0..<10_000) }
    let engine = store.engine
    #expect(engine.chunks.cache.bytes(digest)?.count == 10_000)
    try await store.close()
    #expect(engine.chunks.cache.bytes(digest) == nil)
  }

  /// Fails if a store keeps each earlier engine, or an engine keeps itself.
  @Test("a store that is opened again keeps nothing of what it was before", .timeLimit(.minutes(1)))
  func earlierEngines() async throws {
    weak var earlier: Engine?
    for round in 0..<3 {
      try await store.set("k", to: Data([UInt8(round)]))
      var reader = try await store.reader(forKey: "k")
      earlier = store.engine
      try await store.reopen()
      #expect(try await store.data(forKey: "k") == Data([UInt8(round)]))
      // A reader of the earlier engine, and threads that have just used it, keep it for that long.
      withExtendedLifetime(reader) { #expect(earlier != nil) }
      reader = nil
      while earlier != nil { try await Task.sleep(for: .milliseconds(1)) }
    }
    try await store.close()
  }

  @Test("a history is closed once its store is opened again")
  func reopened() async throws {
    try await store.set("k", to: Data("one".utf8))
    let history = try await store.history(of: "k")
    try await store.reopen()
    await expectClosed { _ = try await history.data(at: 0) }
    await expectClosed { _ = try store.blocking.data(at: 0, of: history) }
    try await store.close()
  }

  @Test("a reader has what it opened until it is closed, or gone", arguments: [true, false])
  func reader(isClosed: Bool) async throws {
    var random = SplitMix64(seed: 51)
    let bytes = random.noise(300_000)
    let digest = try await store.put(.data(bytes), forKey: "k").version.digest
    var reader = try await store.reader(forKey: "k")
    #expect(reader?.digest == digest)
    #expect(reader?.byteCount == 300_000)
    #expect(try await store.delete("k"))
    #expect(try await collect() == 0)
    if let reader {
      for range in [nil, 0..<300_000, 70_001..<200_002, 299_990..<400_000] as [Range<Int64>?] {
        let streamed = Mutex(Data())
        try await reader.stream(range) { part in
          let copy = Data(part)
          streamed.withLock { $0.append(copy) }
        }
        let expected = range.map { bytes[Int($0.lowerBound)..<min(Int($0.upperBound), 300_000)] } ?? bytes
        #expect(streamed.withLock { $0 } == expected)
        guard let range else { continue }
        let read = try await reader.read(range)
        #expect(Data(read) == expected)
      }
      let failed = await #expect(throws: BlobStorageError.self) {
        try await reader.stream { _ in throw Broken() }
      }
      #expect(failed?.code == .sourceFailed)
      let own = await #expect(throws: BlobStorageError.self) {
        try await reader.stream { _ in throw BlobStorageError(.busy, "That will do.") }
      }
      #expect(own?.code == .busy)
      if isClosed {
        reader.close()
        await expectClosed { _ = try await reader.read(0..<1) }
        await expectClosed { try await reader.stream { _ in } }
      }
    }
    let kept = isClosed ? reader : nil
    reader = nil
    #expect(try await collect() > 1)
    withExtendedLifetime(kept) {}
    #expect(try await store.reader(forKey: "k") == nil)
    try await store.close()
  }

  @Test("a reader calls the handler of a read once, on its queue, with the bytes or with why there are none")
  func handler() async throws {
    try await store.put(.data(Data("some bytes".utf8)), forKey: "k")
    let reader = try #require(try await store.reader(forKey: "k"))
    let queue = DispatchQueue(label: "answers")
    // A second call of the handler ends the process.
    func answer(_ range: Range<Int64>) async -> Result<Data, BlobStorageError> {
      await withCheckedContinuation { done in
        reader.read(byteRange: range, queue: queue) { result in
          dispatchPrecondition(condition: .onQueue(queue))
          done.resume(returning: result.map { Data($0) })
        }
      }
    }
    #expect(try await answer(5..<99).get() == Data("bytes".utf8))
    func code(_ range: Range<Int64>) async -> BlobStorageError.Code? {
      guard case .failure(let error) = await answer(range) else { return nil }
      return error.code
    }
    #expect(await code(11..<12) == .invalidArgument)
    reader.close()
    #expect(await code(0..<1) == .closed)
    try await store.close()
  }

  @Test("a version is found by its ID under its own key, for as long as it is kept")
  func versions() async throws {
    let first = try await store.set("k", to: Data("one".utf8), archivingCurrent: true).version
    let second = try await store.set("k", to: Data("two".utf8), archivingCurrent: true).version
    let other = try await store.set("other", to: Data("three".utf8)).version
    #expect(try await store.currentVersion(of: "k") == second)
    #expect(try await store.version(first.id, of: "k") == first)
    #expect(try await store.data(forKey: "k", version: first.id) == Data("one".utf8))
    let reader = try #require(try await store.reader(forKey: "k", version: first.id))
    #expect(reader.digest == first.digest)
    reader.close()
    for (key, id) in [("k", other.id), ("other", first.id), ("nothing", first.id)] {
      #expect(try await store.version(id, of: key) == nil)
      #expect(try await store.data(forKey: key, version: id) == nil)
      #expect(try await store.reader(forKey: key, version: id) == nil)
    }
    #expect(try await store.currentVersion(of: "nothing") == nil)
    #expect(try await store.versions(of: "nothing") == [])
    // Only the current one is replaced.
    let third = try await store.set("k", to: Data("four".utf8)).version
    #expect(try await store.data(forKey: "k", version: second.id) == nil)
    #expect(try await store.versions(of: "k") == [third, first])
    #expect(try await store.keep(upTo: 0, of: "k").droppedVersionCount == 1)
    #expect(try await store.version(first.id, of: "k") == nil)
    #expect(try await store.data(forKey: "k") == Data("four".utf8))
    // Texts are in the order of the versions, and JSON has them.
    let ids = [first.id, second.id, third.id]
    #expect(ids.map(\.description) == ids.map(\.description).sorted())
    let json = try JSONEncoder().encode(ids)
    #expect(try JSONDecoder().decode([String].self, from: json) == ids.map(\.description))
    #expect(try JSONDecoder().decode([BlobVersion.ID].self, from: json) == ids)
    #expect(throws: DecodingError.self) {
      try JSONDecoder().decode([BlobVersion.ID].self, from: Data(#"["0123"]"#.utf8))
    }
    try await store.close()
  }

  @Test("a blob is found by its digest, no other is, and one of another kind is refused")
  func digests() async throws {
    let bytes = Data("some bytes".utf8)
    let version = try await store.set("k", to: bytes).version
    #expect(version.digest == BlobDigest.of(bytes))
    #expect(try await store.data(for: version.digest) == bytes)
    let reader = try #require(try await store.reader(for: version.digest))
    let read = try await reader.read(5..<10)
    #expect(Data(read) == Data("bytes".utf8))
    reader.close()
    let unknown = BlobDigest.of(Data("other bytes".utf8))
    #expect(try await store.data(for: unknown) == nil)
    #expect(try await store.reader(for: unknown) == nil)
    let foreign = BlobDigest.of(bytes, by: .sha256)
    for body in [
      { _ = try await store.data(for: foreign) }, { _ = try await store.reader(for: foreign) },
    ] as [() async throws -> Void] {
      let error = await #expect(throws: BlobStorageError.self) { try await body() }
      #expect(error?.code == .invalidArgument)
    }
    try await store.close()
  }

  /// They are fetched a thousand at a time.
  @Test("all keys of a prefix are listed once, in order, kept and dropped", arguments: [0, 1_000, 2_001])
  func keys(_ count: Int) async throws {
    let keys = (0..<count).map { "k/\(10_000 + $0)" }
    let items = (["j", "l"] + keys).map { PutItem(key: $0, data: Data()) }
    for _ in 0..<2 {
      try await store.put(
        items, options: PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    }
    var listed: [String] = []
    for try await entry in store.keys(prefix: "k/") { listed.append(entry.key) }
    #expect(listed == keys)
    var allCount = 0
    for try await entry in store.keys() { allCount += entry.versionCount }
    #expect(allCount == 2 * (count + 2))
    let kept = try await store.trimHistory(of: .prefix("k/"), toArchived: 0, durability: .relaxed)
    #expect(kept.keyCount == count && kept.droppedVersionCount == count)
    #expect(try await store.delete(prefix: "k/", durability: .relaxed) == count)
    let left = try await store.keys(limit: 10)
    #expect(left.map(\.key) == ["j", "l"])
    #expect(left.map(\.versionCount) == [2, 2])
    try await store.close()
  }

  @Test("a list of keys ends once its task is cancelled")
  func cancelledKeys() async throws {
    let task = Task { [store] in
      while !Task.isCancelled { await Task.yield() }
      for try await _ in store.keys() {}
    }
    task.cancel()
    let error = await #expect(throws: BlobStorageError.self) { try await task.value }
    #expect(error?.code == .cancelled)
    try await store.close()
  }

  @Test("keys that are no UTF-8 end a list with an error", .timeLimit(.minutes(1)))
  func forgedKeys() async throws {
    let put = store.engine.memoryPut
    _ = try put.commit(
      (0..<1_500).map { try put.prepare([0xFF, UInt8($0 >> 8), UInt8($0 & 255)], Data(), .relaxed) })
    let error = await #expect(throws: BlobStorageError.self) { for try await _ in store.keys() {} }
    #expect(error?.code == .corrupted)
    try await store.close()
  }
}

@Suite("Typed values")
struct BlobFormatTests {
  private struct Point: Codable, Sendable, Equatable {
    var x: Int
    var y: Int
  }

  private struct Failure: Error {}

  @Test("come back as they were put, and one that cannot be converted changes nothing")
  func values() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let first = try await store.set("k", to: Point(x: 1, y: 2)).version.id
    let archiving = PutOptions(replacement: .archiveCurrent)
    let second = try await store.set("k", to: Point(x: 3, y: 4), options: archiving).version.id
    #expect(try await store.data(forKey: "k") == Data(#"{"x":3,"y":4}"#.utf8))
    #expect(try await store.value(forKey: "k") == Point(x: 3, y: 4))
    #expect(try await store.value(Point.self, forKey: "k", version: first)?.x == 1)
    #expect(try await store.value(String.self, forKey: "missing") == nil)
    try await store.set("text", to: "ä")
    #expect(try await store.data(forKey: "text") == Data("\"ä\"".utf8))
    try await store.set("text", to: "ä", as: .text)
    #expect(try await store.data(forKey: "text") == Data("ä".utf8))
    #expect(try await store.value(forKey: "text", as: .text) == "ä")
    #expect(try await store.value(forKey: "text", as: .bytes) == Data("ä".utf8))
    // Bytes are never JSON.
    try await store.set("bytes", to: Data("ä".utf8), options: .relaxed)
    #expect(try await store.data(forKey: "bytes") == Data("ä".utf8))
    #expect(try await store.value(Data.self, forKey: "bytes") == Data("ä".utf8))
    try await store.set("list", to: Point(x: 5, y: 6), as: .propertyList)
    #expect(try await store.data(forKey: "list")?.starts(with: Data("bplist".utf8)) == true)
    #expect(try await store.value(forKey: "list", as: .propertyList) == Point(x: 5, y: 6))
    try await store.set("text", to: Data([0xFF]))
    let failures: [(String, () async throws -> Void)] = [
      ("text", { _ = try await store.value(forKey: "text", as: .text) }),
      ("k", { _ = try await store.value([Int].self, forKey: "k") }),
      ("k", { _ = try await store.value(Point.self, forKey: "k", as: .propertyList) }),
      (
        "k",
        {
          _ = try await store.set(
            "k", to: 1,
            as: BlobFormat { _ in
              throw Failure()
            } decode: { _ in
              1
            })
        }
      ),
    ]
    for (key, body) in failures {
      let error = await #expect(throws: BlobStorageError.self) { try await body() }
      #expect(error?.code == .sourceFailed)
      #expect(error?.key == key)
    }
    #expect(try await store.versions(of: "k").map(\.id) == [second, first])
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test("that are equal are equal bytes")
  func sorted() throws {
    let numbers = Dictionary(uniqueKeysWithValues: (0..<9).map { ("\($0)", $0) })
    let text = "{" + (0..<9).map { "\"\($0)\":\($0)" }.joined(separator: ",") + "}"
    #expect(try BlobFormat.json.data(of: numbers, key: "k") == Data(text.utf8))
  }
}

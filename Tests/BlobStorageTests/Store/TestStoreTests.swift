import BlobStorage
import BlobStorageTesting
import Foundation
import Synchronization
import Testing

@Suite("A store for tests", .timeLimit(.minutes(1)))
struct TestStoreTests {
  private static func code(_ body: () async throws -> Void) async -> BlobStorageError.Code? {
    do { try await body() } catch { return (error as? BlobStorageError)?.code }
    return nil
  }

  @Test("goes with its folder, and has the clock's time")
  func clock() async throws {
    let test = try await TestStore.create(clock: TestClock(Date(timeIntervalSince1970: 1_800_000_000)))
    #expect(FileManager.default.fileExists(atPath: test.folder.path))
    try await test.store.set("k", to: Data("v".utf8))
    test.clock.advance(by: .seconds(90))
    let version = try await test.store.set("k", to: Data("w".utf8)).version
    #expect(version.created == Date(timeIntervalSince1970: 1_800_000_090))
    try await test.close()
    #expect(!FileManager.default.fileExists(atPath: test.folder.path))
  }

  @Test("fails as its medium does, and keeps what it had")
  func medium() async throws {
    let test = try await TestStore.create()
    try await test.store.set("k", to: Data("v".utf8))
    let long = Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
    test.medium.isFull = true
    #expect(await Self.code { try await test.store.set("k", to: long) } == .noSpace)
    test.medium.heal()
    test.medium.isReadOnly = true
    #expect(await Self.code { try await test.store.set("k", to: long) } == .readOnly)
    test.medium.heal()
    #expect(try await test.store.data(forKey: "k") == Data("v".utf8))
    try await test.store.set("k", to: Data("w".utf8))
    try await test.close()
  }

  @Test("is poisoned by a failed sync, and opened again behind the same reference")
  func reopens() async throws {
    let test = try await TestStore.create()
    let store = test.store
    try await store.set("k", to: Data("v".utf8))
    let reader = try #require(try await store.reader(forKey: "k"))
    test.medium.failsSyncs = true
    #expect(await Self.code { try await store.set("new", to: Data("lost?".utf8)) } != nil)
    test.medium.heal()
    #expect(await Self.code { try await store.set("new", to: Data("x".utf8)) } == .poisoned)
    try await store.reopen()
    try await store.set("new", to: Data("x".utf8))
    #expect(try await store.data(forKey: "k") == Data("v".utf8))
    #expect(try await store.data(forKey: "new") == Data("x".utf8))
    #expect(await Self.code { _ = try await reader.read(0..<1) } == .closed)
    // Twelve tasks read and write while it is opened again and again.
    await withTaskGroup(of: Void.self) { group in
      for index in 0..<12 {
        group.addTask {
          for _ in 0..<40 {
            let code = await Self.code {
              if index % 2 == 0 {
                try await store.set("\(index)", to: Data([1]), durability: .relaxed)
              } else {
                _ = try await store.data(forKey: "k")
              }
            }
            #expect(code == nil || code == .closed)
          }
        }
      }
      group.addTask { for _ in 0..<10 { #expect(await Self.code { try await store.reopen() } == nil) } }
    }
    #expect(try await store.verify().damaged == [])
    try await test.close()
  }

  @Test("reads damaged bytes as damaged", arguments: [10, 5_000, 300_000])
  func damage(_ byteCount: Int) async throws {
    let test = try await TestStore.create()
    let bytes = Data((0..<byteCount).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) })
    try await test.store.set("k", to: bytes)
    try await test.damage("k")
    try await test.store.reopen()
    #expect(await Self.code { _ = try await test.store.data(forKey: "k") } == .corrupted)
    #expect(try await !test.store.verify().damaged.isEmpty)
    #expect(await Self.code { try await test.damage("nothing") } == .invalidArgument)
    try await test.close()
  }

  @Test(
    "says of a blob of any length that it is damaged when it is to get another key, or a hold",
    arguments: [10, 3_000_000])
  func damagedLink(_ byteCount: Int) async throws {
    let test = try await TestStore.create()
    let bytes = Data((0..<byteCount).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) })
    let digest = try await test.store.set("k", to: bytes).version.digest
    try await test.damage("k")
    try await test.store.reopen()
    #expect(await Self.code { try await test.store.link("l", to: digest) } == .corrupted)
    #expect(await Self.code { try await test.store.hold(digest, as: "h") } == .corrupted)
    #expect(try await test.store.currentVersion(of: "l") == nil)
    #expect(try await test.store.holds() == [])
    try await test.close()
  }
}

@Suite("Small calls of a store", .timeLimit(.minutes(1)))
struct StoreVerbTests {
  private final class Recorder: StoreMetrics {
    let events = Mutex<[StoreEvent]>([])
    func record(_ event: StoreEvent) { events.withLock { $0.append(event) } }
  }

  @Test("keep a media type with a value, whatever its metadata are, and an entity tag of its bytes")
  func mediaTypes() async throws {
    let test = try await TestStore.create()
    let store = test.store
    let tag: [UInt8] = [0x6d, 0x74, 0x31]
    for metadata in [[], [1, 2], tag, tag + [0], tag + [3, 0x61, 0x2f, 0x62], tag + [200]] as [[UInt8]] {
      for type in [nil, "image/jpeg", "text/plain; charset=utf-8"] {
        let options = PutOptions(metadata: metadata, mediaType: type)
        let put = try await store.set("k", to: Data("v".utf8), options: options).version
        let version = try #require(try await store.currentVersion(of: "k"))
        #expect(version == put && version.metadata == metadata && version.mediaType == type)
        #expect(version.entityTag == "\"\(version.digest.hex)\"")
        let copy = try #require(try await store.duplicate("k", as: "copy")).version
        #expect(copy.metadata == metadata && copy.mediaType == type)
        let item = PutItem(key: "item", data: Data(), metadata: metadata, mediaType: type)
        #expect(try await store.put([item])[0].version.mediaType == type)
        let decoded = try JSONDecoder().decode(BlobVersion.self, from: JSONEncoder().encode(version))
        #expect(decoded.mediaType == type && decoded.metadata == metadata && decoded.id == version.id)
      }
    }
    for type in ["", "text", "/plain", "text/", "a/\u{e9}", "a/" + String(repeating: "b", count: 126)] {
      let error = await #expect(throws: BlobStorageError.self) {
        try await store.set("k", to: Data(), options: PutOptions(mediaType: type))
      }
      #expect(error?.code == .invalidArgument, "\(type)")
    }
    try await test.close()
  }

  @Test(
    "link a key to a blob that is there, also to one that no version has any more", arguments: [3, 3_000_000])
  func links(_ byteCount: Int) async throws {
    let test = try await TestStore.create()
    let store = test.store
    let bytes = Data((0..<byteCount).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 3) })
    let version = try await store.set("a", to: bytes).version
    let linked = try #require(try await store.link("b", to: version.digest))
    #expect(linked.version.digest == version.digest && linked.newByteCount == 0)
    try await store.delete("a")
    try await store.delete("b")
    #expect(try await store.link("c", to: version.digest) != nil)
    #expect(try await store.data(forKey: "c") == bytes)
    try await store.delete("c")
    _ = try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(try await store.link("d", to: version.digest) == nil)
    #expect(try await store.currentVersion(of: "d") == nil)
    try await store.set("d", to: Data())
    let refused = await #expect(throws: BlobStorageError.self) {
      try await store.link("d", to: version.digest, options: PutOptions(condition: .absent))
    }
    #expect(refused?.code == .conditionFailed)
    try await test.close()
  }

  @Test("tell a metrics system what they did, and how much")
  func metrics() async throws {
    let recorder = Recorder()
    let test = try await TestStore.create(configuration: StoreConfiguration(metrics: recorder))
    try await test.store.set("k", to: Data(count: 5_000))
    _ = try await test.store.data(forKey: "k")
    _ = try await test.store.data(forKey: "nothing")
    try await test.store.put([PutItem(key: "a", data: Data(count: 5_000))], options: .relaxed)
    let report = try await test.store.collectGarbage()
    let events = recorder.events.withLock { $0 }
    var (puts, reads, syncs): ([[Int64]], [Int64], Int) = ([], [], 0)
    for event in events {
      switch event {
      case .put(let byteCount, let new, let stored, let duration):
        puts.append([byteCount, new])
        #expect(stored > 0 && duration > .zero)
      case .read(let byteCount, _): reads.append(byteCount)
      case .synchronized: syncs += 1
      default: break
      }
    }
    #expect(puts == [[5_000, 5_000], [5_000, 0]] && reads == [5_000] && syncs >= 1)
    #expect(events.contains(.collected(report)))
    try await test.close()
  }

  @Test("read and change nothing in a store that was opened for reading only")
  func readOnly() async throws {
    let test = try await TestStore.create()
    try await test.store.set("k", to: Data("v".utf8))
    try await test.store.close()
    func files() throws -> [String: Data] {
      var files: [String: Data] = [:]
      let names = FileManager.default.enumerator(atPath: test.folder.path)
      for case let name as String in try #require(names) {
        files[name] = FileManager.default.contents(atPath: test.folder.path + "/" + name) ?? Data()
      }
      return files
    }
    let before = try files()
    let store = try await BlobStore.openReadOnly(at: test.folder)
    #expect(try await store.data(forKey: "k") == Data("v".utf8))
    #expect(try await store.keys(limit: 9).map(\.key) == ["k"])
    let changes: [() async throws -> Void] = [
      { try await store.set("k", to: Data()) }, { try await store.delete("k") },
      { _ = try await store.collectGarbage() }, { try await store.trimHistory(of: .all, toArchived: 0) },
    ]
    for change in changes {
      let error = await #expect(throws: BlobStorageError.self) { try await change() }
      #expect(error?.code == .readOnly, "\(String(describing: error))")
    }
    #expect(try await store.verify().damaged == [])
    try await store.close()
    #expect(try files() == before)
  }
}

import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("The index of a shared store")
struct RemoteIndexTests {
  private let machines: SharedMachines

  init() throws { machines = try SharedMachines() }

  /// Runs a process of its own that keeps as little of the catalog as can be.
  private func command<T>(_ machine: String, _ body: (Engine) throws -> T) throws -> T {
    let engine = try machines.engine(machine, catalogLimit: 0)
    let result = try body(engine)
    try engine.close()
    return result
  }

  private func collect(_ machine: String = "collector") throws {
    try command(machine) { (engine) throws in
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
    }
  }

  private var roots: [String] { machines.names("index/").filter { $0.contains(".") } }

  /// A store with an index: many keys, some with versions, some deleted.
  private func fill(_ random: inout SplitMix64) throws -> [String: [UInt8]] {
    var expected: [String: [UInt8]] = [:]
    try command("one") { (engine) throws in
      for number in 0..<40 {
        let key = "key \(number % 25)"
        let bytes = random.bytes(1_000 + number * 40)
        _ = try engine.put(
          key, bytes,
          PutOptions(durability: .relaxed, replacement: number % 3 == 0 ? .archiveCurrent : .replaceCurrent))
        expected[key] = bytes
      }
      let gone = (0..<5).map { "key \($0)" }
      _ = try engine.delete(gone, .durable)
      for key in gone { expected[key] = nil }
    }
    try collect()
    #expect(roots.count == 1)
    return expected
  }

  /// Reads everything on a machine that knows nothing.
  private func check(_ expected: [String: [UInt8]], _ moment: String, relies: Bool = true) throws {
    try command("fresh \(UUID().uuidString)") { (engine) throws in
      if relies { #expect(try engine.catalog.indexRoot() != nil, "\(moment)") }
      #expect(
        try engine.keys("", after: nil, limit: 1_000).map(\.key) == expected.keys.sorted(), "\(moment)")
      for (key, bytes) in expected { #expect(try engine.data(key, nil) == Data(bytes), "\(moment): \(key)") }
    }
  }

  @Test("is what a machine that knows nothing reads in place of footers")
  func fresh() throws {
    var random = SplitMix64.announced()
    let expected = try fill(&random)
    for object in machines.names("packs/") { #expect(machines.store.peek(object) != nil) }
    let before = machines.store.requestCount
    try command("fresh") { (engine) throws in
      #expect(try engine.catalog.indexRoot() != nil)
      let key = try #require(expected.keys.min())
      #expect(try engine.data(key, nil) == expected[key].map { Data($0) })
    }
    #expect(machines.store.requestCount - before < 30)
    let footers = machines.temporary.path.appending("fresh").appending("footers").string
    #expect(try FileManager.default.contentsOfDirectory(atPath: footers) == [])
    try check(expected, "after a collection")
    try machines.check(expected, "with verify")
  }

  @Test("is followed by what machines do later, in any order with collections")
  func model() throws {
    var random = SplitMix64.announced()
    var expected: [String: [UInt8]] = [:]
    var versionCounts: [String: Int] = [:]
    for round in 0..<12 {
      for machine in ["one", "two", "three"] where Bool.random(using: &random) {
        try command(machine) { (engine) throws in
          for _ in 0..<Int.random(in: 1..<8, using: &random) {
            let key = "key \(Int.random(in: 0..<15, using: &random))"
            switch Int.random(in: 0..<5, using: &random) {
            case 0:
              _ = try engine.delete([key], .durable)
              (expected[key], versionCounts[key]) = (nil, nil)
            case 1:
              let bytes = expected.values.randomElement(using: &random) ?? [1]
              _ = try engine.put(key, bytes, PutOptions())
              (expected[key], versionCounts[key]) = (bytes, max(1, versionCounts[key] ?? 1))
            default:
              let bytes = random.bytes(Int.random(in: 0..<9_000, using: &random))
              _ = try engine.put(key, bytes, PutOptions(replacement: .archiveCurrent))
              (expected[key], versionCounts[key]) = (bytes, (versionCounts[key] ?? 0) + 1)
            }
          }
        }
      }
      if round % 2 == 1 { try collect(round % 4 == 1 ? "collector" : "two") }
      try check(expected, "round \(round)", relies: false)
      for machine in ["one", "three"] {
        try command(machine) { (engine) throws in
          #expect(try engine.keys("", after: nil, limit: 100).map(\.key) == expected.keys.sorted())
          for (key, bytes) in expected {
            #expect(try engine.data(key, nil) == Data(bytes), "round \(round): \(key) on \(machine)")
            #expect(
              try engine.versions(key).count == versionCounts[key], "round \(round): \(key) on \(machine)")
          }
          #expect(try engine.verify().damaged == [])
        }
      }
    }
    #expect(!roots.isEmpty && roots.count <= 2)
  }

  /// The power cut brings back the file that was removed from the spool, but not all of its bytes.
  @Test(
    "is what counts of a published pack, not a copy in the spool that a power cut has torn", arguments: 0..<4)
  func tornSpool(_ quarters: Int) throws {
    var random = SplitMix64.announced()
    var expected: [String: [UInt8]] = [:]
    var one: Engine? = try machines.engine("one", catalogLimit: 0, bootIdentity: "first")
    for number in 0..<8 {
      let bytes = random.bytes(4_000)
      expected["key \(number)"] = bytes
      _ = try one?.put("key \(number)", bytes, .relaxed)
    }
    let spool = machines.temporary.path.appending("one").appending("packs")
    let name = try #require(try FileManager.default.contentsOfDirectory(atPath: spool.string).first)
    let url = URL(filePath: spool.appending(name).string)
    let spooled = try Data(contentsOf: url)
    try one?.synchronize()
    #expect(machines.names("packs/").count == 1)
    one = nil
    try collect()
    #expect(roots.count == 1)
    try spooled.prefix(spooled.count * quarters / 4).write(to: url)

    let next = try machines.engine("one", catalogLimit: 0, bootIdentity: "second")
    #expect(try next.catalog.indexRoot() != nil)
    for (key, bytes) in expected { #expect(try next.data(key, nil) == Data(bytes), "\(key)") }
    #expect(try next.verify().damaged == [])
    try next.close()
    #expect(try FileManager.default.contentsOfDirectory(atPath: spool.string) == [])
    try check(expected, "afterwards")
  }

  @Test("does not bring back what a machine has removed since")
  func removed() throws {
    let archiving = PutOptions(replacement: .archiveCurrent)
    try command("one") { (engine) throws in
      for number in 0..<4 { _ = try engine.put("key", [UInt8(number)], archiving) }
    }
    try collect()
    try command("two") { (engine) throws in
      #expect(try engine.versions("key").count == 4)
      _ = try engine.delete(["key"], .durable)
      #expect(try engine.versions("key").isEmpty)
      for number in 4..<6 { _ = try engine.put("key", [UInt8(number)], archiving) }
    }
    for machine in ["two", "one", "three"] {
      try command(machine) { (engine) throws in
        let versions = try engine.versions("key")
        #expect(try versions.map { try engine.data("key", $0.id) } == [Data([5]), Data([4])], "\(machine)")
      }
    }
  }

  @Test("is renewed before the packs go that it lacks: until then their footers can be fetched")
  func order() throws {
    var random = SplitMix64.announced()
    var expected = try fill(&random)
    let gone = Array(expected.keys.sorted().prefix(12))
    _ = try command("one") { (engine) throws in try engine.delete(gone, .durable) }
    for key in gone { expected[key] = nil }
    let (store, deleted) = (machines.store, CallCount())
    store.setHook { call in
      guard call.kind == .delete, SharedNames.packName(call.name) != nil else { return }
      let entries = store.objects.keys.compactMap { SharedNames.collectionNumber($0) }
      let indexes = store.objects.keys.compactMap { SharedNames.indexName($0) }.map {
        UInt32($0.number >> 32)
      }
      if indexes.max() == entries.max() { _ = deleted.next() }
    }
    let before = machines.names("packs/").count
    try collect()
    store.setHook(nil)
    #expect(deleted.value > 0 && machines.names("packs/").count <= before)
    try check(expected, "afterwards")
  }

  @Test("stays while little has come since, and no pack has gone that it knows")
  func stays() throws {
    var random = SplitMix64.announced()
    var expected = try fill(&random)
    let limit: Int64 = 128 << 10
    var runs: Set<UInt64> { Set(machines.names("index/").compactMap { SharedNames.indexName($0)?.run }) }
    func collect(
      _ machine: String = "collector", _ options: GarbageCollectionOptions = SharedMachines.everything
    ) throws -> GarbageCollectionReport {
      let engine = try machines.engine(machine, catalogLimit: limit)
      let report = try engine.collectGarbage(options)
      try engine.close()
      return report
    }
    /// Puts some keys, each in a pack of its own, and deletes some of them.
    func put(_ count: Int, _ name: String, deleting: Int = 0) throws {
      for number in 0..<count {
        let bytes = random.bytes(2_000)
        try command("one") { (engine) throws in
          _ = try engine.put("\(name) \(number)", bytes, PutOptions())
        }
        expected["\(name) \(number)"] = bytes
      }
      let gone = (0..<deleting).map { "\(name) \($0)" }
      if !gone.isEmpty { try command("one") { (engine) throws in _ = try engine.delete(gone, .durable) } }
      for key in gone { expected[key] = nil }
    }
    let first = runs
    let reader = try machines.engine("reader", catalogLimit: 0)
    #expect(try reader.catalog.indexRoot().map { first.contains($0.run) } == true)
    func checkReader(_ moment: String) throws {
      try reader.extend()
      #expect(try reader.keys("", after: nil, limit: 100).map(\.key) == expected.keys.sorted(), "\(moment)")
      for (key, bytes) in expected { #expect(try reader.data(key, nil) == Data(bytes), "\(moment): \(key)") }
    }
    for (round, machine) in ["collector", "other", "collector"].enumerated() {
      try put(3, "round \(round)", deleting: 2)
      let report = try collect(machine)
      #expect(report.obstacles == [] && report.deletedPackCount > 0, "round \(round)")
      // The log goes on, so a root does, too.
      #expect(runs == first && roots.count == 2, "round \(round)")
      try check(expected, "round \(round)")
      try checkReader("round \(round)")
      #expect(try reader.catalog.indexRoot().map { first.contains($0.run) } == true)
    }
    // A pack that it knows goes.
    let gone = Array(expected.keys.filter { $0.hasPrefix("key") }.sorted().prefix(10))
    _ = try command("one") { (engine) throws in try engine.delete(gone, .durable) }
    for key in gone { expected[key] = nil }
    try put(20, "beside")
    _ = try collect()
    #expect(runs.count == 2 && runs != first)
    try check(expected, "without packs of the index")
    try checkReader("without packs of the index")
    // Much comes.
    while try collect().deletedPackCount > 0 {}
    let second = runs
    for round in 0..<3 {
      try command("one") { (engine) throws in
        for number in 0..<60 {
          let bytes = random.bytes(100)
          _ = try engine.put("more \(round) \(number)", bytes, PutOptions(durability: .relaxed))
          expected["more \(round) \(number)"] = bytes
        }
      }
    }
    let report = try collect("collector", GarbageCollectionOptions(minimumGarbageShare: 1, timeout: .zero))
    #expect(report.deletedPackCount == 0)
    #expect(runs != second && runs.count == 2)
    try check(expected, "with more")
    try reader.close()
  }

  /// Runs a collection that dies once it has put so many entries of the log.
  private func collectAndDie(after count: Int, limit: Int64) throws {
    let before = machines.names("collections/").count
    let client = machines.store.client { [store = machines.store] (_) throws(BlobStorageError) in
      let entries = store.objects.keys.filter { SharedNames.collectionNumber($0) != nil }
      if entries.count >= before + count { throw BlobStorageError.simulatedStop }
    }
    let dying = try machines.engine("collector", client, catalogLimit: limit)
    _ = try? dying.collectGarbage(SharedMachines.everything)
    try? dying.close()
    #expect(machines.names("collections/").count == before + count)
  }

  @Test("stays when a collector has died after it had condemned what the index does not know")
  func interrupted() throws {
    var random = SplitMix64.announced()
    var expected = try fill(&random)
    let runs = Set(machines.names("index/").compactMap { SharedNames.runNumber($0) })
    try command("one") { (engine) throws in
      for number in 0..<9 {
        let bytes = random.bytes(500)
        _ = try engine.put("new \(number)", bytes, PutOptions(durability: .relaxed))
        expected["new \(number)"] = bytes
      }
    }
    _ = try command("one") { (engine) throws in try engine.delete(["new 3"], .durable) }
    expected["new 3"] = nil
    let limit: Int64 = 128 << 10
    try collectAndDie(after: 1, limit: limit)
    try check(expected, "after a death", relies: false)
    var deletedCount = 0
    for _ in 0..<3 {
      let next = try machines.engine("two", catalogLimit: limit)
      let report = try next.collectGarbage(SharedMachines.everything)
      #expect(report.obstacles == [])
      deletedCount += report.deletedPackCount
      try next.close()
    }
    #expect(deletedCount > 0)
    #expect(Set(machines.names("index/").compactMap { SharedNames.runNumber($0) }) == runs)
    try check(expected, "afterwards")
  }

  @Test("is written anew after a loss was accepted of a pack that it knows")
  func accepted() throws {
    var random = SplitMix64.announced()
    var expected = try fill(&random)
    let first = roots
    let known = try command("knows") { (engine) throws in
      try engine.catalog.packRows().map(\.row.name)
    }
    try command("one") { (engine) throws in
      for number in 0..<60 {
        let bytes = random.bytes(300)
        _ = try engine.put("new \(number)", bytes, PutOptions(durability: .relaxed))
        expected["new \(number)"] = bytes
      }
    }
    let lost = try #require(known.first { machines.store.peek(SharedNames.pack($0)) != nil })
    machines.store.set(SharedNames.pack(lost), nil)
    let limit: Int64 = 128 << 10
    let mending = try machines.engine("mending", catalogLimit: limit)
    _ = try mending.repair(acceptsLosses: true)
    try mending.close()
    let next = try machines.engine("collector", catalogLimit: limit)
    #expect(try next.collectGarbage(SharedMachines.everything).obstacles == [])
    try next.close()
    #expect(roots != first)
    try command("fresh") { (engine) throws in
      #expect(try engine.catalog.indexRoot() != nil)
      for number in 0..<60 {
        #expect(try engine.data("new \(number)", nil) == expected["new \(number)"].map { Data($0) })
      }
    }
  }

  @Test("is written anew when a collector has died after it had removed packs")
  func died() throws {
    var random = SplitMix64.announced()
    var expected = try fill(&random)
    let first = roots
    try command("one") { (engine) throws in
      for number in 0..<40 {
        let bytes = random.bytes(500)
        _ = try engine.put("new \(number)", bytes, PutOptions(durability: .relaxed))
        expected["new \(number)"] = bytes
      }
    }
    let gone = Array(expected.keys.filter { $0.hasPrefix("key") }.sorted().prefix(10))
    _ = try command("one") { (engine) throws in try engine.delete(gone, .durable) }
    for key in gone { expected[key] = nil }
    let limit: Int64 = 128 << 10
    // The entry that removes is there, and nothing after it.
    try collectAndDie(after: 2, limit: limit)
    #expect(roots == first)
    try check(expected, "after a death", relies: false)
    let next = try machines.engine("two", catalogLimit: limit)
    #expect(try next.collectGarbage(SharedMachines.everything).obstacles == [])
    try next.close()
    #expect(roots.count == 2)
    try check(expected, "afterwards")
  }

  @Test("may be replaced twice while a machine relies on it")
  func replaced() throws {
    var random = SplitMix64.announced()
    let expected = try fill(&random)
    let reader = try machines.engine("reader", catalogLimit: 0)
    let root = try reader.catalog.indexRoot()
    let known = try #require(root)
    for round in 0..<6 {
      let bytes = random.bytes(3_000)
      try command("one") { (engine) throws in _ = try engine.put("more \(round)", bytes, PutOptions()) }
      try collect()
    }
    #expect(try reader.catalog.indexRoot() == known)
    for (key, bytes) in expected { #expect(try reader.data(key, nil) == Data(bytes)) }
    #expect(try reader.catalog.indexRoot() != known)
    try reader.close()
  }

  @Test("does not count when a bit of it is another, a part is lost, or nothing of it can be read")
  func damaged() throws {
    var random = SplitMix64.announced()
    let expected = try fill(&random)
    let objects = machines.names("index/")
    #expect(objects.count >= 3)
    let whole = try objects.map { (name: $0, bytes: try #require(machines.store.peek($0))) }
    for (object, bytes) in whole {
      func check(with other: [UInt8]?, _ moment: String) throws {
        machines.store.set(object, other)
        // A bit of the filter that is missing would hide a row.
        try self.check(expected, "\(object), \(moment)", relies: false)
        for (name, bytes) in whole { machines.store.set(name, bytes) }
      }
      for _ in 0..<6 {
        var other = bytes
        let bit = Int.random(in: 0..<bytes.count * 8, using: &random)
        other[bit / 8] ^= 1 << (bit % 8)
        try check(with: other, "bit \(bit)")
      }
      try check(with: nil, "lost")
      try check(with: [], "without bytes")
      try check(with: Array(bytes.dropLast()), "cut short")
    }
    try check(expected, "with all as it was")
  }

  @Test("that is damaged is put anew by the next collection after a machine has met the damage")
  func healed() throws {
    var random = SplitMix64.announced()
    let expected = try fill(&random)
    let part = try #require(machines.names("index/").first { SharedNames.runNumber($0) != nil })
    machines.store.set(part, try #require(machines.store.peek(part)).map { ~$0 })
    try check(expected, "damaged", relies: false)
    #expect(roots.isEmpty)
    try collect()
    try check(expected, "healed")
  }

  @Test("lets a writer share what is there, and put what is not without a look into it")
  func sharing() throws {
    var random = SplitMix64.announced()
    let expected = try fill(&random)
    try command("writer") { (engine) throws in
      #expect(try engine.catalog.indexRoot() != nil)
      for bytes in expected.values {
        #expect(try engine.put("again", bytes, PutOptions(durability: .relaxed)).newByteCount == 0)
      }
      let before = machines.store.counts[.get, default: 0]
      let bytes = random.bytes(2_000)
      #expect(try engine.put("again", bytes, PutOptions(durability: .relaxed)).newByteCount == bytes.count)
      // The filter and the key's block are in the cache.
      #expect(machines.store.counts[.get, default: 0] - before <= 2)
    }
  }

  /// Prints what an index of many chunks costs.
  @Test(
    "of many chunks",
    .enabled(if: Self.chunkCount != nil, "it takes minutes: BLOB_STORAGE_CHUNKS says how many"))
  func scale() throws {
    let count = try #require(Self.chunkCount)
    let content = { (number: Int) in withUnsafeBytes(of: Int64(number).littleEndian) { Array($0) } }
    let options = PutOptions(durability: .relaxed)
    let filling = ContinuousClock.now
    try command("one") { (engine) throws in
      for start in stride(from: 0, to: count, by: 1_000) {
        let items = try (start..<min(start + 1_000, count)).map { number in
          try engine.memoryPut.prepare(Engine.keyBytes("key \(number)"), Data(content(number)), options)
        }
        _ = try engine.memoryPut.commit(items)
      }
    }
    func seconds(_ start: ContinuousClock.Instant) -> String {
      "\((ContinuousClock.now - start) / .seconds(1)) s"
    }
    print("filled in \(seconds(filling)), \(machines.names("packs/").count) packs")
    let collecting = ContinuousClock.now
    try command("collector") { _ = try $0.collectGarbage(SharedMachines.everything) }
    let byteCount = machines.names("index/").reduce(0) { $0 + (machines.store.peek($1)?.count ?? 0) }
    print("gc with an index of \(byteCount) bytes: \(seconds(collecting))")
    let again = ContinuousClock.now
    try command("one") { (engine) throws in _ = try engine.put("new", [1, 2, 3], PutOptions()) }
    try command("collector") { _ = try $0.collectGarbage(SharedMachines.everything) }
    print("gc after one put: \(seconds(again))")
    var random = SplitMix64.announced()
    for limit in [64 << 20, 1 << 30] as [Int64] {
      let machine = "fresh \(limit)"
      for round in ["first", "second"] {
        let before = (machines.store.requestCount, ContinuousClock.now)
        let engine = try machines.engine(machine, catalogLimit: limit)
        let number = Int.random(in: 0..<count, using: &random)
        #expect(try engine.data("key \(number)", nil) == Data(content(number)))
        print(
          "\(round) get of \(machine): \(machines.store.requestCount - before.0) requests, \(seconds(before.1))"
        )
        if round == "second" {
          let reading = ContinuousClock.now
          for _ in 0..<1_000 {
            let number = Int.random(in: 0..<count, using: &random)
            #expect(try engine.data("key \(number)", nil) == Data(content(number)))
          }
          print("1,000 random gets: \(seconds(reading))")
          let putting = (machines.store.requestCount, ContinuousClock.now)
          for number in 0..<1_000 {
            #expect(try engine.put("again", content(number * (count / 1_000)), options).newByteCount == 0)
          }
          print(
            "1,000 puts of what is there: \(machines.store.requestCount - putting.0) requests, \(seconds(putting.1))"
          )
          let new = (machines.store.requestCount, ContinuousClock.now)
          for number in 0..<1_000 { _ = try engine.put("again", content(-1 - number - Int(limit)), options) }
          print("1,000 puts of new bytes: \(machines.store.requestCount - new.0) requests, \(seconds(new.1))")
        }
        try engine.close()
      }
      var kept: Int64 = 0
      let folder = machines.temporary.path.appending(machine).string
      for case let file as String in try #require(FileManager.default.enumerator(atPath: folder)) {
        let status = try SystemFiles().status(of: FilePath(folder + "/" + file))
        // Parts of an index have holes.
        if let status, status.kind == .regular, !file.hasPrefix("ranges") {
          kept += status.allocatedByteCount
        }
      }
      print("\(machine) keeps \(kept) bytes without parts of packs")
      try FileManager.default.removeItem(atPath: folder)
    }
  }

  private static let chunkCount = ProcessInfo.processInfo.environment["BLOB_STORAGE_CHUNKS"].flatMap {
    Int($0)
  }
}

import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Views of two processes on one store, while the catalog lags behind. Each test names the invariant of the page
/// Durability that it would find broken.
@Suite("A view")
struct ViewTests {
  /// V1: fails if a commit returns before its length is published, or if a view does not look at what was published
  /// since the last one. Also fails if what was settled and freed is missing between snapshot and tails.
  @Test(
    "shows what either process has done as soon as the call returns, whichever settles, seals, rebuilds or collects",
    arguments: Pair.Between.allCases)
  func visible(_ between: Pair.Between) throws {
    let pair = try Pair()
    var model = ModelTests.Model()
    var random = SplitMix64(seed: 21)
    let long = "long-" + String(repeating: "x", count: 700)
    func bytes() -> [UInt8] { random.bytes(Int.random(in: 0...3_000, using: &random)) }
    func put(_ engine: Engine, _ key: String, _ bytes: [UInt8], archives: Bool = false) throws {
      let options = PutOptions(
        durability: Bool.random(using: &random) ? .relaxed : .durable,
        replacement: archives ? .archiveCurrent : .replaceCurrent, metadata: Array(key.utf8.prefix(3)))
      model.put(key, bytes, try engine.put(key, bytes, options), archives: archives)
    }
    func putTogether(_ engine: Engine, _ keys: [String]) throws {
      let items = keys.map { (key: $0, bytes: bytes()) }
      let results = try engine.put(items.map { PutItem(key: $0.key, data: Data($0.bytes)) }, .relaxed)
      for (item, result) in zip(items, results) { model.put(item.key, item.bytes, result, archives: false) }
    }
    let shared = random.bytes(2_500)
    let steps: [(Engine) throws -> Void] = [
      { try put($0, "a", bytes()) },
      { try put($0, "a", bytes()) },
      { try put($0, "a", bytes(), archives: true) },
      { try put($0, long, shared) },
      { try put($0, "copy", shared, archives: true) },
      { try putTogether($0, ["b/1", "a", "b/2"]) },
      // So many take the whole range of stripes.
      { try putTogether($0, (0..<24).map { "c/\($0)" }) },
      { (engine) throws in
        let rest = Mutex(4)
        let part = Data(shared.reversed())
        let result = try engine.put(
          "streamed",
          .stream {
            rest.withLock { rest in
              rest -= 1
              return rest > 0 ? part : nil
            }
          }, .relaxed)
        model.put("streamed", Array(part + part + part), result, archives: false)
      },
      { (engine) throws in
        #expect(try engine.delete(["b/1"], .relaxed) == 1)
        model.versions["b/1"] = nil
      },
      { (engine) throws in
        _ = try engine.keep(upTo: 1, keys: ["a", "copy"], .relaxed)
        for key in ["a", "copy"] { model.versions[key] = model.versions[key].map { Array($0.prefix(2)) } }
      },
      { (engine) throws in
        #expect(try engine.delete(prefix: "c/", .relaxed) == 24)
        for key in model.versions.keys where key.hasPrefix("c/") { model.versions[key] = nil }
      },
      { (engine) throws in
        let changes: [BlobChange] = [.put(PutItem(key: "d", data: Data(shared))), .delete("b/2")]
        let results = try engine.change(changes, .relaxed)
        model.put("d", shared, try #require(results.first ?? nil), archives: false)
        model.versions["b/2"] = nil
      },
    ]
    for round in 0..<2 {
      for (index, step) in steps.enumerated() {
        // Each step by each of them, and most changes are of what the other did.
        try step(pair.both[(index + round) % 2])
        for engine in pair.both.reversed() { try ModelTests.check(engine, model) }
        try pair.run(between)
        for engine in pair.both { try ModelTests.check(engine, model) }
        #expect(try answers(of: pair.one) == answers(of: pair.two), "step \(index) of round \(round)")
      }
    }
    #expect(try pair.two.statistics().keyCount == model.versions.values.count { !$0.isEmpty })
    try pair.close()
    let reopened = try pair.place.engine(Pair.environment)
    try ModelTests.check(reopened, model)
    try reopened.close()
  }

  /// V1 and V4: fails if what is settled is lost from views or counted twice, or if no process settles.
  @Test("is whole while there are more records than tails hold, and the tails stay short")
  func manyRecords() throws {
    let pair = try Pair()
    let countOfBatch = 450
    var count = 0
    let before = pair.one.slots().count
    for round in 0..<24 {
      let (engine, other) = round % 3 == 0 ? (pair.two, pair.one) : (pair.one, pair.two)
      let items = (0..<countOfBatch).map { PutItem(key: String(format: "k%05d", count + $0), data: Data()) }
      let results = try engine.put(items, .relaxed)
      count += results.count
      for engine in [other, engine] {
        #expect(try engine.version(items[countOfBatch - 1].key, nil)?.id == results.last?.version.id)
        // A look has brought the tails up to what was settled.
        let size = engine.catalog.tails.size
        #expect(size.recordCount < Tails.recordCountMax && !engine.hasLongTails, "round \(round)")
      }
    }
    #expect(count > 2 * Tails.recordCountMax)
    let expected = (0..<count).map { String(format: "k%05d", $0) }
    for engine in pair.both { #expect(try engine.keys("", after: nil, limit: .max).map(\.key) == expected) }
    #expect(pair.one.slots().count <= before + 2)
    try pair.close()
  }

  /// V4: fails if only records are counted.
  @Test("has short tails also when there are few records with many bytes")
  func manyBytes() throws {
    // Each blob is one chunk, kept as it is.
    let pair = try Pair(
      options: StoreOptions(averageChunkByteCount: 1 << 20, codec: .none, usesSimilarity: false))
    let byteCount = 1 << 20
    for index in 0..<Int(Tails.byteCountMax) / byteCount + 3 {
      let data = Data(repeating: UInt8(index), count: byteCount)
      _ = try pair.one.put("k\(index)", .data(data), .relaxed)
      for engine in pair.both {
        #expect(try engine.version("k\(index)", nil)?.byteCount == Int64(byteCount))
        let size = engine.catalog.tails.size
        #expect(size.byteCount < Tails.byteCountMax && !engine.hasLongTails, "put \(index)")
      }
    }
    try pair.close()
  }

  /// V4: fails if only long tails are settled: a process that opens the store would read the rest.
  @Test("has short tails also when they have grown slowly, whatever the clock says")
  func oldTails() throws {
    let tenths = Atomic<Int>(0)
    var environment = Pair.environment
    environment.time = PassingTime(now: { Double(tenths.load(ordering: .relaxed)) / 10 }, wait: { _ in })
    let pair = try Pair(environment)
    func put(_ engine: Engine, at time: Int) throws -> Int {
      tenths.store(time, ordering: .relaxed)
      _ = try engine.put("k", [UInt8(time % 200)])
      return engine.catalog.tails.size.recordCount
    }
    #expect(try put(pair.one, at: 0) > 0)
    #expect(try put(pair.one, at: 5) > 0)
    #expect(try put(pair.one, at: 9) > 0)
    #expect(try put(pair.one, at: 11) == 0)
    #expect(try put(pair.one, at: 12) > 0)
    #expect(try put(pair.one, at: 21) > 0)
    #expect(try put(pair.one, at: 23) == 0)
    #expect(try put(pair.one, at: 24) > 0)
    // Those of another process are settled too.
    #expect(try pair.two.data("k", nil) == Data([24]))
    #expect(try put(pair.two, at: 30) > 0)
    #expect(try put(pair.two, at: 60) == 0)
    #expect(try put(pair.two, at: 61) > 0)
    // The clock goes back.
    #expect(try put(pair.two, at: 3) == 0)
    for engine in pair.both { #expect(try engine.data("k", nil) == Data([3])) }
    try pair.close()
  }

  /// V1: fails if rows of the tails and of the database are not merged in the order of bytes. Also fails if a row of a
  /// tail does not stand for the one in the database.
  @Test(
    "lists keys and versions in order, those in the catalog between those in tails",
    arguments: [1, 500, 1_000])
  func merging(_ limit: Int) throws {
    let pair = try Pair()
    let keyCount = limit == 1 ? 60 : 1_300
    func key(_ index: Int) -> String { String(format: "m/%04d", index) }
    func put(_ engine: Engine, _ indices: [Int], _ text: String) throws {
      let items = indices.map { PutItem(key: key($0), data: Data(text.utf8)) }
      _ = try engine.put(items, PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    }
    try put(pair.one, (0..<keyCount).filter { $0 % 2 == 0 }, "first")
    try pair.one.catalog.settle()
    // From here on all is in tails of two packs.
    try put(pair.two, (0..<keyCount).filter { $0 % 2 == 1 }, "first")
    try put(pair.one, (0..<keyCount).filter { $0 % 6 == 0 }, "second")
    let deleted = (0..<keyCount).filter { $0 % 10 == 4 }
    #expect(try pair.two.delete(deleted.map(key), .relaxed) == deleted.count)
    let expected = (0..<keyCount).filter { $0 % 10 != 4 }
    for engine in pair.both {
      var pages: [[KeyEntry]] = []
      repeat {
        pages.append(try engine.keys("", after: pages.last?.last?.key, limit: limit))
      } while pages.last?.isEmpty == false
      #expect(pages.dropLast(2).allSatisfy { $0.count == limit })
      let entries = pages.joined()
      #expect(entries.map(\.key) == expected.map(key))
      #expect(entries.map(\.versionCount) == expected.map { $0 % 6 == 0 ? 2 : 1 })
      let some = try engine.keys(.bytes("m/00"), after: key(7), limit: 9)
      #expect(some.map(\.key) == expected.filter { $0 > 7 }.prefix(9).map(key))
    }
    // Prefixes end inside of a page and between two.
    let gone = expected.filter { key($0).hasPrefix("m/00") }
    #expect(try pair.one.delete(prefix: .bytes("m/00"), .relaxed) == gone.count)
    #expect(try pair.two.keys(.bytes("m/00"), after: nil, limit: 9).isEmpty)
    #expect(try pair.two.delete(prefix: "m/", .relaxed) == expected.count - gone.count)
    for engine in pair.both {
      #expect(try engine.keys("", after: nil, limit: 9).isEmpty)
      #expect(try engine.statistics().keyCount == 0)
      try engine.catalog.settle()
      #expect(try engine.keys("", after: nil, limit: 9).isEmpty)
    }
    try pair.close()
  }

  /// V1: the same for the versions of one key.
  @Test("has the versions of a key in order, wherever they are")
  func versions() throws {
    let pair = try Pair()
    var ids: [BlobVersion.ID] = []
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    for index in 0..<40 {
      let result = try pair.both[index % 2].put("k", [UInt8(index)], options)
      ids.insert(result.version.id, at: 0)
      if index % 9 == 8 { try pair.both[index / 9 % 2].catalog.settle() }
      for engine in pair.both {
        #expect(try engine.versions("k").map(\.id) == ids)
        #expect(try engine.data("k", nil) == Data([UInt8(index)]))
        #expect(try engine.keys(.bytes("k"), after: nil, limit: 2).map(\.versionCount) == [index + 1])
      }
    }
    _ = try pair.one.keep(upTo: 5, keys: ["k"], .relaxed)
    for engine in pair.both {
      #expect(try engine.versions("k").map(\.id) == Array(ids.prefix(6)))
      #expect(try engine.version("k", ids[7]) == nil)
    }
    try pair.close()
  }

  /// V1 and V2: fails if a commit is published in parts, or if rows are taken from an older snapshot than was shown
  /// before. Also fails if a slot is freed between snapshot and tails and the view lacks what was in it.
  @Test("shows all of a commit or nothing, and never less than the one before, while others settle and seal")
  func growing() throws {
    let pair = try Pair()
    let keys = (0..<20).map { "batch/\($0)" }
    let isDone = Atomic<Bool>(false)
    let lastRound = 250
    let lookCount = Atomic<Int>(0)
    @Sendable func round(_ engine: Engine) throws -> Int {
      let entries = try engine.keys("batch/", after: nil, limit: .max)
      let rounds = Set(entries.map { Int(String(decoding: $0.current.metadata, as: UTF8.self)) ?? -1 })
      if rounds.isEmpty { return 0 }
      guard entries.count == keys.count, rounds.count == 1, let round = rounds.first else {
        throw Unexpected("\(entries.count) keys of rounds \(rounds.sorted())")
      }
      return round
    }
    let look: @Sendable (Engine) throws -> Void = { engine in
      var last = 0
      repeat {
        let found = try round(engine)
        guard found >= last else { throw Unexpected("round \(found) after round \(last)") }
        last = found
        lookCount.wrappingAdd(1, ordering: .relaxed)
      } while !isDone.load(ordering: .acquiring)
      guard try round(engine) == lastRound else { throw Unexpected("the last commit is not there") }
    }
    try together([
      {
        defer { isDone.store(true, ordering: .releasing) }
        for number in 1...lastRound {
          let metadata = Array("\(number)".utf8)
          let items = keys.map { PutItem(key: $0, data: Data("\(number)".utf8), metadata: metadata) }
          _ = try pair.both[number % 2].put(items, .relaxed)
          if number % 25 == 0 { try pair.both[number / 25 % 2].writer.rollOver() }
          if number % 60 == 0 { try pair.both[number / 60 % 2].catalog.rebuild(because: nil) }
        }
      },
      {
        repeat {
          try pair.two.catalog.settle()
          // A thread that waits for the same lock has a chance.
          Thread.sleep(forTimeInterval: 0.000_5)
        } while !isDone.load(ordering: .acquiring)
      },
      { try look(pair.one) },
      { try look(pair.two) },
    ])
    #expect(lookCount.load(ordering: .relaxed) >= 2)
    #expect(try round(pair.one) == lastRound && round(pair.two) == lastRound)
    #expect(try pair.one.statistics().versionCount == keys.count)
    try pair.close()
  }

  /// V1: fails if a thread leaves a pack at what another thread has read of it meanwhile, which is less.
  @Test("has what was published last, though another thread has read the pack only up to an earlier commit")
  func readByTwo() throws {
    let isArmed = Atomic<Bool>(false)
    let openCount = Atomic<Int>(0)
    let waiting = DispatchSemaphore(value: 0)
    let turns = [DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)]
    var environment = Pair.environment
    // Two looks stop before they open the pack.
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard isArmed.load(ordering: .acquiring), call == "open",
        path.lastComponent?.string.hasSuffix(".pack") ?? false
      else { return }
      let number = openCount.add(1, ordering: .relaxed).oldValue
      guard number < turns.count else { return }
      waiting.signal()
      turns[number].wait()
    }
    let pair = try Pair(environment)
    _ = try pair.one.put("a", [1])
    isArmed.store(true, ordering: .releasing)
    let found = Mutex<[String: Bool]>([:])
    let done = DispatchSemaphore(value: 0)
    for key in ["a", "b"] {
      if key == "b" { _ = try pair.one.put(key, [2]) }
      Thread.detachNewThread {
        let isThere = (try? pair.two.version(key, nil)) != nil
        found.withLock { $0[key] = isThere }
        done.signal()
      }
      try #require(waiting.wait(timeout: .now() + 60) == .success)
    }
    for turn in turns {
      turn.signal()
      done.wait()
    }
    #expect(found.withLock { $0 } == ["a": true, "b": true])
    #expect(try pair.two.version("b", nil) != nil)
    try pair.close()
  }

  /// V3: fails if a view looks at files to see whether the catalog was replaced or a pack has grown. Now and then, by
  /// the clock, it does look whether the table of open packs was removed.
  @Test("is taken without a system call when nothing has changed", arguments: [[], Weaknesses.ignoresCounts])
  func noCalls(_ weaknesses: Weaknesses) throws {
    let calls = Mutex<[String]>([])
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      if call == "status", path.lastComponent?.string == "live" { return }
      calls.withLock { $0.append("\(call) \(path)") }
    }
    var environment = Pair.environment
    environment.files = files
    environment.catalogFiles = files
    environment.weaknesses = weaknesses
    let pair = try Pair(environment)
    _ = try pair.one.put("settled", [1])
    try pair.one.catalog.settle()
    for index in 0..<5 { _ = try pair.both[index % 2].put("k\(index)", [UInt8(index)]) }
    func look(_ engine: Engine) throws {
      #expect(try engine.version("k3", nil)?.byteCount == 1)
      #expect(try engine.version("none", nil) == nil)
      #expect(try engine.keys("", after: nil, limit: 9).count == 6)
    }
    for engine in pair.both { for _ in 0..<2 { try look(engine) } }
    let before = calls.withLock { $0.count }
    #expect(before > 0)
    for _ in 0..<20 { for engine in pair.both { try look(engine) } }
    let made = calls.withLock { Array($0[before...]) }
    #expect(made.isEmpty == weaknesses.isEmpty, "\(made)")
    // And what has changed is seen, by one read of its pack.
    _ = try pair.one.put("k5", [5])
    let last = calls.withLock { $0.count }
    #expect(try pair.two.version("k5", nil)?.byteCount == 1)
    let looked = calls.withLock { Array($0[last...]) }
    #expect(looked.count { $0.hasPrefix("read ") } == 1, "\(looked)")
    #expect(looked.count == 1 || !weaknesses.isEmpty, "\(looked)")
    try pair.close()
  }

  /// V5: fails if applying records to rows in memory, to the catalog after that, or to a rebuilt catalog comes to
  /// anything else.
  @Test("has the same rows before settling, after it, and in a catalog made anew", arguments: 0..<3)
  func sameRows(_ round: Int) throws {
    let differences = try differences(round)
    #expect(differences == [])
  }

  /// V5: fails if an attempt to settle applies again what the one before has applied in the same transaction.
  @Test("counts each record once, though a part of a tail is read again while it is settled")
  func forgottenPart() throws {
    let place = try StorePlace()
    let engine = try place.engine(Pair.environment)
    let table = try #require(engine.catalog.live.table)
    let header = PackHeader(
      name: PackName(writer: 7, sequence: 1), storeID: engine.header.storeID,
      digestAlgorithm: engine.header.digestAlgorithm, created: 1)
    let writer = try PackWriter(header: header, backend: engine.backend, codecs: engine.codecs)
    let keys = ["a", "b", "c"].map { Array($0.utf8) }
    var commits: [(record: PackRecord, end: Int64)] = []
    for (index, key) in keys.enumerated() {
      let ref = RefRecord(
        key: key, version: Stamp(time: UInt64(index) + 1, writer: 7), replaced: .none,
        digest: BlobDigest.of(key), byteCount: 1, created: 1, metadata: [])
      commits.append((try writer.append(.ref(ref)), writer.byteCount))
    }
    try writer.flush()
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      _ = try transaction.addPack(PackRow(name: header.name, created: header.created))
    }
    let slot = try #require(try table.claim(header.name))
    for commit in [commits[0], commits[2]] {
      try engine.catalog.tails.publish(
        [commit.record], of: header, upTo: commit.end, in: slot, isPromised: false)
    }
    try engine.catalog.settle()
    let settled = try CatalogPlace.dump(engine.catalog, keys: keys, stamps: [], digests: [])
    #expect(settled.count == 6)
    try engine.catalog.rebuild(because: nil)
    #expect(try CatalogPlace.dump(engine.catalog, keys: keys, stamps: [], digests: []) == settled)
    slot.release()
    writer.file.close()
    try engine.close()
  }

  @Test(
    "V5: what is written to the catalog before settling makes its rows differ from those of one made anew")
  func unsettledRows() throws {
    var environment = Pair.environment
    environment.weaknesses = .skipsSettling
    let differences = try differences(0, environment)
    #expect(differences.contains { $0.hasPrefix("made anew") })
  }

  /// Where the rows of two engines differ from each other, or from those after settling and in a rebuilt catalog.
  private func differences(
    _ round: Int, _ environment: Engine.Environment = Pair.environment
  ) throws -> [String] {
    var differences: [String] = []
    var random = SplitMix64(seed: UInt64(round) + 40)
    let pair = try Pair(environment)
    let names = (0..<7).map { "key/\($0)" } + ["long-" + String(repeating: "y", count: 1_000)]
    let pool = (0..<5).map { _ in random.bytes(Int.random(in: 0...6_000, using: &random)) }
    var stamps: Set<Stamp> = []
    func rows(_ engine: Engine) throws -> [String] {
      var digests: [BlobDigest] = pool.map { BlobDigest.of($0) }
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachChunk { (digest, _) in
          digests.append(digest)
          return true
        }
      }
      let packs = try engine.packRows().map {
        "\($0.name) \($0.appliedByteCount) \($0.recordCount) \($0.isSealed)"
      }
      return try CatalogPlace.dump(
        engine.catalog, keys: names.map { Array($0.utf8) }, stamps: Array(stamps),
        digests: Array(Set(digests)))
        + packs.sorted()
    }
    func check(_ when: String) throws {
      func compare(_ found: [String], _ expected: [String], _ state: String) {
        if found != expected { differences.append("\(state), \(when)") }
      }
      let (one, two) = (try rows(pair.one), try rows(pair.two))
      compare(one, two, "at first")
      try pair.one.catalog.settle()
      compare(try rows(pair.one), one, "settled")
      compare(try rows(pair.two), one, "settled by the other")
      try pair.two.catalog.rebuild(because: nil)
      compare(try rows(pair.two), one, "made anew")
      compare(try rows(pair.one), one, "made anew by the other")
    }
    for step in 1...150 {
      let engine = pair.both[Int.random(in: 0..<2, using: &random)]
      let name = names.randomElement(using: &random) ?? ""
      switch Int.random(in: 0..<10, using: &random) {
      case 0..<6:
        let bytes = (pool.randomElement(using: &random) ?? []) + (step % 4 == 0 ? [UInt8(step)] : [])
        let options = PutOptions(
          durability: .relaxed, replacement: Bool.random(using: &random) ? .archiveCurrent : .replaceCurrent)
        stamps.insert(try engine.put(name, bytes, options).version.id.stamp)
      case 6:
        let items = names.shuffled(using: &random).prefix(4).map { PutItem(key: $0, data: Data(pool[0])) }
        for result in try engine.put(items, .relaxed) { stamps.insert(result.version.id.stamp) }
      case 7: _ = try engine.delete([name], .relaxed)
      case 8: _ = try engine.keep(upTo: 1, prefix: "key/", .relaxed)
      default: if step % 3 == 0 { try engine.writer.rollOver() }
      }
      if step % 50 == 0 { try check("after step \(step)") }
    }
    #expect(try rows(pair.one).contains { $0.contains("maskers") })
    try pair.close()
    return differences
  }

  /// What a process does first after it has not looked for long.
  enum First: CaseIterable { case look, put, settle, rebuild }

  /// V1 and V5: an open pack was sealed, collected and removed. Fails if records that were read of it before are
  /// believed, waited for, or written to the catalog.
  @Test("forgets what it has read of packs that were sealed and collected since", arguments: First.allCases)
  func collectedSince(_ first: First) throws {
    for settlesBetween in [false, true] {
      let pair = try Pair()
      var random = SplitMix64(seed: 6)
      let kept = random.bytes(700)
      _ = try pair.one.put("kept", kept)
      _ = try pair.one.put("a", [1])
      // Then what the other reads begins in the middle of the pack.
      if settlesBetween { try pair.one.catalog.settle() }
      _ = try pair.one.put("a", random.bytes(5_000))
      _ = try pair.one.put("gone", random.bytes(5_000))
      #expect(try pair.two.keys("", after: nil, limit: 9).map(\.key) == ["a", "gone", "kept"])
      let pack = try #require(pair.one.ownSlot()).pack
      // It does not look while all this happens.
      #expect(try pair.one.delete(["gone"], .relaxed) == 1)
      _ = try pair.one.put("a", [2])
      try pair.one.writer.rollOver()
      for _ in 0..<2 {
        let report = try pair.one.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        #expect(report.obstacles == [])
      }
      #expect(try !pair.one.packRows().contains { $0.name == pack })
      let before = try contents(of: pair.one)
      let found = try ending { () throws -> [String] in
        switch first {
        case .look: break
        case .put: _ = try pair.two.put("a", [2])
        case .settle: try pair.two.catalog.settle()
        case .rebuild: try pair.two.catalog.rebuild(because: nil)
        }
        return try contents(of: pair.two)
      }
      #expect(found?.count == before.count, "settled between: \(settlesBetween)")
      for engine in pair.both {
        #expect(try engine.keys("", after: nil, limit: 9).map(\.key) == ["a", "kept"])
        #expect(try engine.data("a", nil) == Data([2]) && engine.data("kept", nil) == Data(kept))
        #expect(try !engine.packRows().contains { $0.name == pack })
        try engine.catalog.settle()
        #expect(try !engine.packRows().contains { $0.name == pack })
        #expect(try engine.verify().damaged.isEmpty)
      }
      try pair.close()
    }
  }

  /// V1: fails if rows are told apart by the address of the database they belong to, which the next may have again.
  @Test("is of the catalog in use, however often that was made anew since the last one")
  func rebuiltOften() throws {
    let pair = try Pair()
    for round in 0..<12 {
      for index in 0..<6 { _ = try pair.one.put("k\(index)", [UInt8(round), UInt8(index)]) }
      #expect(try pair.two.data("k5", nil) == Data([UInt8(round), 5]))
      // No view looks meanwhile.
      for _ in 0..<1 + round % 4 { try pair.two.catalog.rebuild(because: nil) }
      for engine in pair.both {
        let found = try ending { () throws in try engine.keys("", after: nil, limit: 9).map(\.key) }
        #expect(found == (0..<6).map { "k\($0)" }, "round \(round)")
      }
    }
    try pair.close()
  }
}

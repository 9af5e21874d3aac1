import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// Processes that are killed at any moment, against what each had been told was done.
@Suite("Kills", .serialized)
struct KillTests {
  static let seconds = ProcessInfo.processInfo.environment["BLOB_STORAGE_SOAK_SECONDS"].flatMap(Double.init)
  static let seed = TestSeed.choose()
  /// Steps of each writer in a daily run, enough for some kills. The crash tests try what each kill may leave: here the
  /// processes, the locks and the database are real.
  static let stepCount = 14

  /// The processes that still write.
  private final class Writers: Sendable {
    let count = Atomic<Int>(3)
  }

  @Test("processes that import, put, read, keep, delete and collect lose nothing of what was said to be done")
  func kills() async throws {
    let workshop = try await Workshop(options: ["--chunk-size", "4096"])
    let end = Date().addingTimeInterval(Self.seconds ?? .infinity)
    let writers = Writers()
    print("kills with BLOB_STORAGE_SEED=\(Self.seed)")
    let actors = try await withThrowingTaskGroup(of: KilledActor.self) { group in
      for number in 0..<3 {
        group.addTask {
          var actor = KilledActor(workshop, number: number, seed: Self.seed &+ UInt64(number) &* 7_919)
          defer { writers.count.subtract(1, ordering: .relaxed) }
          var count = 0
          while Self.seconds == nil ? count < Self.stepCount : Date() < end {
            try await actor.step()
            count += 1
          }
          return actor
        }
      }
      group.addTask {
        var actor = KilledActor(workshop, number: 9, seed: Self.seed &+ 99)
        while writers.count.load(ordering: .relaxed) > 0 { try await actor.collect() }
        return actor
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    try await workshop.expect(0, ["verify"])
    for actor in actors { try await actor.checkAll() }
    try await workshop.expect(0, ["gc"])
    try await workshop.expect(0, ["gc"])
    try await workshop.expect(0, ["verify"])
    // Nothing of it was in the catalog alone.
    try FileManager.default.removeItem(atPath: workshop.path("store/catalog"))
    for actor in actors { try await actor.checkAll() }
    let keyCount = actors.reduce(0) { $0 + $1.model.count { !$0.value.isEmpty } }
    #expect(try await workshop.expect(0, ["list"]).lines.count == keyCount)
    let counts = actors.reduce(into: [:]) { $0.merge($1.counts, uniquingKeysWith: +) }
    #expect(counts["killed", default: 0] > 0)
    let text = counts.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
    print("counts after kills: \(text.joined(separator: ", "))")
  }
}

/// Runs the tool over and over on keys of its own, kills it now and then, and knows what must be there.
struct KilledActor {
  /// Keys that a command changes together: all or none.
  typealias Change = [String: [UInt64]]

  /// The contents of each key's versions, newest first, by their seeds.
  private(set) var model: [String: [UInt64]] = [:]
  private(set) var counts: [String: Int] = [:]
  private let workshop: Workshop
  private let number: Int
  private var generator: SplitMix64
  /// Seconds that a command took, by its name.
  private var durations: [String: Double] = [:]
  private var seedByDigest: [String: UInt64] = [:]

  init(_ workshop: Workshop, number: Int, seed: UInt64) {
    self.workshop = workshop
    self.number = number
    generator = SplitMix64(seed: seed)
  }

  /// Contents that all actors share, so that chunks are shared too, of lengths from nothing to a third of a MiB.
  static func content(_ seed: UInt64) -> Data {
    let count = [0, 10, 3_000, 20_000, 70_000, 300_000][Int(seed % 6)]
    // Halves that several contents have in common.
    return noise(count / 2, seed: seed % 5) + noise(count - count / 2, seed: seed)
  }

  /// A content's seed; what is empty is the same for all of them.
  private mutating func drawnContent() -> UInt64 {
    let seed = UInt64(generator.below(40))
    return seed % 6 == 0 ? 0 : seed
  }

  // MARK: Commands

  mutating func step() async throws {
    let keys = (0..<2).map { _ in "\(number)/\(generator.below(6))" }
    let seed = drawnContent()
    switch generator.below(12) {
    case 0..<4: try await put(keys[0], seed, archives: generator.below(2) == 0)
    case 4, 5: try await importTree(archives: generator.below(2) == 0)
    case 6: try await keep(Array(Set(keys)), upTo: generator.below(3))
    case 7: try await delete(Array(Set(keys)))
    case 8: try await putWhileStopped(keys[0], seed)
    default: try await get(keys[0])
    }
  }

  mutating func collect() async throws {
    switch generator.below(10) {
    case 0: _ = try await run(["verify"])
    case 1: _ = try await run(["repair"])
    case 2: _ = try await run(["stats"])
    default: _ = try await run(["gc"])
    }
  }

  private mutating func put(_ key: String, _ seed: UInt64, archives: Bool) async throws {
    try await change(
      ["put", key] + (archives ? ["--archive"] : []), input: Self.content(seed),
      [[key: afterPut(key, seed, archives: archives)]])
  }

  private func afterPut(_ key: String, _ seed: UInt64, archives: Bool) -> [UInt64] {
    [seed] + (model[key] ?? []).dropFirst(archives ? 0 : 1)
  }

  private mutating func importTree(archives: Bool) async throws {
    let folder = "tree\(number)"
    var changes: [Change] = []
    for index in 0..<(2 + generator.below(8)) {
      let seed = drawnContent()
      // Another inode each time, so that the file is read.
      try? FileManager.default.removeItem(atPath: workshop.path("\(folder)/\(index)"))
      try workshop.write(Self.content(seed), to: "\(folder)/\(index)")
      let key = "\(number)/t/\(index)"
      changes.append([key: afterPut(key, seed, archives: archives)])
    }
    defer { try? FileManager.default.removeItem(atPath: workshop.path(folder)) }
    let options = ["--force", "--prefix", "\(number)/t/"] + (archives ? ["--archive"] : [])
    try await change(["import", folder] + options, changes)
  }

  private mutating func keep(_ keys: [String], upTo count: Int) async throws {
    let known = keys.filter { model[$0]?.isEmpty == false }
    guard !known.isEmpty else { return }
    // Each key for itself: the tool goes from one to the next.
    let changes = known.map { [$0: Array((model[$0] ?? []).prefix(count + 1))] }
    try await change(["keep", "--up-to", "\(count)"] + known, changes)
  }

  private mutating func delete(_ keys: [String]) async throws {
    let known = keys.filter { model[$0]?.isEmpty == false }
    guard !known.isEmpty else { return }
    var after: Change = [:]
    for key in known { after[key] = [] }
    try await change(["delete"] + known, [after])
  }

  private mutating func get(_ key: String) async throws {
    let outcome = try await run(["get", key], allowed: [0, 3])
    guard outcome.status != -SIGKILL else { return }
    let expected = model[key]?.first.map(Self.content)
    #expect(outcome.status == (expected == nil ? 3 : 0), "\(key): \(outcome.errors)")
    #expect(outcome.bytes == expected ?? Data(), "\(key) reads as other bytes")
  }

  /// Stops a writer anywhere, has two collections run beside it, and lets it go on.
  private mutating func putWhileStopped(_ key: String, _ seed: UInt64) async throws {
    let after = afterPut(key, seed, archives: true)
    let writer = try await workshop.start(["put", key, "--archive"], input: Self.content(seed))
    await writer.stop(inSeconds: generator.share() * durations["put", default: 0.1])
    for _ in 0..<2 {
      let collector = try await workshop.start(["gc"])
      // A writer that is stopped inside a transaction keeps others waiting, and must not do so for ever.
      let waking = Task {
        try await Task.sleep(for: .seconds(1))
        writer.signal(SIGCONT)
      }
      let outcome = try await collector.outcome()
      #expect(outcome.status == 0, "gc beside a stopped writer: \(outcome.errors)")
      waking.cancel()
    }
    writer.signal(SIGCONT)
    let outcome = try await writer.outcome()
    #expect(outcome.status == 0, "put that was stopped: \(outcome.errors)")
    counts["stopped", default: 0] += 1
    model[key] = after
    try await check([key])
  }

  // MARK: Running and checking

  /// Runs a command that makes these changes: all of them if it says so, each or not if it was killed.
  private mutating func change(
    _ arguments: [String], input: Data = Data(), _ changes: [Change]
  ) async throws {
    let outcome = try await run(arguments, input: input)
    if outcome.status == 0 {
      for change in changes { model.merge(change) { $1 } }
      return
    }
    for change in changes {
      let keys = change.keys.sorted()
      var found: Change = [:]
      for key in keys { found[key] = try await observed(key) }
      let before = Dictionary(uniqueKeysWithValues: keys.map { ($0, model[$0] ?? []) })
      #expect(
        found == before || found == change, "\(arguments) was killed: before \(before), now \(found)")
      model.merge(found) { $1 }
    }
  }

  /// Runs the tool, and kills three of five commands, unless they end before.
  private mutating func run(
    _ arguments: [String], input: Data = Data(), allowed: Set<Int32> = [0]
  ) async throws -> Outcome {
    let name = arguments[0]
    let usual = durations[name, default: 0.2]
    let running = try await workshop.start(arguments, input: input)
    let isKilled = generator.below(5) < 3
    if isKilled { running.signal(SIGKILL, inSeconds: generator.share() * usual * 1.2) }
    let outcome = try await running.outcome()
    counts["commands", default: 0] += 1
    if outcome.status == -SIGKILL {
      counts["killed", default: 0] += 1
      counts["killed \(name)", default: 0] += 1
    } else {
      #expect(allowed.contains(outcome.status), "\(arguments): \(outcome.errors)")
      durations[name] = usual * 0.7 + outcome.seconds * 0.3
    }
    return outcome
  }

  private struct Line: Decodable {
    var digest: String
    var version: String
  }

  /// The contents of a key's versions, newest first, as the store has them.
  private mutating func observed(_ key: String) async throws -> [UInt64] {
    let outcome = try await workshop.run(["versions", key, "--json"])
    if outcome.status == 3 { return [] }
    #expect(outcome.status == 0, "versions \(key): \(outcome.errors)")
    var found: [UInt64] = []
    for line in try outcome.json(Line.self) {
      if seedByDigest[line.digest] == nil {
        let bytes = try await workshop.expect(0, ["get", "--digest", line.digest]).bytes
        let known = (0..<40).first(where: { Self.content($0) == bytes })
        let seed = try #require(known, "\(key) has bytes that no command put")
        seedByDigest[line.digest] = seed
      }
      if let seed = seedByDigest[line.digest] { found.append(seed) }
    }
    return found
  }

  private mutating func check(_ keys: [String]) async throws {
    for key in keys {
      let found = try await observed(key)
      #expect(found.map(Self.content) == (model[key] ?? []).map(Self.content), "\(key)")
    }
  }

  /// Compares every key with the model, and reads its current version.
  func checkAll() async throws {
    var actor = self
    try await actor.check(model.keys.sorted())
    for (key, seeds) in model {
      guard let seed = seeds.first else { continue }
      let bytes = try await workshop.expect(0, ["get", key]).bytes
      #expect(bytes == Self.content(seed), "\(key)")
    }
  }
}

extension SplitMix64 {
  mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }

  /// From 0 to 1.
  mutating func share() -> Double { Double(next() >> 11) / Double(1 << 53) }
}

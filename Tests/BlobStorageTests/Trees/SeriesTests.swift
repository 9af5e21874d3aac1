import BlobStorage
import BlobStorageTesting
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import SystemPackage
import Testing

/// Snapshots in the order in which they were recorded, whatever the clock says, and each series by itself.
@Suite("Series of snapshots")
struct SeriesTests {
  private static let day = 86_400.0
  private static let start = Date(timeIntervalSince1970: 1_780_000_000)

  private let temporary: TemporaryFolder
  private let test: TestStore
  private var store: BlobStore { test.store }

  init() async throws {
    temporary = try TemporaryFolder()
    test = try await TestStore.create(clock: TestClock(Self.start))
  }

  private func folder(_ name: String) -> String { temporary.path.string + "/" + name }

  private func write(_ text: String, to path: String) throws {
    let url = URL(filePath: folder(path))
    try FileManager.default.createDirectory(
      at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
    try Data(text.utf8).write(to: url)
  }

  /// Imports a folder after a file in it has changed.
  @discardableResult
  private func snapshot(
    _ name: String, of source: String = "tree", prefix: String = "", days: Double? = nil
  ) async throws -> TreeState {
    if let days { test.clock.now = Self.start.addingTimeInterval(days * Self.day) }
    try write(name, to: "\(source)/\(source)-file")
    let options = ImportOptions(prefix: prefix, stateName: name)
    return try #require(try await store.importFiles([folder(source)], options: options).state)
  }

  private func policy(_ change: (inout RetentionPolicy) -> Void) -> RetentionPolicy {
    var policy = RetentionPolicy()
    policy.timeZone = .gmt
    change(&policy)
    return policy
  }

  private func kept(_ change: (inout RetentionPolicy) -> Void) async throws -> [String] {
    let report = try await store.keep(policy(change), of: .all, isDryRun: true)
    return report.decisions.filter { $0.isKept }.compactMap { $0.state?.name }.sorted()
  }

  @Test(
    "an import under a clock that is ahead hides no later one, and drops none", arguments: [365.0, 3],
    [false, true])
  func ahead(_ daysAhead: Double, repairs: Bool) async throws {
    for day in 0..<4 { try await snapshot("day \(day)", days: Double(day)) }
    let wrong = try await snapshot("wrong", days: 3 + daysAhead)
    test.clock.now = Self.start.addingTimeInterval(3.5 * Self.day)
    #expect(try await store.snapshot()?.name == "day 3")
    #expect(try await store.snapshot(at: .distantFuture)?.name == "day 3")
    // A catalog that is built again does not follow the stamp of the future.
    if repairs { _ = try await store.repair() }
    try await snapshot("day 4", days: 4)
    #expect(try await store.snapshot()?.name == "day 4")
    #expect(try await kept { $0.last = 1 } == ["day 4", "wrong"])
    #expect(try await kept { $0.daily = 2 } == ["day 3", "day 4", "wrong"])
    #expect(
      try await kept { $0.within = .seconds(30 * Self.day) } == (0...4).map { "day \($0)" } + ["wrong"])
    let report = try await store.keep(policy { $0.last = 2 }, of: .all)
    #expect(report.ahead == [wrong] && report.droppedStateCount == 3)
    #expect(try await Set(store.states().map(\.name)) == ["day 3", "day 4", "wrong"])
    #expect(try await store.dropSnapshots([wrong]).droppedStateCount == 1)
    #expect(try await store.states().map(\.name) == ["day 3", "day 4"])
    #expect(try await store.data(forKey: "tree-file") == Data("day 4".utf8))
    try await test.close()
  }

  @Test("an import under a clock that went back is the last one, and stays while it is")
  func back() async throws {
    for day in 0..<3 { try await snapshot("day \(day)", days: Double(day)) }
    try await snapshot("back", days: -20_000)
    // Under the wrong clock, all others are ahead: nothing is dropped for them.
    #expect(try await kept { $0.last = 1 } == ["back", "day 0", "day 1", "day 2"])
    test.clock.now = Self.start.addingTimeInterval(2.1 * Self.day)
    #expect(try await store.states().map(\.name) == ["day 0", "day 1", "day 2", "back"])
    #expect(try await store.snapshot()?.name == "back")
    #expect(try await kept { $0.last = 1 } == ["back"])
    #expect(try await kept { $0.daily = 2 } == ["back", "day 2"])
    #expect(try await kept { $0.within = .seconds(1.5 * Self.day) } == ["back", "day 1", "day 2"])
    #expect(
      try await store.snapshot(at: Self.start.addingTimeInterval(1.5 * Self.day))?.name == "day 1")
    try await test.close()
  }

  @Test("of equal times the one that was recorded last is the last")
  func equalTimes() async throws {
    for name in ["c", "a", "b"] { try await snapshot(name) }
    #expect(try await store.states().map(\.name) == ["c", "a", "b"])
    #expect(try await store.snapshot()?.name == "b")
    #expect(try await store.snapshot(at: Self.start)?.name == "b")
    #expect(try await kept { $0.hourly = 5 } == ["b"])
    try await test.close()
  }

  @Test("a store that only has snapshots of the future still has a last one, and drops none")
  func allAhead() async throws {
    for day in 400..<403 { try await snapshot("day \(day)", days: Double(day)) }
    test.clock.now = Self.start
    #expect(try await store.snapshot()?.name == "day 402")
    #expect(try await kept { $0.last = 0 } == ["day 400", "day 401", "day 402"])
    try await test.close()
  }

  @Test(
    "retention thins out the snapshots of each source by itself, also under one prefix", arguments: ["", "p"])
  func sources(_ prefix: String) async throws {
    try write("old", to: "notes/deleted")
    var notes: [TreeState] = []
    for number in 0..<3 {
      notes.append(try await snapshot("notes \(number)", of: "notes", prefix: prefix))
      try await snapshot("photos \(number)", of: "photos", prefix: prefix)
    }
    let error = await #expect(throws: BlobStorageError.self) {
      try await store.snapshot(prefix: prefix)
    }
    #expect(error?.code == .ambiguousSnapshot)
    #expect(
      error?.message.contains(folder("notes")) == true && error?.message.contains(folder("photos")) == true)
    let start = prefix.isEmpty ? "" : "p/"
    // Only one of them has the key.
    #expect(try await store.snapshot(prefix: start + "notes-file")?.name == "notes 2")
    #expect(try await store.snapshot(of: notes[0].series) == notes[2])
    try await store.keep(
      policy {
        $0.daily = 7
        $0.weekly = 4
      }, of: .all)
    #expect(try await store.states().map(\.name) == ["notes 2", "photos 2"])
    #expect(try await store.version(of: start + "deleted", in: notes[2]) != nil)
    try await test.close()
  }

  @Test("the same folder is one series however it is written, and files of one folder are another")
  func writings() async throws {
    try write("a", to: "tree/a")
    try write("b", to: "tree/b")
    let paths = ["", "/", "/.", "/../tree"].map { folder("tree") + $0 }
    var folders: Set<TreeSeries> = []
    var files: Set<TreeSeries> = []
    for path in paths { folders.insert(try #require(try await store.importFiles([path]).state).series) }
    for name in ["a", "b"] {
      files.insert(try #require(try await store.importFiles([folder("tree/\(name)")]).state).series)
    }
    #expect(folders.count == 1 && files.count == 1 && folders.isDisjoint(with: files))
    #expect(try await store.states().first?.sources == [folder("tree")])
    try await test.close()
  }

  @Test("an incomplete or empty one displaces no complete one, and says what it lacks")
  func incomplete() async throws {
    try write("1", to: "tree/a")
    try write("1", to: "more/b")
    let paths = [folder("tree"), folder("more")]
    let whole = try #require(try await store.importFiles(paths).state)
    #expect(whole.isComplete && whole.failedPaths.isEmpty)
    test.clock.advance(by: .seconds(60))
    try FileManager.default.removeItem(atPath: folder("more"))
    let part = try #require(try await store.importFiles(paths).state)
    #expect(part.series == whole.series && !part.isComplete)
    #expect(part.failedPaths == [folder("more")] && part.failureCount == 1)
    #expect(try await store.states() == [whole, part])
    for (name, change) in Self.rules {
      let report = try await store.keep(policy(change), of: .all, isDryRun: true)
      #expect(report.droppedStateCount == 0, "\(name)")
    }
    // The next complete one displaces both.
    test.clock.advance(by: .seconds(60))
    try write("2", to: "more/b")
    let next = try #require(try await store.importFiles(paths).state)
    try await store.keep(policy { $0.last = 1 }, of: .all)
    #expect(try await store.states() == [next])
    // One without a file.
    try FileManager.default.removeItem(atPath: folder("tree/a"))
    try FileManager.default.removeItem(atPath: folder("more/b"))
    try FileManager.default.createDirectory(atPath: folder("more/empty"), withIntermediateDirectories: true)
    let empty = try #require(
      try await store.importFiles(paths, options: ImportOptions(allowsEmpty: true)).state)
    #expect(!empty.isComplete && empty.failureCount == 0)
    try await store.keep(policy { $0.last = 1 }, of: .all)
    #expect(try await store.states() == [next, empty])
    try await test.close()
  }

  private static let rules: [(String, @Sendable (inout RetentionPolicy) -> Void)] = [
    ("last", { $0.last = 1 }), ("hourly", { $0.hourly = 1 }), ("daily", { $0.daily = 1 }),
    ("within", { $0.within = .seconds(3_600) }),
  ]

  @Test("a copy keeps their order and series")
  func copied() async throws {
    let other = try await TestStore.create(clock: TestClock(Self.start.addingTimeInterval(10 * Self.day)))
    for day in 0..<3 { try await snapshot("day \(day)", days: Double(day)) }
    try await snapshot("back", days: -20_000)
    _ = try await store.copy(to: other.store)
    #expect(try await other.store.states() == store.states())
    #expect(try await other.store.snapshot()?.name == "back")
    try await other.close()
    try await test.close()
  }

  @Test("chosen ones are dropped with the versions that no other one has, unless they are held")
  func dropped() async throws {
    let states = [try await snapshot("1"), try await snapshot("2"), try await snapshot("3")]
    try await store.hold(.state(states[0]), as: "mine")
    let error = await #expect(throws: BlobStorageError.self) { try await store.dropSnapshots(states) }
    #expect(error?.code == .held && error?.message.contains("mine") == true)
    #expect(try await store.states() == states)
    #expect(try await store.releaseHold("mine"))
    let report = try await store.dropSnapshots([states[1], states[1]])
    #expect(report.droppedStateCount == 1 && report.droppedVersionCount == 1)
    #expect(try await store.dropSnapshots([states[1]]).droppedStateCount == 0)
    #expect(try await store.states() == [states[0], states[2]])
    let first = try #require(try await store.version(of: "tree-file", in: states[0]))
    #expect(try await store.data(of: first) == Data("1".utf8))
    try await test.close()
  }

  @Test("a version that only they have is readable by its key, until the last of them is dropped")
  func versions() async throws {
    let long = String(repeating: "long ", count: 100_000)
    try write(long, to: "tree/long")
    let first = try await snapshot("1")
    try write("short", to: "tree/long")
    try await snapshot("2")
    for (key, text) in [("tree-file", "1"), ("long", long)] {
      let version = try #require(try await store.version(of: key, in: first))
      #expect(try await store.versions(of: key).contains(version) == false)
      #expect(try await store.data(of: version) == Data(text.utf8))
      #expect(try await store.data(forKey: key, version: version.id) == Data(text.utf8))
      #expect(try store.blocking.data(of: version) == Data(text.utf8))
      #expect(try await store.version(version.id, of: key) == version)
      let reader = try #require(try await store.reader(of: version))
      #expect(reader.version == version && reader.byteCount == version.byteCount)
      reader.close()
    }
    let current = try #require(try await store.currentVersion(of: "long"))
    #expect(try await store.reader(forKey: "long")?.version == current)
    #expect(try await store.reader(for: current.digest)?.version == nil)
    let version = try #require(try await store.version(of: "long", in: first))
    try await store.dropSnapshots([first])
    #expect(try await store.data(of: version) == nil)
    #expect(try await store.reader(of: version) == nil)
    try await test.close()
  }

  @Test("the hours at the end of summer time are two, although they have one name")
  func summerTime() throws {
    var policy = policy { $0.hourly = 3 }
    policy.timeZone = try #require(TimeZone(identifier: "Europe/Berlin"))
    // 3:30, and twice 2:30.
    let dates = try ["2026-10-25T02:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T00:30:00Z"].map {
      try Date($0, strategy: .iso8601)
    }
    #expect(policy.reasons(for: dates, now: dates[0]) == [["hourly"], ["hourly"], ["hourly"]])
    // That day has 25 hours, and is one; the week before begins on Monday.
    policy.hourly = nil
    (policy.daily, policy.weekly) = (2, 2)
    let days = try [
      "2026-10-25T22:59:00Z", "2026-10-24T22:01:00Z", "2026-10-24T21:59:00Z", "2026-10-18T21:59:00Z",
    ]
    .map { try Date($0, strategy: .iso8601) }
    #expect(policy.reasons(for: days, now: days[0]) == [["daily", "weekly"], [], ["daily"], ["weekly"]])
  }
}

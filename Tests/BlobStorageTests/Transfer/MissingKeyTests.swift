import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import SystemPackage
import Testing

/// What an import does about files that are gone.
@Suite("An import that drops missing keys")
struct MissingKeyTests {
  private let place: StorePlace
  private let engine: Engine
  private var root: String { place.temporary.path.string }

  init() throws {
    place = try StorePlace()
    engine = try place.engine()
    for name in ["tree", "other"] { try SystemFiles().createDirectory(FilePath("\(root)/\(name)")) }
  }

  private func write(_ text: String, _ names: String...) throws {
    for name in names {
      let path = "\(root)/\(name)"
      try FileManager.default.createDirectory(
        atPath: FilePath(path).removingLastComponent().string, withIntermediateDirectories: true)
      try Data(text.utf8).write(to: URL(filePath: path))
    }
  }

  private func remove(_ name: String) throws { try FileManager.default.removeItem(atPath: "\(root)/\(name)") }

  @discardableResult
  private func run(
    _ names: [String] = ["tree"], drops: Bool = true, _ change: (inout ImportOptions) -> Void = { _ in }
  ) throws -> ImportReport {
    var options = ImportOptions(prefix: "p/", dropsMissing: drops)
    change(&options)
    return try Importer(engine, options, nil).run(names.map { "\(root)/\($0)" })
  }

  private func keys() throws -> [String] { try engine.keys("", after: nil, limit: 99).map(\.key) }

  @Test("drops the keys of files that are gone, whenever that was, and no others")
  func gone() async throws {
    try write("1", "tree/a", "tree/b", "tree/d/x", "tree/d/y", "other/o")
    _ = try engine.put("p/put", [1])
    _ = try engine.put("q", [1])
    let first = try #require(try run(drops: false).state)
    try run(["other"], drops: false)
    try remove("tree/a")
    #expect(try run(drops: false).droppedKeyCount == 0)
    try remove("tree/d")
    #expect(try run { $0.isDryRun = true }.droppedKeyCount == 3)
    #expect(try keys().count == 7)
    let report = try run()
    #expect(report.droppedKeyCount == 3)
    #expect(try keys() == ["p/b", "p/o", "p/put", "q"])
    #expect(try run().droppedKeyCount == 0)
    // The states still have them.
    try engine.close()
    let store = try await place.opened()
    let version = try await store.version(of: "p/d/x", in: first)
    #expect(version?.byteCount == 1)
    let folder = "\(root)/out"
    let export = try await store.exportFiles(
      to: folder, options: ExportOptions(prefix: "p/", stripped: "p/", state: first))
    #expect(export.fileCount == 4 && export.skipped == [])
    #expect(FileManager.default.contents(atPath: "\(folder)/a") == Data("1".utf8))
    try await store.close()
  }

  @Test("frees what it dropped together with the last state that has it", arguments: [false, true])
  func freed(drops: Bool) async throws {
    try engine.close()
    let store = try await place.opened()
    var random = SplitMix64(seed: 3)
    var versionCounts: [Int] = []
    for day in 0..<4 {
      try random.noise(200_000).write(to: URL(filePath: "\(root)/tree/log.\(day)"))
      if day > 0 { try remove("tree/log.\(day - 1)") }
      _ = try await store.importFiles(
        ["\(root)/tree"], options: ImportOptions(prefix: "p/", dropsMissing: drops))
      versionCounts.append(try await store.keys(prefix: "p/", limit: 99).count)
    }
    #expect(versionCounts == (drops ? [1, 1, 1, 1] : [1, 2, 3, 4]))
    var policy = RetentionPolicy()
    policy.last = 1
    #expect(try await store.keep(policy, of: .all).droppedStateCount == 3)
    _ = try await store.collectGarbage()
    _ = try await store.collectGarbage()
    let used = try await store.statistics().uniqueByteCount
    #expect(drops ? used < 300_000 : used > 700_000)
    #expect(try await store.data(forKey: "p/log.3")?.count == 200_000)
    try await store.close()
  }

  @Test("keeps keys that it cannot judge: below unreadable folders, left out, or not files any more")
  func unseen() throws {
    try write("1", "tree/a", "tree/closed/x", "tree/out/x", "tree/e.log", "tree/pipe", "tree/broken/x")
    try run()
    for name in ["a", "pipe"] { try remove("tree/\(name)") }
    #expect(mkfifo("\(root)/tree/pipe", 0o600) == 0)
    // Too deep for the walk, which fails for root, too.
    try remove("tree/closed/x")
    let deep = "\(root)/tree/closed" + String(repeating: "/d", count: 600)
    #expect(makeFolders(deep))
    let report = try run { $0.excluded = ["out/", "*.log"] }
    #expect(report.skipped.contains { $0.isFailure })
    #expect(report.droppedKeyCount == 2)
    #expect(try keys() == ["p/broken/x", "p/e.log", "p/out/x", "p/pipe"])
    // A path that is not there says nothing of any key.
    try remove("tree/broken")
    #expect(try run(["tree", "nowhere"]).droppedKeyCount == 0)
  }

  /// Foundation creates no path that is so long.
  private func makeFolders(_ path: String) -> Bool {
    let names = path.split(separator: "/")
    var folder = open("/", O_RDONLY)
    defer { close(folder) }
    for name in names {
      mkdirat(folder, String(name), 0o700)
      let next = openat(folder, String(name), O_RDONLY)
      close(folder)
      folder = next
      if folder < 0 { return false }
    }
    return true
  }

  @Test("keeps keys that are held, and drops them plainly if it records no state")
  func heldKeys() async throws {
    try write("1", "tree/a", "tree/b", "tree/c")
    try run()
    try engine.close()
    let store = try await place.opened()
    try await store.hold(.key("p/a"), as: "h")
    for name in ["a", "b"] { try remove("tree/\(name)") }
    let options = ImportOptions(prefix: "p/", recordsState: false, dropsMissing: true)
    #expect(try await store.importFiles(["\(root)/tree"], options: options).droppedKeyCount == 1)
    #expect(try await store.keys(limit: 99).map(\.key) == ["p/a", "p/c"])
    let state = try #require(try await store.states().first)
    await #expect(throws: BlobStorageError.self) { try await store.version(of: "p/b", in: state) }
    try await store.close()
  }

  @Test("refuses a source that has become empty, be it one of several, and changes nothing")
  func emptySource() throws {
    try write("1", "tree/a", "other/b")
    try run()
    try run(["tree", "other"])
    try remove("tree/a")
    let stateCount = try StateFile(engine).states().count
    // The last state of both still has the key, so nothing would be dropped.
    var error = #expect(throws: BlobStorageError.self) { try run() }
    #expect(error?.code == .sourceEmpty && error?.message.contains("tree") == true)
    #expect(try keys() == ["p/a", "p/b"] && StateFile(engine).states().count == stateCount)
    // An import that drops nothing is told by the state before.
    error = #expect(throws: BlobStorageError.self) { try run(drops: false) }
    #expect(error?.code == .sourceEmpty)
    try FileManager.default.createDirectory(
      atPath: "\(root)/tree/lost+found", withIntermediateDirectories: true)
    #expect(throws: BlobStorageError.self) { try run(drops: false) }
    #expect(try StateFile(engine).states().count == stateCount)
    let report = try run { $0.allowsEmpty = true }
    #expect(report.fileCount == 0 && report.state?.folderCount == 2)
    #expect(report.droppedKeyCount == 0)
    // One of several is empty, and a key would be dropped.
    error = #expect(throws: BlobStorageError.self) { try run(["tree", "other"]) }
    #expect(error?.code == .sourceEmpty && error?.message.contains("tree") == true)
    #expect(try keys() == ["p/a", "p/b"])
    #expect(try run(["tree", "other"]) { $0.allowsEmpty = true }.droppedKeyCount == 1)
    #expect(try keys() == ["p/b"])
    // Now that is as before.
    #expect(try run().fileCount == 0)
  }
}

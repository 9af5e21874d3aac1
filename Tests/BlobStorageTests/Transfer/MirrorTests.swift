import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Testing

/// What keeps a mirror from dropping what its source has lost.
@Suite("A mirror")
struct MirrorTests {
  private let from: CopyPlace
  private let to: CopyPlace

  init() throws {
    from = try CopyPlace(isRemote: false, packByteCount: 20_000)
    to = try CopyPlace(isRemote: false)
  }

  private func run(
    _ source: Engine, _ target: Engine, prefix: String = "", isForced: Bool = false, isDryRun: Bool = false
  ) throws -> CopyReport {
    try Copier(
      from: source, to: target,
      CopyOptions(prefix: prefix, isMirror: true, isForced: isForced, isDryRun: isDryRun)
    ).run()
  }

  private func keys(_ engine: Engine) throws -> [String] {
    try engine.keys("", after: nil, limit: .max).map(\.key)
  }

  /// How many keys the target has and the source lacks, and whether that is too many.
  @Test(
    "drops up to a tenth of the target's keys, and more only when it is forced",
    arguments: [(10, 0, false), (10, 1, false), (9, 1, true), (20, 2, false), (19, 2, true), (10, 10, true)])
  func manyKeys(_ count: Int, _ lackedCount: Int, _ isRefused: Bool) throws {
    let (source, target) = (try from.engine(), try to.engine())
    for index in 0..<count {
      if index >= lackedCount { _ = try source.put("\(index)", [UInt8(index)]) }
      _ = try target.put("\(index)", [1, UInt8(index)])
    }
    _ = try source.put("new", [1])
    if isRefused {
      let before = try contents(of: target)
      let error = #expect(throws: BlobStorageError.self) { try run(source, target) }
      #expect(error?.code == .wouldDropMany)
      #expect(error?.message.contains("\(lackedCount) of \(count) keys") == true)
      #expect(try contents(of: target) == before, "nothing was copied either")
    }
    let report = try run(source, target, isForced: isRefused)
    #expect(report.droppedKeyCount == lackedCount)
    #expect(try contents(of: target) == contents(of: source))
  }

  @Test("counts the keys of its prefix alone")
  func prefix() throws {
    let (source, target) = (try from.engine(), try to.engine())
    for index in 0..<50 { for engine in [source, target] { _ = try engine.put("b/\(index)", [1]) } }
    _ = try target.put("a/1", [1])
    #expect(throws: BlobStorageError.self) { try run(source, target, prefix: "a/") }
    #expect(try run(source, target, prefix: "b/").droppedKeyCount == 0)
    #expect(try run(source, target).droppedKeyCount == 1)
  }

  @Test("of a source that lost a pack is refused, and the target stays as it is")
  func lostPack() throws {
    var random = SplitMix64(seed: 1)
    let source = try from.engine()
    let target = try to.engine()
    for index in 0..<100 { _ = try source.put("\(index)", random.bytes(1_000)) }
    try runCopy(source, to: target)
    let packs = "\(from.folderPath)/packs"
    let names = try FileManager.default.contentsOfDirectory(atPath: packs).sorted()
    #expect(names.count > 3)
    try FileManager.default.removeItem(atPath: "\(packs)/\(names[1])")
    let before = try contents(of: target)
    let error = #expect(throws: BlobStorageError.self) { try run(source, target) }
    #expect(error?.code == .corrupted)
    #expect(error?.message.contains("--force") == true)
    #expect(try contents(of: target) == before)
    let planned = try run(source, target, isDryRun: true)
    #expect(planned.refusal == error?.message)
    // One that was opened since may know only that keys are missing.
    try source.close()
    #expect(throws: BlobStorageError.self) { try run(from.engine(), target) }
    #expect(try contents(of: target) == before)
  }

  @Test("of a source that loses a pack meanwhile drops no key that the source may only have lost")
  func lostMeanwhile() throws {
    var random = SplitMix64(seed: 4)
    let (source, target) = (try from.engine(), try to.engine())
    for index in 0..<100 { _ = try source.put("\(index)", random.bytes(1_000)) }
    try runCopy(source, to: target)
    _ = try target.put("own", [1])
    let packs = "\(from.folderPath)/packs"
    let names = try FileManager.default.contentsOfDirectory(atPath: packs).sorted()
    let before = try contents(of: target)
    let error = #expect(throws: BlobStorageError.self) {
      // It is whole when the mirror begins, and nothing has to be read of it.
      _ = try Copier(from: source, to: target, CopyOptions(isMirror: true)) { _ in
        try? FileManager.default.removeItem(atPath: "\(packs)/\(names[1])")
      }.run()
    }
    #expect(error?.code == .corrupted)
    #expect(try contents(of: target) == before)
  }

  @Test(
    "of a source with a version that is not copied drops only what the source has dropped, as a dry run says")
  func uncopied() throws {
    let (source, target) = (try from.engine(), try to.engine())
    for index in 0..<20 { _ = try source.put("\(index)", [UInt8(index)]) }
    try runCopy(source, to: target)
    _ = try target.put("own", [1])
    _ = try source.delete(["3"], .relaxed)
    var environment = Engine.Environment()
    environment.clock = WallClock { WallClock.system.now() + 2 * 86_400_000 }
    let ahead = try Engine(
      path: from.folderPath, configuration: StoreConfiguration(threadCount: 2), environment: environment)
    _ = try ahead.put("ahead", [1])
    try ahead.close()
    let planned = try run(source, target, isDryRun: true)
    let done = try run(source, target)
    for report in [planned, done] {
      #expect(report.damaged.map(\.key) == ["ahead"])
      #expect(report.droppedKeyCount == 1 && report.droppedVersionCount == 1)
      #expect(report.newVersionCount == 0 && report.unchangedVersionCount == 19)
    }
    #expect(planned.droppedKeys == ["3"])
    #expect(try target.versions("own").count == 1 && target.versions("3").isEmpty)
  }

  @Test("that is only looked at changes nothing, and says what it would do", arguments: [false, true])
  func dryRun(_ isForced: Bool) throws {
    var random = SplitMix64(seed: 2)
    let (source, target) = (try from.engine(), try to.engine())
    let shared = random.bytes(50_000)
    for index in 0..<5 { _ = try source.put("\(index)", shared + random.bytes(9_000)) }
    _ = try source.put("4", random.bytes(200), PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    _ = try source.put("empty", [])
    for key in ["4", "own/1", "own/2"] { _ = try target.put(key, shared) }
    let before = (try contents(of: target), try target.statistics())
    let planned = try run(source, target, isForced: isForced, isDryRun: true)
    #expect(try contents(of: target) == before.0)
    #expect(try target.statistics().chunkCount == before.1.chunkCount)
    #expect((planned.refusal == nil) == isForced)
    #expect(planned.droppedKeys == ["own/1", "own/2"])
    let done = try run(source, target, isForced: true)
    #expect(planned.keyCount == done.keyCount && planned.versionCount == done.versionCount)
    #expect(planned.newVersionCount == done.newVersionCount)
    #expect(planned.droppedVersionCount == done.droppedVersionCount)
    #expect(planned.droppedKeyCount == done.droppedKeyCount)
    #expect(planned.chunkCount == done.chunkCount)
    #expect(planned.newByteCount == done.newByteCount)
    #expect(done.droppedKeys == [])
  }

  @Test(
    "keeps the version that the target has until it has the one that takes its place",
    arguments: [false, true])
  func unreadableSuccessor(_ isMirror: Bool) throws {
    var random = SplitMix64(seed: 3)
    var source = try from.engine()
    let target = try to.engine()
    for index in 0..<20 { _ = try source.put("\(index)", random.bytes(500)) }
    try runCopy(source, to: target)
    _ = try target.put("own", [1])
    let old = try target.data("7", nil)
    let new = random.bytes(30_000)
    let digest = try source.put("7", new).version.digest
    let (pack, offset) = try #require(
      try source.catalog.read { (transaction) throws(BlobStorageError) -> (PackName, Int64)? in
        guard let row = try transaction.chunkRow(digest), let pack = try transaction.packRow(row.place.pack)
        else { return nil }
        return (pack.name, row.payloadOffset)
      })
    try source.close()
    let url = URL(filePath: "\(from.folderPath)/packs/\(pack.fileName)")
    var bytes = try Data(contentsOf: url)
    bytes[Int(offset) + 100] ^= 1
    try bytes.write(to: url)
    source = try from.engine()
    let report = try Copier(from: source, to: target, CopyOptions(isMirror: isMirror)).run()
    #expect(report.damaged.map(\.key) == ["7"])
    #expect(try target.data("7", nil) == old)
    #expect(try target.data("own", nil) != nil, "what the source has lost is not known yet")
    // Once it can be read, it takes the place.
    _ = try source.put("7", new)
    let again = try Copier(from: source, to: target, CopyOptions(isMirror: isMirror)).run()
    #expect(again.damaged == [])
    #expect(try target.data("7", nil) == Data(new))
    #expect(try target.versions("7").count == 1)
  }
}

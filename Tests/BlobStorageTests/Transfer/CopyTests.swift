import BlobStorage
import BlobStorageReports
import BlobStorageSharing
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

@Suite("A copy of a store", .serialized)
struct CopyTests {
  private static let options = StoreOptions(averageChunkByteCount: 1_024)

  /// Puts, drops and now and then collects.
  private func change(
    _ engine: Engine, isRemote: Bool, _ content: CopyContent, _ random: inout SplitMix64
  ) throws {
    for _ in 0..<15 {
      let key =
        "\(["a", "b/c", "ü"].randomElement(using: &random) ?? "")\(Int.random(in: 0..<5, using: &random))"
      switch Int.random(in: 0..<10, using: &random) {
      case 0..<4: _ = try engine.put(key, content.next(&random), .relaxed)
      case 4..<7:
        let options = PutOptions(
          durability: .relaxed, replacement: .archiveCurrent,
          codec: CodecKind.allCases.randomElement(using: &random), metadata: random.bytes(5))
        _ = try engine.put(key, content.next(&random), options)
      case 7: _ = try engine.delete([key], .relaxed)
      case 8: _ = try engine.keep(upTo: 1, keys: [key], .relaxed)
      default: if !isRemote { _ = try engine.collectGarbage() }
      }
    }
  }

  @Test("shows what the source shows, and a second one sends nothing", arguments: CopyPlace.pairs)
  func model(_ fromRemote: Bool, _ toRemote: Bool) throws {
    var random = SplitMix64.announced()
    let content = CopyContent(&random)
    let (from, to) = (
      try CopyPlace(isRemote: fromRemote, Self.options), try CopyPlace(isRemote: toRemote, Self.options)
    )
    let source = try from.engine()
    _ = try source.put("long", random.bytes(1_500_000), .relaxed)
    for round in 0..<3 {
      try change(source, isRemote: fromRemote, content, &random)
      let target = try to.engine("machine \(round)")
      // What the source has forgotten is nothing that it could tell.
      try runCopy(source, to: target, isMirror: !fromRemote)
      let expected = try contents(of: source)
      #expect(try contents(of: target) == expected)
      to.remote?.objects.forgetCounts()
      let again = try runCopy(source, to: target, isMirror: round % 2 == 0)
      #expect(again.chunkCount == 0 && again.storedByteCount == 0)
      #expect(again.newVersionCount == 0 && again.droppedVersionCount == 0)
      #expect(again.unchangedVersionCount == expected.count)
      #expect(to.remote?.objects.count(of: "put") ?? 0 == 0)
      #expect(try target.verify().damaged == [])
      try target.catalog.rebuild(because: nil)
      #expect(try contents(of: target) == expected)
      try target.close()
    }
  }

  @Test("takes over no blob whose manifest names the chunks of other bytes", arguments: CopyPlace.pairs)
  func otherBytes(_ fromRemote: Bool, _ toRemote: Bool) throws {
    var random = SplitMix64.announced()
    let (from, to) = (
      try CopyPlace(isRemote: fromRemote, Self.options), try CopyPlace(isRemote: toRemote, Self.options)
    )
    let source = try from.engine()
    let right = random.bytes(100_000)
    _ = try source.put("right", right, PutOptions())
    let wrong = BlobDigest.of(random.bytes(20), by: source.header.digestAlgorithm)
    try plantManifest("wrong", wrong, naming: BlobDigest.of(right), in: source)
    let target = try to.engine()
    let report = try runCopy(source, to: target)
    #expect(report.damaged.map(\.key) == ["wrong"] && report.damaged.map(\.digest) == [wrong])
    #expect(report.damaged.first?.reason.contains("names the chunks of other bytes") == true)
    #expect(try target.versions("wrong").isEmpty && !target.contains(wrong))
    #expect(try target.data("right", nil) == Data(right))
    #expect(try target.verify(.blobs).damaged == [])
    try target.close()
    try source.close()
  }

  @Test("keeps how chunks are stored: bases and codecs", arguments: CopyPlace.pairs)
  func stored(_ fromRemote: Bool, _ toRemote: Bool) throws {
    var random = SplitMix64.announced()
    let content = CopyContent(&random)
    let sourcePlace = try CopyPlace(isRemote: fromRemote)
    let source = try sourcePlace.engine()
    // Of another codec: what is copied keeps its own.
    let targetPlace = try CopyPlace(isRemote: toRemote, StoreOptions(codec: .zlib))
    let target = try targetPlace.engine()
    for index in 0..<40 { _ = try source.put("\(index)", content.next(&random), .relaxed) }
    try runCopy(source, to: target)
    #expect(try contents(of: target) == contents(of: source))
    let (before, after) = (try source.statistics(), try target.statistics())
    #expect(after.storedByteCount == before.storedByteCount)
    #expect(after.chunkCount == before.chunkCount)
    func based(_ engine: Engine) throws -> [BlobDigest: BlobDigest] {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        var based: [BlobDigest: BlobDigest] = [:]
        try transaction.forEachChunk { (digest, row) in
          based[digest] = row.base
          return true
        }
        return based
      }
    }
    #expect(try based(source).count > 3)
    #expect(try based(target) == based(source))
  }

  @Test(
    "continues by what the target has, however often its object store fails",
    arguments: [false, true])
  func resumed(_ fromRemote: Bool) throws {
    var random = SplitMix64.announced()
    let content = CopyContent(&random)
    let sourcePlace = try CopyPlace(isRemote: fromRemote, Self.options)
    let source = try sourcePlace.engine()
    for index in 0..<30 {
      for _ in 0..<2 {
        let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
        _ = try source.put("key \(index)", .data(Data(content.next(&random) + random.bytes(20_000))), options)
      }
    }
    let to = try RemotePlace(Self.options)
    let expected = try contents(of: source)
    let chunkCount = try source.statistics().chunkCount
    var sentCount = 0
    var attemptCount = 0
    while attemptCount < 100 {
      attemptCount += 1
      var environment = Engine.Environment()
      environment.packByteCountTarget = 50_000
      environment.worksInline = true
      // Some die, some are closed, and some lose their folder.
      if attemptCount % 5 == 0 { try to.removeState("one") }
      do {
        let target = try Engine(
          path: to.statePath("one"), configuration: StoreConfiguration(threadCount: 2),
          environment: environment,
          remote: Engine.Remote(
            objects: LimitedObjects(to.objects, putCount: 3),
            configuration: RemoteConfiguration(interval: .zero)))
        defer { if attemptCount % 3 == 0 { try? target.close() } }
        sentCount = try runCopy(source, to: target).chunkCount
        break
      } catch let error as BlobStorageError { #expect(error.code == .io, "\(error)") }
      // What another machine sees is whole keys, as they are in the source.
      try to.removeState("other")
      let seen = try contents(of: to.engine("other"))
      #expect(seen.allSatisfy { expected.contains($0) })
    }
    #expect(attemptCount > 2)
    #expect(sentCount < chunkCount)
    let other = try to.engine("another")
    #expect(try contents(of: other) == expected)
    #expect(try other.verify().damaged == [])
  }
}

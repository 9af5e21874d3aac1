import ArgumentParser
import BlobStorage

/// `gc`: removes what no version needs.
struct CollectCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "gc", abstract: "Removes what no version needs; safe at any time.",
    discussion: "A cache is trimmed to its limits first: see `blobtool cache`.")

  @Flag(help: "Only say what would be removed.")
  var dryRun = false

  @Option(help: ArgumentHelp("Before that, keep up to N archived versions of every key.", valueName: "n"))
  var keep: Int?

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    guard keep ?? 0 >= 0 else { throw ValidationError("--keep is 0 or more") }
  }

  func perform(on store: BlobStore) async throws {
    let report = try await shared.withProgress { meter in
      try await store.collectGarbage(
        CollectionOptions(isDryRun: dryRun, archivedCountMax: keep), progress: meter.handler)
    }
    if shared.json {
      try JSONText.print(Output(report))
    } else {
      var facts = FactTable()
      facts.add(dryRun ? "would free" : "freed", byteCount: report.freedByteCount)
      facts.add(dryRun ? "chunks to delete" : "chunks deleted", report.deletedChunkCount)
      facts.add(dryRun ? "packs to delete" : "packs deleted", report.deletedPackCount)
      facts.add(dryRun ? "packs to compact" : "packs compacted", report.compactedPackCount)
      facts.add(dryRun ? "chunks to encode anew" : "chunks encoded anew", report.reencodedChunkCount)
      facts.add(dryRun ? "dictionaries to train" : "dictionaries trained", report.addedDictionaryCount)
      facts.add(
        dryRun ? "chunks to encode with one" : "chunks encoded with one", report.dictionaryChunkCount)
      if report.evictedKeyCount > 0 { facts.add("keys evicted", report.evictedKeyCount) }
      facts.add("garbage left", byteCount: report.garbageByteCount)
      facts.add("time", HumanText.duration(report.seconds))
      try facts.print()
    }
    guard let first = report.obstacles.first else { return }
    for obstacle in report.obstacles { StandardError.say("kept: \(obstacle)") }
    throw Failure(
      ExitStatus.damaged, "Nothing more was removed (\(first)); run `blobtool verify`.")
  }

  private struct Output: Encodable {
    var dryRun: Bool
    var chunksDeleted: Int
    var packsDeleted: Int
    var packsCompacted: Int
    var chunksReencoded: Int
    var dictionariesTrained: Int
    var dictionaryChunks: Int
    /// Only if keys of a cache were evicted.
    var keysEvicted: Int?
    var freedByteCount: Int64
    var garbageByteCount: Int64
    var seconds: Double

    init(_ report: CollectionReport) {
      dryRun = report.isDryRun
      chunksDeleted = report.deletedChunkCount
      packsDeleted = report.deletedPackCount
      packsCompacted = report.compactedPackCount
      chunksReencoded = report.reencodedChunkCount
      dictionariesTrained = report.addedDictionaryCount
      dictionaryChunks = report.dictionaryChunkCount
      keysEvicted = report.evictedKeyCount > 0 ? report.evictedKeyCount : nil
      freedByteCount = report.freedByteCount
      garbageByteCount = report.garbageByteCount
      seconds = report.seconds.roundedToMilliseconds
    }
  }
}

import ArgumentParser
import BlobStorage
import BlobStorageCache
import Synchronization

/// `gc`: removes what no version needs.
struct CollectCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "gc", abstract: "Collects garbage: removes what no version needs. Safe at any time.",
    discussion: """
      A pack with less than 25 % garbage stays: copying the rest of it would cost more than it frees.

      A cache is trimmed to its limits first: see `blobtool cache`.

      With --recompress, it then encodes chunks again, as hard as the codec can. It begins with the packs that gain \
      most, and takes 20 to 50 times as long as storing the chunks did. The next run continues an interrupted one. With \
      --dry-run, it encodes samples of each pack, and estimates how many packs it would store again and what that saves.
      """)

  @OptionGroup var dry: DryRunOption

  @Option(
    help: ArgumentHelp(
      "First keep up to N archived versions of every key, and drop the others.", valueName: "n"))
  var keep: Int?

  @Option(
    help: ArgumentHelp(
      "In a bucket, first end a hung writer that gc has named. Its durable changes stay.",
      valueName: "writer"))
  var fence: [String] = []

  @Flag(help: "Then encode chunks again, as hard as the codec can.")
  var recompress = false

  @Option(help: ArgumentHelp("Stop recompressing after this time: 90s, 30m, 2h, 1d.", valueName: "duration"))
  var time: DurationArgument?

  @OptionGroup var shared: SharedOptions

  private var dryRun: Bool { dry.isDryRun }

  func validate() throws {
    guard keep ?? 0 >= 0 else { throw ValidationError("--keep is 0 or more") }
    if dryRun, !fence.isEmpty { throw ValidationError("--fence and --dry-run exclude each other") }
    if time != nil, !recompress { throw ValidationError("--time is for --recompress") }
  }

  func perform(on store: BlobStore) async throws {
    var options = GarbageCollectionOptions(
      isDryRun: dryRun, archivedVersionLimit: keep, recompresses: recompress, timeLimit: time?.value)
    options.fencedWriters = Set(fence)
    let report = try await shared.withProgress { [options] meter in
      let isTold = Atomic(false)
      return try await store.trimAndCollectGarbage(options) { progress in
        // A progress with a count is a wait for other machines.
        if progress.phase == "waiting", progress.totalCount == 0,
          !isTold.exchange(true, ordering: .relaxed)
        {
          meter.clear()
          shared.mention("waiting for another gc of this store to end")
        }
        meter.update(progress)
      }
    }
    try StandardOutput.unlessEnded { try print(report) }
    guard !report.obstacles.isEmpty else { return }
    for obstacle in report.obstacles { StandardError.say("kept: \(obstacle)") }
    throw Failure(ExitStatus.damaged, "Nothing more was removed; run `blobtool verify`.")
  }

  private func print(_ report: GarbageCollectionReport) throws {
    if shared.json { return try JSONText.print(report) }
    var facts = FactTable()
    facts.add(dryRun ? "would free" : "freed", byteCount: report.freedByteCount)
    facts.add(dryRun ? "chunks to delete" : "chunks deleted", report.deletedChunkCount)
    facts.add(dryRun ? "packs to delete" : "packs deleted", report.deletedPackCount)
    facts.add(dryRun ? "packs to compact" : "packs compacted", report.compactedPackCount)
    facts.add(dryRun ? "chunks to encode again" : "chunks encoded again", report.reencodedChunkCount)
    if recompress {
      facts.add(dryRun ? "packs to recompress" : "packs recompressed", report.recompressedPackCount)
      facts.add(
        dryRun ? "estimated from samples to save" : "recompressing saved",
        byteCount: report.recompressionSavedByteCount)
    }
    if report.evictedKeyCount > 0 { facts.add("keys evicted", report.evictedKeyCount) }
    let share = Int((GarbageCollectionOptions().minimumGarbageShare * 100).rounded())
    let isWhy = !dryRun && report.garbageByteCount > 0 && report.obstacles.isEmpty
    facts.add(
      "garbage left",
      HumanText.size(report.garbageByteCount)
        + (isWhy ? " (packs with less than \(share) % garbage stay, and those in use)" : ""))
    facts.add("time", HumanText.duration(report.duration))
    try facts.print()
  }
}

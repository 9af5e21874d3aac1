import ArgumentParser
import BlobStorage
import BlobStorageReports

/// `stats`: shows what a store contains and how much space it takes.
struct StatisticsCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "stats", abstract: "Shows what the store contains and how much space it takes.",
    aliases: ["status"])

  @Flag(help: "Print the numbers in Prometheus' text format, for a monitor to collect.")
  var prometheus = false

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    if prometheus, shared.json { throw ValidationError("--prometheus and --json exclude each other") }
  }

  func perform(on store: BlobStore) async throws {
    let statistics = try await shared.withProgress { try await store.statistics(progress: $0.handler) }
    try StandardOutput.unlessEnded { try print(statistics, of: store) }
    try Failure.check(notFollowed: statistics.unreadable)
  }

  private func print(_ statistics: StoreStatistics, of store: BlobStore) throws {
    if prometheus {
      return try StandardOutput.write(MetricsText(statistics, store: store.information.path).text)
    }
    if shared.json { return try JSONText.print(statistics) }
    var facts = FactTable()
    facts.add("keys", statistics.keyCount)
    facts.add("versions", statistics.versionCount)
    facts.add("blobs", statistics.blobCount)
    facts.add("chunks", statistics.chunkCount)
    facts.add("packs", statistics.packCount)
    facts.add("plain bytes of all versions", byteCount: statistics.plainByteCount)
    facts.add("without duplicates", byteCount: statistics.uniqueByteCount)
    facts.add("as stored", byteCount: statistics.storedByteCount)
    facts.add("of that, only bases", byteCount: statistics.baseByteCount)
    facts.add("saved by deduplication", byteCount: statistics.deduplicationSavedByteCount)
    facts.add("saved by codecs", byteCount: statistics.codecSavedByteCount)
    facts.add("saved by similarity", byteCount: statistics.similaritySavedByteCount)
    facts.add("garbage", byteCount: statistics.garbageByteCount)
    facts.add("on disk", byteCount: statistics.diskByteCount)
    try facts.print()
  }
}

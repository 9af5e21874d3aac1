import BlobStorage
import BlobStorageReports
import Foundation

// Nightly maintenance: drops old versions, collects garbage, recompresses within a time limit, verifies once a week. It
// prints the reports as JSON for a log, and says what a person has to do.

struct NightReport: Codable, Sendable {
  var dropped: RetentionResult
  var garbage: GarbageCollectionReport
  var verification: VerificationReport?
  var statistics: StoreStatistics

  /// What a person has to do; empty on most days.
  var problems: [String] {
    var problems = garbage.obstacles.map(\.message)
    if let verification {
      problems += verification.damaged.map { "\($0.keys.joined(separator: ", ")): \($0.reason)" }
      if let losses = verification.losses.summary { problems.append(losses) }
    }
    return problems
  }
}

func maintain(_ store: BlobStore, isSunday: Bool) async throws -> NightReport {
  let dropped = try await store.trimHistory(of: .prefix("logs/"), toArchived: 7)
  let options = GarbageCollectionOptions(
    minimumGarbageShare: 0.1, timeout: .seconds(600), recompresses: true, timeLimit: .seconds(3_600))
  return NightReport(
    dropped: dropped, garbage: try await store.collectGarbage(options),
    verification: try await isSunday ? store.verify(.blobs) : nil,
    statistics: try await store.statistics())
}

@Sendable func maintainAtNight(in folder: URL) async throws {
  let path = folder.appending(path: "server.store")
  let store = try await BlobStore.openOrCreate(at: path)
  for day in 0..<10 {
    let log = Data(repeating: UInt8(day), count: 40_000)
    try await store.set("logs/server", to: log, archivingCurrent: true, durability: .relaxed)
  }
  try await store.synchronize()

  let report = try await maintain(store, isSunday: true)
  let encoder = JSONEncoder()
  encoder.outputFormatting = [.sortedKeys]
  let line = try encoder.encode(report)
  print("dropped", report.dropped.droppedVersionCount, "freed some", report.garbage.freedByteCount > 0)
  print("problems", report.problems.count)
  // A monitor reads the log later.
  let read = try JSONDecoder().decode(NightReport.self, from: line)
  print("versions", read.statistics.versionCount, "same", read == report)
  try await store.close()
}

extension NightReport: Equatable {
  /// Durations are rounded to milliseconds in JSON.
  static func == (one: Self, other: Self) -> Bool {
    one.dropped == other.dropped && one.problems == other.problems && one.statistics == other.statistics
  }
}

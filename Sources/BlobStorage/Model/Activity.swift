import Foundation

/// Long work that a process currently does on a store, as it reports it.
public struct Activity: Sendable, Hashable {
  /// The kind of work: "put", "import", "export", "copy", "gc", "verify", "repair", "report"; a later build may have
  /// others.
  public var operation: String
  /// What it works on: a key, paths or a folder; empty when that is the store.
  public var subject: String
  public var processID: Int32
  public var started: Date
  /// The time of its last report.
  public var updated: Date
  public var progress: WorkProgress
  public var bytesPerSecond: Double?
  /// Seconds left in this phase, as the work saw it at `updated`.
  public var secondsLeft: Double?

  init(_ record: ActivityRecord) {
    operation = record.operation
    subject = record.subject
    processID = record.processID
    started = Date(timeIntervalSince1970: Double(record.started) / 1_000)
    updated = Date(timeIntervalSince1970: Double(record.updated) / 1_000)
    progress = WorkProgress(
      phase: record.phase, doneByteCount: record.doneByteCount, totalByteCount: record.totalByteCount,
      doneCount: Int(record.doneCount), totalCount: Int(record.totalCount))
    bytesPerSecond = record.bytesPerSecond < 0 ? nil : Double(record.bytesPerSecond)
    secondsLeft = record.millisecondsLeft < 0 ? nil : Double(record.millisecondsLeft) / 1_000
  }
}

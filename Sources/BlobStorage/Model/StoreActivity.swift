import Foundation

/// Long work that a process currently does on a store, as it reports it.
public struct StoreActivity: Sendable, Hashable, Codable {
  /// The kind of work: "put", "import", "export", "copy", "gc", "verify", "repair", "report"; a later build may have
  /// others.
  public var operation: String
  /// What it works on: a key, paths or a folder; empty for the store itself.
  public var subject: String
  public var processID: Int32
  public var started: Date
  /// The time of its last report.
  public var updated: Date
  public var progress: WorkProgress
  public var bytesPerSecond: Double?
  /// The time left in this phase, as the work saw it at `updated`.
  public var timeLeft: Duration?

  public init(operation: String, subject: String, processID: Int32, started: Date, progress: WorkProgress) {
    self.operation = operation
    self.subject = subject
    self.processID = processID
    self.started = started
    updated = started
    self.progress = progress
  }

  init(_ record: ActivityRecord) {
    operation = record.operation
    subject = record.subject
    processID = record.processID
    started = Date(timeIntervalSince1970: Double(record.started) / 1_000)
    updated = Date(timeIntervalSince1970: Double(record.updated) / 1_000)
    progress = WorkProgress(
      phase: record.phase, doneByteCount: record.doneByteCount, totalByteCount: record.totalByteCount,
      doneCount: Int(record.doneCount), totalCount: Int(record.totalCount))
    bytesPerSecond =
      record.bytesPerSecond < 0
      ? nil : min(Double(record.bytesPerSecond), WorkPace.bytesPerSecondMax)
    timeLeft = record.millisecondsLeft < 0 ? nil : .milliseconds(record.millisecondsLeft)
  }

  private enum CodingKeys: String, CodingKey {
    case operation, subject, processID, started, updated, bytesPerSecond
    case timeLeft = "secondsLeft"
  }

  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    operation = try container.decode(String.self, forKey: .operation)
    subject = try container.decode(String.self, forKey: .subject)
    processID = try container.decode(Int32.self, forKey: .processID)
    started = try container.decode(Date.self, forKey: .started)
    updated = try container.decode(Date.self, forKey: .updated)
    bytesPerSecond = try container.decodeIfPresent(Double.self, forKey: .bytesPerSecond)
    timeLeft = try container.decodeIfPresent(Duration.self, forKey: .timeLeft)
    progress = try WorkProgress(from: decoder)
  }

  /// Encodes the fields of the progress beside the others.
  public func encode(to encoder: any Encoder) throws {
    try progress.encode(to: encoder)
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(operation, forKey: .operation)
    try container.encode(subject, forKey: .subject)
    try container.encode(processID, forKey: .processID)
    try container.encode(started, forKey: .started)
    try container.encode(updated, forKey: .updated)
    try container.encodeIfPresent(bytesPerSecond, forKey: .bytesPerSecond)
    try container.encodeIfPresent(timeLeft, forKey: .timeLeft)
  }
}

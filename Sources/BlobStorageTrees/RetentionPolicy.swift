import BlobStorage
import Foundation

/// Which states or versions to keep, by their age. What one rule keeps is kept.
public struct RetentionPolicy: Sendable, Hashable {
  /// The youngest so many.
  public var last: Int?
  /// The youngest of each of the last so many hours, days, weeks (which begin on Monday), months or years that have one.
  public var hourly: Int?
  public var daily: Int?
  public var weekly: Int?
  public var monthly: Int?
  public var yearly: Int?
  /// All that are at most so much older than the youngest.
  public var within: Duration?
  /// Where a day begins.
  public var timeZone = TimeZone.current

  public init() {}

  /// Whether it has no rule. It would drop everything.
  public var isEmpty: Bool {
    within == nil && [last, hourly, daily, weekly, monthly, yearly].allSatisfy { $0 == nil }
  }

  /// Why each of some things is kept; no reasons for one that is not.
  ///
  /// - Parameter dates: their times, youngest first.
  public func reasons(for dates: [Date]) -> [[String]] {
    var reasons = [[String]](repeating: [], count: dates.count)
    for index in dates.indices.prefix(max(0, last ?? 0)) { reasons[index].append("last") }
    var calendar = Calendar(identifier: .iso8601)
    calendar.timeZone = timeZone
    let rules: [(String, Int?, Set<Calendar.Component>)] = [
      ("hourly", hourly, [.year, .month, .day, .hour]), ("daily", daily, [.year, .month, .day]),
      ("weekly", weekly, [.yearForWeekOfYear, .weekOfYear]), ("monthly", monthly, [.year, .month]),
      ("yearly", yearly, [.year]),
    ]
    for (name, count, components) in rules {
      var rest = count ?? 0
      var known: DateComponents?
      for (index, date) in dates.enumerated() where rest > 0 {
        let period = calendar.dateComponents(components, from: date)
        if period == known { continue }
        known = period
        rest -= 1
        reasons[index].append(name)
      }
    }
    if let within, let youngest = dates.first {
      let seconds = TimeInterval(within.components.seconds)
      for (index, date) in dates.enumerated() where youngest.timeIntervalSince(date) <= seconds {
        reasons[index].append("within")
      }
    }
    return reasons
  }
}

/// What a retention does to a state or version, and why.
public struct RetentionDecision: Sendable, Hashable, Codable {
  /// A state, or nil for a version.
  public var state: TreeState?
  public var key: String?
  public var version: BlobVersion.ID?
  public var created: Date
  /// Why it is kept: the rules, a hold, or a state that has the version. Empty if it is dropped.
  public var reasons: [String]

  public var isKept: Bool { !reasons.isEmpty }
}

/// The result of a retention by time.
public struct TreeRetentionReport: Sendable, Hashable, Codable {
  public var isDryRun = false
  public var keptStateCount = 0
  public var droppedStateCount = 0
  public var droppedVersionCount = 0
  /// Every state, and the versions that are dropped of other keys.
  public var decisions: [RetentionDecision] = []
  /// States that cannot be read. Nothing that they may need was dropped, but for states that the rules do not keep.
  public var unreadable: [UnreadableState] = []

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case decisions, unreadable
    case isDryRun = "dryRun"
    case keptStateCount = "statesKept"
    case droppedStateCount = "statesDropped"
    case droppedVersionCount = "versionsDropped"
  }
}

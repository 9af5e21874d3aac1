import BlobStorage
import Foundation

/// Which states or versions to keep, by their age. Keeps whatever any rule keeps.
public struct RetentionPolicy: Sendable, Hashable {
  /// Keeps this many of the youngest.
  public var last: Int?
  /// Keeps the youngest of each of the last hours, days, weeks (from Monday), months or years that have one.
  public var hourly: Int?
  public var daily: Int?
  public var weekly: Int?
  public var monthly: Int?
  public var yearly: Int?
  /// Keeps all that are at most this much older than the youngest.
  public var within: Duration?
  /// The time zone in which days begin.
  public var timeZone = TimeZone.current

  public init() {}

  private var counts: [Int] { [last, hourly, daily, weekly, monthly, yearly].compactMap { $0 } }

  /// Whether it has no rule, and so would drop everything.
  public var isEmpty: Bool { within == nil && counts.isEmpty }

  func check() throws(BlobStorageError) {
    guard !isEmpty else {
      throw BlobStorageError(.invalidArgument, "A retention without a rule would drop everything: give one.")
    }
    guard counts.allSatisfy({ $0 >= 0 }), (within ?? .zero) >= .zero else {
      throw BlobStorageError(
        .invalidArgument, "A rule of a retention has a negative number or time: give 0 or more.")
    }
  }

  /// The reasons to keep each of some states or versions; none for one that no rule keeps.
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
      for (index, date) in dates.enumerated() where youngest.timeIntervalSince(date) <= within.seconds {
        reasons[index].append("within")
      }
    }
    return reasons
  }
}

/// What a retention does to a state or version, and why.
public struct RetentionDecision: Sendable, Hashable, Codable {
  /// The state; nil for a version.
  public var state: TreeState?
  public var key: String?
  public var version: BlobVersion.ID?
  public var created: Date
  /// Why it is kept: the rules and holds. Empty if it is dropped.
  public var reasons: [String]

  public var isKept: Bool { !reasons.isEmpty }
}

/// The result of a retention by time.
public struct TreeRetentionReport: Sendable, Hashable, Codable {
  public var isDryRun = false
  public var keptStateCount = 0
  public var droppedStateCount = 0
  public var droppedVersionCount = 0
  /// One for every state, and for dropped versions while there are fewer than 10,000.
  public var decisions: [RetentionDecision] = []
  /// States that cannot be read. The retention kept what they may need, unless the rules dropped them.
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

import BlobStorage
import Foundation

/// Which states or versions to keep, by their age. Keeps whatever any rule keeps.
public struct RetentionPolicy: Sendable, Hashable {
  /// Keeps this many of those that were recorded last.
  public var last: Int?
  /// Keeps the youngest of each of the last hours, days, weeks (from Monday), months or years that have one.
  public var hourly: Int?
  public var daily: Int?
  public var weekly: Int?
  public var monthly: Int?
  public var yearly: Int?
  /// Keeps all that are at most this old, and the youngest.
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
  /// A time that lies more than a day ahead of now is a reason of its own and counts for no rule. Each rule that keeps
  /// anything keeps the youngest: so none empties a series whose times are wrong.
  ///
  /// - Parameters:
  ///   - dates: their times, youngest first by the order in which they were recorded. A clock that was set can make a
  ///     time earlier than the one after it.
  ///   - now: what ``within`` counts from.
  public func reasons(for dates: [Date], now: Date) -> [[String]] {
    var reasons = [[String]](repeating: [], count: dates.count)
    let present = dates.indices.filter { !TreeState.isAhead(dates[$0], of: now) }
    for index in dates.indices where TreeState.isAhead(dates[index], of: now) {
      reasons[index].append("ahead of now")
    }
    for index in present.prefix(max(0, last ?? 0)) { reasons[index].append("last") }
    var calendar = Calendar(identifier: .iso8601)
    calendar.timeZone = timeZone
    let rules: [(String, Int?, Calendar.Component)] = [
      ("hourly", hourly, .hour), ("daily", daily, .day), ("weekly", weekly, .weekOfYear),
      ("monthly", monthly, .month), ("yearly", yearly, .year),
    ]
    for (name, count, component) in rules {
      guard let count, count > 0, let youngest = present.first else { continue }
      // The youngest of each period; that of all comes first, whatever its time.
      var periods: [Date: Int] = [:]
      for index in present {
        let start = Self.start(of: component, dates[index], calendar)
        if periods[start] == nil { periods[start] = index }
      }
      let others = periods.sorted { $0.key > $1.key }.map(\.value).filter { $0 != youngest }
      for index in [youngest] + others.prefix(count - 1) { reasons[index].append(name) }
    }
    if let within {
      for index in present
      where index == present.first || now.timeIntervalSince(dates[index]) <= within.seconds {
        reasons[index].append("within")
      }
    }
    return reasons
  }

  /// When the period of a time begins. At the end of summer time, two hours have one name and are two periods.
  private static func start(of component: Calendar.Component, _ date: Date, _ calendar: Calendar) -> Date {
    guard component == .hour else { return calendar.dateInterval(of: component, for: date)?.start ?? date }
    let offset = Double(calendar.timeZone.secondsFromGMT(for: date))
    let seconds = ((date.timeIntervalSince1970 + offset) / 3_600).rounded(.down) * 3_600
    return Date(timeIntervalSince1970: seconds - offset)
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
  /// States that are dated more than a day ahead of now, oldest first. The rules ignore them, and they stay.
  public var ahead: [TreeState] = []
  /// States that cannot be read. The retention kept what they may need, unless the rules dropped them.
  public var unreadable: [UnreadableState] = []

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case decisions, ahead, unreadable
    case isDryRun = "dryRun"
    case keptStateCount = "statesKept"
    case droppedStateCount = "statesDropped"
    case droppedVersionCount = "versionsDropped"
  }
}

import Foundation

/// A second in UTC, in the formats of requests and responses.
package struct UTCTime: Hashable, Sendable {
  package var secondsSince1970: Int64

  package init(secondsSince1970: Int64) { self.secondsSince1970 = secondsSince1970 }

  /// `20130524T000000Z`.
  package var basicText: String {
    let parts = self.parts
    return day + String(format: "T%02d%02d%02dZ", parts.tm_hour, parts.tm_min, parts.tm_sec)
  }

  /// `20130524`.
  package var day: String {
    let parts = self.parts
    return String(format: "%04d%02d%02d", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday)
  }

  /// Parses a `Date` header such as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7); nil if it is malformed.
  package init?(httpDate text: String) {
    let words = text.split(separator: " ", omittingEmptySubsequences: false)
    guard words.count == 6, words[5] == "GMT", words[0].utf8.count == 4, words[0].hasSuffix(","),
      let day = Self.number(words[1], 2), let month = Self.months.firstIndex(of: words[2]),
      let year = Self.number(words[3], 4)
    else { return nil }
    let clock = words[4].split(separator: ":", omittingEmptySubsequences: false).map { Self.number($0, 2) }
    guard clock.count == 3, let hour = clock[0], let minute = clock[1], let second = clock[2],
      (1...31).contains(day), hour < 24, minute < 60, second <= 60, year >= 1970
    else { return nil }
    var parts = tm()
    parts.tm_year = year - 1900
    parts.tm_mon = Int32(month)
    parts.tm_mday = day
    parts.tm_hour = hour
    parts.tm_min = minute
    parts.tm_sec = second
    self.init(secondsSince1970: Int64(timegm(&parts)))
  }

  private static let months: [Substring] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]

  private var parts: tm {
    var seconds = time_t(secondsSince1970)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    return parts
  }

  private static func number(_ text: Substring, _ count: Int) -> Int32? {
    guard text.utf8.count == count,
      text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
    else { return nil }
    return Int32(text)
  }
}

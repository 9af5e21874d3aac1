import Foundation

extension String {
  /// The text with visible control characters: a key may hold any, and a terminal obeys some.
  var printable: String {
    guard unicodeScalars.contains(where: Self.isControl) else { return self }
    return unicodeScalars.map { Self.isControl($0) ? "\\u{\(String($0.value, radix: 16))}" : String($0) }
      .joined()
  }

  /// A message for use within a sentence: printable, and without its full stop.
  var clause: String {
    let text = printable
    return text.hasSuffix(".") ? String(text.dropLast()) : text
  }

  private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator: true
    default: false
    }
  }

  /// The text with spaces in front, at least `count` characters.
  func padded(_ count: Int) -> String {
    String(repeating: " ", count: max(0, count - self.count)) + self
  }
}

/// Numbers for the user.
enum HumanText {
  /// A size in the largest unit that leaves at least 1 before the point.
  static func size(_ byteCount: Int64) -> String {
    guard byteCount >= 1_024 else { return "\(byteCount) B" }
    var value = Double(byteCount)
    var unit = ""
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] where value >= 1_024 || unit.isEmpty {
      value /= 1_024
      unit = next
    }
    return String(format: value < 100 ? "%.1f %@" : "%.0f %@", value, unit)
  }

  /// A count with its noun: `1 file`, `2 files`.
  static func count(_ count: Int, _ noun: String) -> String {
    "\(grouped(count)) \(count == 1 ? noun : noun + "s")"
  }

  /// A number with commas between thousands.
  static func grouped(_ number: Int) -> String {
    let digits = Array(String(number.magnitude))
    var text = number < 0 ? "-" : ""
    for (index, digit) in digits.enumerated() {
      if index > 0, (digits.count - index) % 3 == 0 { text += "," }
      text.append(digit)
    }
    return text
  }

  /// A span of time, roughly.
  static func duration(_ duration: Duration) -> String {
    let seconds = duration / .seconds(1)
    if seconds < 10 { return String(format: "%.1f s", seconds) }
    let whole = Int(seconds.rounded())
    if whole < 60 { return "\(whole) s" }
    if whole < 3_600 { return "\(whole / 60) min \(whole % 60) s" }
    return "\(whole / 3_600) h \(whole % 3_600 / 60) min"
  }
}

extension HumanText {
  /// An estimated span of time, rounded accordingly.
  static func roughDuration(_ seconds: Double) -> String {
    // An impossible span is a failed estimate.
    let whole = Int(min(max(seconds, 0), 1e9).rounded(.up))
    switch whole {
    case ..<10: return "\(max(whole, 1)) s"
    case ..<60: return "\((whole + 4) / 5 * 5) s"
    case ..<600: return "\((whole + 29) / 30 / 2) min\((whole + 29) / 30 % 2 == 1 ? " 30 s" : "")"
    case ..<3_600: return "\((whole + 59) / 60) min"
    case ..<36_000: return "\((whole + 299) / 300 / 12) h \((whole + 299) / 300 % 12 * 5) min"
    default: return "\((whole + 3_599) / 3_600) h"
    }
  }
}

extension Date {
  /// ISO 8601 in UTC with milliseconds.
  var text: String {
    let (whole, milliseconds) = parts(secondsLeft: 0)
    let date = Date(timeIntervalSince1970: Double(whole)).formatted(.iso8601)
    return date.dropLast() + String(format: ".%03dZ", milliseconds)
  }

  /// Local time with milliseconds, and its distance from UTC.
  var localText: String {
    let (whole, milliseconds) = parts(secondsLeft: 86_400)
    var seconds = time_t(whole)
    var local = tm()
    guard localtime_r(&seconds, &local) != nil else { return text }
    let offset = Int(local.tm_gmtoff) / 60
    return String(
      format: "%04d-%02d-%02d %02d:%02d:%02d.%03d %@%02d:%02d", Int(local.tm_year) + 1_900,
      Int(local.tm_mon) + 1, Int(local.tm_mday), Int(local.tm_hour), Int(local.tm_min), Int(local.tm_sec),
      milliseconds, offset < 0 ? "-" : "+", abs(offset) / 60, abs(offset) % 60)
  }

  /// Whole seconds since 1970, and milliseconds. Limited to the years 1 to 9999, which have four digits: a hostile
  /// store may hold any time.
  ///
  /// - Parameter secondsLeft: the distance to keep from the ends of these years.
  private func parts(secondsLeft: Double) -> (seconds: Int64, milliseconds: Int) {
    let seconds = min(
      max(timeIntervalSince1970, -62_135_596_800 + secondsLeft), 253_402_300_799.999 - secondsLeft)
    let milliseconds = Int64((seconds * 1_000).rounded())
    let (quotient, rest) = milliseconds.quotientAndRemainder(dividingBy: 1_000)
    return (rest < 0 ? quotient - 1 : quotient, Int(rest < 0 ? rest + 1_000 : rest))
  }
}

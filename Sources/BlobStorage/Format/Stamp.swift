/// A time of the hybrid logical clock and a writer. Orders versions and names them.
///
/// `time` holds milliseconds since 1970 in its upper 48 bits and a counter in its lower 16 (Kulkarni et al.,
/// "Logical Physical Clocks", OPODIS'14). It never goes back within a store, whatever the wall clock does.
package struct Stamp: Hashable, Sendable {
  package static let byteCount = 16
  /// Times from here on are refused, so that the clock can always advance.
  package static let timeMax: UInt64 = 1 << 63

  package var time: UInt64
  package var writer: UInt64

  package init(time: UInt64, writer: UInt64) {
    self.time = time
    self.writer = writer
  }

  /// The most milliseconds that a stamp may be in the future and still advance the clock. Synchronized clocks differ by
  /// less. A later stamp was made up, or its clock was wrong.
  package static let aheadMillisecondsMax: UInt64 = 24 * 60 * 60 * 1_000

  /// Whether `time` is too far ahead of the wall clock to advance the clock.
  package static func isFarAhead(_ time: UInt64, wallClock milliseconds: UInt64) -> Bool {
    time >> 16 > min(milliseconds, timeMax >> 16) + aheadMillisecondsMax
  }

  /// Names no version. A key's first ref replaces it.
  package static let none = Stamp(time: 0, writer: 0)

  /// The public text of a stamp: 32 hexadecimal digits.
  package var text: String { Hex.text(time) + Hex.text(writer) }

  /// Parses ``text``; nil for any other text.
  package init?(text: String) {
    guard text.utf8.count == 32, let time = Hex.integer(UInt64.self, text.prefix(16)),
      let writer = Hex.integer(UInt64.self, text.suffix(16))
    else { return nil }
    self.init(time: time, writer: writer)
  }

  /// Names a dropped version that a copy brings back for the `count`-th time, because a hidden name stays hidden. It
  /// has the same time, and so the same place in the key's history.
  ///
  /// The writer is a pseudorandom number derived from the version's own (Steele, Lea and Flood, "Fast Splittable
  /// Pseudorandom Number Generators", OOPSLA'14).
  package func returned(_ count: Int) -> Stamp {
    if count == 0 { return self }
    var mixed = writer &+ UInt64(count) &* 0x9E37_79B9_7F4A_7C15
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return Stamp(time: time, writer: mixed ^ (mixed >> 31))
  }

  /// How often a version can be dropped and brought back while the store remembers it.
  package static let returnCountMax = 1_000

  /// The earliest time after `last` that is not before the wall clock.
  package static func timeAfter(_ last: UInt64, wallClock milliseconds: UInt64) -> UInt64 {
    let wall = min(milliseconds, (timeMax >> 16) - 1) << 16
    return max(wall, last + 1)
  }
}

extension Stamp: Comparable {
  package static func < (left: Stamp, right: Stamp) -> Bool {
    left.time != right.time ? left.time < right.time : left.writer < right.writer
  }
}

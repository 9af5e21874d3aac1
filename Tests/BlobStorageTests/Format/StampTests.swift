import BlobStorage
import Testing

@Suite("A stamp")
struct StampTests {
  @Test(
    "follows the last one and the wall clock, whichever is later",
    arguments: [
      (0x5_0000, 6, 0x6_0000), (0x5_0003, 4, 0x5_0004), (0x5_0000, 5, 0x5_0001), (0, 0, 1),
      (0x5_ffff, 5, 0x6_0000), (0x6_0000, UInt64.max, Stamp.timeMax - 0x1_0000),
      (Stamp.timeMax - 2, 7, Stamp.timeMax - 1),
    ] as [(UInt64, UInt64, UInt64)])
  func time(last: UInt64, wall: UInt64, expected: UInt64) {
    #expect(Stamp.timeAfter(last, wallClock: wall) == expected)
  }

  @Test("is far ahead from a day and a millisecond on")
  func farAhead() {
    let (now, day) = (1_700_000_000_000 as UInt64, 86_400_000 as UInt64)
    #expect(!Stamp.isFarAhead((now + day) << 16 | 0xffff, wallClock: now))
    #expect(Stamp.isFarAhead((now + day + 1) << 16, wallClock: now))
    #expect(!Stamp.isFarAhead(now << 16, wallClock: now) && !Stamp.isFarAhead(0, wallClock: now))
    // A clock that is wrong is no reason to trap.
    #expect(!Stamp.isFarAhead(Stamp.timeMax - 1, wallClock: .max))
  }

  @Test("is ordered by its time, then by its writer")
  func order() {
    let ordered = [
      Stamp.none, Stamp(time: 1, writer: 2), Stamp(time: 1, writer: .max), Stamp(time: 2, writer: 1),
      Stamp(time: 1 << 40, writer: 0),
    ]
    #expect(ordered.reversed().sorted() == ordered)
  }

  @Test("comes back from its text, and from no other")
  func text() {
    let stamp = Stamp(time: 0x0123_4567_89ab_cdef, writer: 0xfedc_ba98_7654_3210)
    #expect(stamp.text == "0123456789abcdeffedcba9876543210")
    #expect(Stamp(text: stamp.text) == stamp)
    for text in ["", String(stamp.text.dropLast()), stamp.text + "0", "g\(stamp.text.dropFirst())"] {
      #expect(Stamp(text: text) == nil, "\(text)")
    }
  }
}

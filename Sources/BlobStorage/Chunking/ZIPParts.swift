/// Members of a ZIP (PKWARE APPNOTE 6.3, section 4.3). The bytes of a long member stand alone, so that they give the
/// same chunks whatever its name and whatever precedes it. Short members and the headers between them are cut by
/// content.
///
/// The search ends at a member without a length, and at the directory.
struct ZIPParts: ContainerParts {
  static let memberSignature: [UInt8] = [0x50, 0x4B, 0x03, 0x04]
  private static let fixedByteCount = 30

  mutating func header(in window: PartWindow, longByteCount: UInt64) -> PartHeader {
    guard window.byteCount >= 4 else { return .incomplete(byteCount: 4) }
    guard window.starts(with: Self.memberSignature) else { return .end(before: .ifLong) }
    guard let flags = window.little(UInt16.self, at: 6), let short = window.little(UInt32.self, at: 18),
      let plain = window.little(UInt32.self, at: 22), let name = window.little(UInt16.self, at: 26),
      let extra = window.little(UInt16.self, at: 28)
    else { return .incomplete(byteCount: Self.fixedByteCount) }
    let extraOffset = Self.fixedByteCount + Int(name)
    let headerByteCount = extraOffset + Int(extra)
    var byteCount = UInt64(short)
    if short == .max {
      guard window.byteCount >= headerByteCount else { return .incomplete(byteCount: headerByteCount) }
      guard
        let long = Self.longByteCount(window, extraOffset..<headerByteCount, afterPlain: plain == .max)
      else { return .end(before: .ifLong) }
      byteCount = long
    }
    // Bit 3: the lengths may follow the bytes instead.
    if flags & 8 != 0, byteCount == 0 { return .end(before: .ifLong) }
    let (whole, overflows) = byteCount.addingReportingOverflow(UInt64(headerByteCount))
    guard !overflows else { return .end(before: .ifLong) }
    guard byteCount >= longByteCount else { return .part(.init(byteCount: whole)) }
    return .part(
      .init(byteCount: whole, before: .ifLong, headerByteCount: headerByteCount, after: .always))
  }

  /// The stored length from the extra field for lengths from 4 GiB on (section 4.5.3).
  private static func longByteCount(_ window: PartWindow, _ extra: Range<Int>, afterPlain: Bool) -> UInt64? {
    var offset = extra.lowerBound
    while offset + 4 <= extra.upperBound {
      guard let id = window.little(UInt16.self, at: offset),
        let byteCount = window.little(UInt16.self, at: offset + 2)
      else { return nil }
      if id == 1 {
        let place = offset + 4 + (afterPlain ? 8 : 0)
        return place + 8 <= extra.upperBound ? window.little(UInt64.self, at: place) : nil
      }
      offset += 4 + Int(byteCount)
    }
    return nil
  }
}

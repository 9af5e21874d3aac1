/// The outermost boxes of an MP4 or similar file (ISO/IEC 14496-12, section 4.2). A long box stands alone, such as the
/// one with all pictures and sounds.
struct BoxParts: ContainerParts {
  /// The possible types of the first box. A type follows the four bytes of the box's length.
  static let firstTypes = ["ftyp", "styp", "moov", "mdat", "wide", "free", "skip", "JXL ", "jP  "]

  mutating func header(in window: PartWindow, longByteCount: UInt64) -> PartHeader {
    guard let short = window.big(UInt32.self, at: 0), window.byteCount >= 8 else {
      return .incomplete(byteCount: 8)
    }
    var byteCount = UInt64(short)
    switch short {
    case 0: return .end(before: .always)  // to the end of the file
    case 1:
      guard let long = window.big(UInt64.self, at: 8) else { return .incomplete(byteCount: 16) }
      guard long >= 16 else { return .end(before: .none) }
      byteCount = long
    case 2..<8: return .end(before: .none)
    default: break
    }
    return .part(
      byteCount < longByteCount
        ? .init(byteCount: byteCount) : .init(byteCount: byteCount, before: .always, after: .always))
  }
}

/// The segments before the first scan of a JPEG (ITU-T T.81, annex B.1): EXIF, thumbnail, colour profile, tables. The
/// picture begins with the marker of the scan, and is not parsed.
struct JPEGParts: ContainerParts {
  mutating func header(in window: PartWindow, longByteCount: UInt64) -> PartHeader {
    guard let first = window.byte(at: 0), let marker = window.byte(at: 1) else {
      return .incomplete(byteCount: 2)
    }
    guard first == 0xFF else { return .end(before: .none) }
    switch marker {
    case 0xFF: return .part(.init(byteCount: 1))  // fill byte
    case 0xDA: return .end(before: .always)  // start of scan
    case 0x01, 0xD0...0xD7: return .part(.init(byteCount: 2))  // without a length
    case 0x00, 0xD8, 0xD9: return .end(before: .none)
    default:
      guard let byteCount = window.big(UInt16.self, at: 2) else { return .incomplete(byteCount: 4) }
      return byteCount < 2 ? .end(before: .none) : .part(.init(byteCount: 2 + UInt64(byteCount)))
    }
  }
}

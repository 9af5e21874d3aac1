/// The parts of a PNG (W3C PNG, section 5): before the picture, the picture, and after it.
///
/// There is always a border after the picture. In most PNGs the last 12 bytes are the same, so they are stored once.
struct PNGParts: ContainerParts {
  /// IDAT, and fcTL and fdAT of animations.
  private static let pictureTypes: Set<UInt32> = [0x4944_4154, 0x6663_544C, 0x6664_4154]
  private var isInPicture = false

  mutating func header(in window: PartWindow, longByteCount: UInt64) -> PartHeader {
    guard let byteCount = window.big(UInt32.self, at: 0), let type = window.big(UInt32.self, at: 4) else {
      return .incomplete(byteCount: 8)
    }
    let isPicture = Self.pictureTypes.contains(type)
    if isInPicture, !isPicture { return .end(before: .always) }
    guard byteCount <= UInt32.max / 2 else { return .end(before: .none) }
    // Length, type and checksum.
    var part = PartHeader.Part(byteCount: 12 + UInt64(byteCount))
    if isPicture, !isInPicture { part.before = .always }
    isInPicture = isPicture
    return .part(part)
  }
}

/// The metadata of a ref: an optional media type, then the caller's own bytes. Format.md, "Media types".
struct StoredMetadata {
  private static let tag: [UInt8] = [0x6d, 0x74, 0x31]  // mt1
  static let mediaTypeByteCountMax = 127

  var mediaType: String?
  var own: [UInt8]

  init(mediaType: String?, own: [UInt8]) {
    self.mediaType = mediaType
    self.own = own
  }

  /// Decodes a ref's metadata. Without a valid media type, all bytes are the caller's own.
  init(_ bytes: [UInt8]) {
    self.init(mediaType: nil, own: bytes)
    guard bytes.starts(with: Self.tag), bytes.count > Self.tag.count else { return }
    let start = Self.tag.count + 1
    let end = start + Int(bytes[Self.tag.count])
    guard end <= bytes.count else { return }
    if end > start {
      let text = String(decoding: bytes[start..<end], as: UTF8.self)
      guard Self.isMediaType(text) else { return }
      mediaType = text
    }
    own = Array(bytes[end...])
  }

  /// The encoded metadata. Without a media type, these are the caller's own bytes, unless they look like one.
  var bytes: [UInt8] {
    guard mediaType != nil || own.starts(with: Self.tag) else { return own }
    let type = Array((mediaType ?? "").utf8)
    return Self.tag + [UInt8(truncatingIfNeeded: type.count)] + type + own
  }

  /// Whether a text is a possible media type: visible ASCII characters and spaces with a slash between them.
  static func isMediaType(_ text: String) -> Bool {
    let bytes = Array(text.utf8)
    guard 3...mediaTypeByteCountMax ~= bytes.count, bytes.allSatisfy({ 0x20...0x7e ~= $0 }) else {
      return false
    }
    return bytes.dropFirst().dropLast().contains(UInt8(ascii: "/"))
  }
}

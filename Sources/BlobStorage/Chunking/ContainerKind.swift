/// A file format whose parts state their own length.
enum ContainerKind: Sendable {
  case jpeg
  case png
  /// ZIP, and formats that are ZIP files: jar, docx, xlsx, epub, apk.
  case zip
  /// Nested boxes (ISO/IEC 14496-12): MP4, MOV, HEIC, AVIF, JPEG XL.
  case boxes

  /// Looks for magic bytes. `beginning` is a blob's first bytes: at least 12, if it has as many.
  init?(beginning: PartWindow) {
    if beginning.starts(with: [0xFF, 0xD8, 0xFF]) {
      self = .jpeg
    } else if beginning.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) {
      self = .png
    } else if beginning.starts(with: ZIPParts.memberSignature) {
      self = .zip
    } else if BoxParts.firstTypes.contains(where: { beginning.starts(with: Array($0.utf8), at: 4) }) {
      self = .boxes
    } else {
      return nil
    }
  }

  /// The offset of the first header, and the reader of headers.
  var parts: (firstOffset: Int64, any ContainerParts) {
    switch self {
    case .jpeg: (2, JPEGParts())
    case .png: (8, PNGParts())
    case .zip: (0, ZIPParts())
    case .boxes: (0, BoxParts())
    }
  }
}

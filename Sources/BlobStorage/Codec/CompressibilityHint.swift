/// What the beginning of a blob suggests about all of its chunks.
package enum CompressibilityHint: Hashable, Sendable {
  /// Nothing. Each chunk is probed.
  case unknown
  /// The blob's format is compressed. Only the histogram decides whether to encode a chunk, because such files also
  /// contain headers, tables and plain parts.
  case alreadyCompressed
  /// The blob is an archive of separately compressed members: names, headers and equal members repeat.
  case compressedMembers

  /// Looks for the magic bytes of a compressed format. `beginning` is a blob's first chunk, or at least its first 12
  /// bytes.
  package init(beginning: RawSpan) {
    self = beginning.withUnsafeBytes { bytes in
      if Self.zip.matches(bytes) { return .compressedMembers }
      return Self.signatures.contains { $0.matches(bytes) } ? .alreadyCompressed : .unknown
    }
  }

  /// Magic bytes at an offset. A zero bit in `mask`, if any, matches both values.
  private struct Signature {
    var offset = 0
    let magic: [UInt8]
    var mask: [UInt8]?

    init(_ magic: [UInt8], at offset: Int = 0, mask: [UInt8]? = nil) {
      self.magic = magic
      self.offset = offset
      self.mask = mask
    }

    init(_ text: StaticString, at offset: Int = 0) {
      self.init(text.withUTF8Buffer { Array($0) }, at: offset)
    }

    func matches(_ bytes: UnsafeRawBufferPointer) -> Bool {
      guard bytes.count >= offset + magic.count else { return false }
      return magic.indices.allSatisfy { index in
        bytes[offset + index] & (mask?[index] ?? 0xFF) == magic[index]
      }
    }
  }

  private static let zip = Signature([0x50, 0x4B, 0x03, 0x04])  // with docx, epub, jar, apk

  // Deliberately without plain formats (WAV, BMP, tar, AVI) and mixed ones (PDF, TIFF): these are probed chunk by
  // chunk. Brotli and raw deflate have no magic bytes.
  private static let signatures: [Signature] = [
    Signature([0xFF, 0xD8, 0xFF]),  // JPEG
    Signature([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]),  // PNG
    Signature("GIF87a"),
    Signature("GIF89a"),
    Signature("WEBP", at: 8),  // after RIFF and a length
    Signature([0x00, 0x00, 0x00, 0x0C, 0x4A, 0x58, 0x4C, 0x20]),  // JPEG XL, in its container
    Signature([0xFF, 0x0A]),  // JPEG XL, bare
    Signature("ftyp", at: 4),  // MP4, MOV, M4A, HEIC, AVIF
    Signature([0x1A, 0x45, 0xDF, 0xA3]),  // Matroska, WebM
    Signature("OggS"),
    Signature("fLaC"),
    Signature("ID3"),  // MP3 with a tag
    Signature([0xFF, 0xE2], mask: [0xFF, 0xE6]),  // MP3: sync and layer III
    Signature([0xFF, 0xF0], mask: [0xFF, 0xF6]),  // AAC in ADTS: sync and layer 0
    Signature([0x1F, 0x8B, 0x08]),  // gzip
    Signature([0xFD, 0x37, 0x7A, 0x58, 0x5A, 0x00]),  // xz
    Signature([0x28, 0xB5, 0x2F, 0xFD]),  // zstd
    Signature([0x04, 0x22, 0x4D, 0x18]),  // lz4
    Signature("BZh"),  // bzip2
    Signature([0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C]),  // 7z
    Signature("Rar!"),
    Signature("wOFF"),
    Signature("wOF2"),
  ]
}

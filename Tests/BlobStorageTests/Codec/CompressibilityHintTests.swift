import BlobStorage
import Testing

struct CompressibilityHintTests {
  private static func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

  @Test(
    arguments: [
      ("JPEG", [0xFF, 0xD8, 0xFF, 0xE0], true),
      ("JPEG cut short", [0xFF, 0xD8], false),
      ("PNG", [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A], true),
      ("PNG damaged by line endings", [0x89, 0x50, 0x4E, 0x47, 0x0A, 0x1A, 0x0A, 0x00], false),
      ("GIF", bytes("GIF89a"), true),
      ("GIF of no version", bytes("GIF90a"), false),
      ("WebP", bytes("RIFF....WEBPVP8 "), true),
      ("WAV", bytes("RIFF....WAVEfmt "), false),
      ("JPEG XL", [0xFF, 0x0A, 0x00], true),
      ("MP4", bytes("....ftypisom"), true),
      ("HEIC", bytes("....ftypheic"), true),
      ("ftyp at the wrong place", bytes("ftypheic...."), false),
      ("Matroska", [0x1A, 0x45, 0xDF, 0xA3], true),
      ("Ogg", bytes("OggS"), true),
      ("FLAC", bytes("fLaC"), true),
      ("MP3 with a tag", bytes("ID3\u{4}"), true),
      ("MP3", [0xFF, 0xFB, 0x90, 0x64], true),
      ("AAC", [0xFF, 0xF1, 0x50, 0x80], true),
      ("UTF-16, little end first", [0xFF, 0xFE, 0x41, 0x00], false),
      ("UTF-16, big end first", [0xFE, 0xFF, 0x00, 0x41], false),
      ("only ones", [0xFF, 0xFF, 0xFF, 0xFF], false),
      ("ZIP", bytes("PK\u{3}\u{4}"), true),
      ("PK alone", bytes("PK\u{5}\u{6}"), false),
      ("gzip", [0x1F, 0x8B, 0x08], true),
      ("compress", [0x1F, 0x9D, 0x90], false),
      ("xz", [0xFD, 0x37, 0x7A, 0x58, 0x5A, 0x00], true),
      ("zstd", [0x28, 0xB5, 0x2F, 0xFD], true),
      ("lz4", [0x04, 0x22, 0x4D, 0x18], true),
      ("bzip2", bytes("BZh9"), true),
      ("7z", [0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C], true),
      ("RAR", bytes("Rar!"), true),
      ("WOFF", bytes("wOFF"), true),
      ("WOFF2", bytes("wOF2"), true),
      ("TrueType", [0x00, 0x01, 0x00, 0x00], false),
      ("PDF", bytes("%PDF-1.7"), false),
      ("BMP", bytes("BM......"), false),
      ("TIFF", bytes("II*\u{0}"), false),
      ("ELF", bytes("\u{7F}ELF"), false),
      ("SQLite", bytes("SQLite format 3\u{0}"), false),
      ("text", bytes("Hello, world"), false),
      ("nothing", [], false),
    ] as [(String, [UInt8], Bool)])
  func aCompressedFormatIsKnownByItsBeginning(name: String, beginning: [UInt8], isCompressed: Bool) {
    let hint = CompressibilityHint(beginning: beginning.span.bytes)
    #expect(hint == (isCompressed ? .alreadyCompressed : .unknown), "\(name)")
  }
}

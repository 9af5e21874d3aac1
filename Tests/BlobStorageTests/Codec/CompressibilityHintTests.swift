import BlobStorage
import Testing

struct CompressibilityHintTests {
  private static func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

  @Test(
    arguments: [
      ("JPEG", [0xFF, 0xD8, 0xFF, 0xE0], .alreadyCompressed),
      ("JPEG cut short", [0xFF, 0xD8], .unknown),
      ("PNG", [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A], .alreadyCompressed),
      ("PNG damaged by line endings", [0x89, 0x50, 0x4E, 0x47, 0x0A, 0x1A, 0x0A, 0x00], .unknown),
      ("GIF", bytes("GIF89a"), .alreadyCompressed),
      ("GIF of no version", bytes("GIF90a"), .unknown),
      ("WebP", bytes("RIFF....WEBPVP8 "), .alreadyCompressed),
      ("WAV", bytes("RIFF....WAVEfmt "), .unknown),
      ("JPEG XL", [0xFF, 0x0A, 0x00], .alreadyCompressed),
      ("MP4", bytes("....ftypisom"), .alreadyCompressed),
      ("HEIC", bytes("....ftypheic"), .alreadyCompressed),
      ("ftyp at the wrong place", bytes("ftypheic...."), .unknown),
      ("Matroska", [0x1A, 0x45, 0xDF, 0xA3], .alreadyCompressed),
      ("Ogg", bytes("OggS"), .alreadyCompressed),
      ("FLAC", bytes("fLaC"), .alreadyCompressed),
      ("MP3 with a tag", bytes("ID3\u{4}"), .alreadyCompressed),
      ("MP3", [0xFF, 0xFB, 0x90, 0x64], .alreadyCompressed),
      ("AAC", [0xFF, 0xF1, 0x50, 0x80], .alreadyCompressed),
      ("UTF-16, little end first", [0xFF, 0xFE, 0x41, 0x00], .unknown),
      ("UTF-16, big end first", [0xFE, 0xFF, 0x00, 0x41], .unknown),
      ("only ones", [0xFF, 0xFF, 0xFF, 0xFF], .unknown),
      ("ZIP", bytes("PK\u{3}\u{4}"), .compressedMembers),
      ("PK alone", bytes("PK\u{5}\u{6}"), .unknown),
      ("gzip", [0x1F, 0x8B, 0x08], .alreadyCompressed),
      ("compress", [0x1F, 0x9D, 0x90], .unknown),
      ("xz", [0xFD, 0x37, 0x7A, 0x58, 0x5A, 0x00], .alreadyCompressed),
      ("zstd", [0x28, 0xB5, 0x2F, 0xFD], .alreadyCompressed),
      ("lz4", [0x04, 0x22, 0x4D, 0x18], .alreadyCompressed),
      ("bzip2", bytes("BZh9"), .alreadyCompressed),
      ("7z", [0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C], .alreadyCompressed),
      ("RAR", bytes("Rar!"), .alreadyCompressed),
      ("WOFF", bytes("wOFF"), .alreadyCompressed),
      ("WOFF2", bytes("wOF2"), .alreadyCompressed),
      ("TrueType", [0x00, 0x01, 0x00, 0x00], .unknown),
      ("PDF", bytes("%PDF-1.7"), .unknown),
      ("BMP", bytes("BM......"), .unknown),
      ("TIFF", bytes("II*\u{0}"), .unknown),
      ("ELF", bytes("\u{7F}ELF"), .unknown),
      ("SQLite", bytes("SQLite format 3\u{0}"), .unknown),
      ("text", bytes("Hello, world"), .unknown),
      ("nothing", [], .unknown),
    ] as [(String, [UInt8], CompressibilityHint)])
  func aCompressedFormatIsKnownByItsBeginning(name: String, beginning: [UInt8], expected: CompressibilityHint)
  {
    #expect(CompressibilityHint(beginning: beginning.span.bytes) == expected, "\(name)")
  }
}

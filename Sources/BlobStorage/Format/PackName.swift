/// The name of a pack: its writer and its ordinal among that writer's packs, from 1 without gaps.
///
/// Each writer draws a random number from 2⁶⁴: an opening of a store, or a copy by gc or `repair`. A pack is created
/// only if its name is unused.
package struct PackName: Hashable, Comparable, Sendable, CustomStringConvertible {
  package static let byteCount = 12

  package var writer: UInt64
  package var sequence: UInt32

  package init(writer: UInt64, sequence: UInt32) {
    self.writer = writer
    self.sequence = sequence
  }

  /// `0123456789abcdef-00000001`
  package var description: String { Hex.text(writer) + "-" + Hex.text(sequence) }

  /// The file's name, without its folder.
  package var fileName: String { description + ".pack" }

  /// Parses a ``description``; nil for any other text.
  package init?(_ text: some StringProtocol) { self.init(utf8: text.utf8) }

  /// Parses the bytes of a ``description``. Makes no strings, because a census may have very many names.
  init?(utf8 text: some Collection<UInt8>) {
    guard text.count == 25, text.dropFirst(16).first == UInt8(ascii: "-"),
      // Names have lower-case digits only.
      !text.contains(where: { UInt8(ascii: "A")...UInt8(ascii: "F") ~= $0 }),
      let writer = Hex.integer(UInt64.self, text.prefix(16)),
      let sequence = Hex.integer(UInt32.self, text.dropFirst(17)), sequence > 0
    else { return nil }
    self.init(writer: writer, sequence: sequence)
  }

  /// Parses a file name with that ending; nil for any other name.
  package init?(fileName: String, ending: String = "pack") {
    guard fileName.hasSuffix(".\(ending)") else { return nil }
    self.init(fileName.dropLast(ending.count + 1))
  }

  package static func < (left: PackName, right: PackName) -> Bool {
    left.writer != right.writer ? left.writer < right.writer : left.sequence < right.sequence
  }

  /// The seed of every record header's checksum. So a record of another pack, or of another place in this one, does not
  /// match its checksum here.
  package func checksumSeed(offset: Int64) -> UInt32 {
    var bytes = (writer.littleEndian, offset.littleEndian, UInt64(sequence).littleEndian)
    return withUnsafeBytes(of: &bytes) { CRC32C.checksum($0.bytes) }
  }
}

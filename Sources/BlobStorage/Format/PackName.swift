/// Names a pack: its writer and its ordinal among that writer's packs, counted without gaps from 1.
///
/// Each opening for writing draws a number at random from 2⁶⁴. A pack is created only if no such name exists, so no
/// name is used twice.
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

  /// The name of the file, without its folder.
  package var fileName: String { description + ".pack" }

  /// The pack whose ``description`` a text is, or nil.
  package init?(_ text: some StringProtocol) {
    guard text.utf8.count == 25, let writer = Hex.integer(UInt64.self, text.prefix(16)),
      let sequence = Hex.integer(UInt32.self, text.dropFirst(17)), sequence > 0
    else { return nil }
    self.init(writer: writer, sequence: sequence)
    guard description == text else { return nil }
  }

  /// The pack that a file name with that ending stands for, or nil.
  package init?(fileName: String, ending: String = "pack") {
    guard fileName.hasSuffix(".\(ending)") else { return nil }
    self.init(fileName.dropLast(ending.count + 1))
  }

  package static func < (left: PackName, right: PackName) -> Bool {
    left.writer != right.writer ? left.writer < right.writer : left.sequence < right.sequence
  }

  /// The beginning of every record header's checksum. It prevents a record of another pack, or of another place in this
  /// one, from being valid here.
  package func checksumSeed(offset: Int64) -> UInt32 {
    var bytes = (writer.littleEndian, offset.littleEndian, UInt64(sequence).littleEndian)
    return withUnsafeBytes(of: &bytes) { CRC32C.checksum($0.bytes) }
  }
}

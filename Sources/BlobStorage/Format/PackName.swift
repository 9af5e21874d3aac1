/// Which pack: its writer, and the how-many-th pack of that writer it is, counted without gaps from 1.
///
/// A writer's number is drawn at random from 2⁶⁴ each time a store is opened for writing, and a pack is created
/// only where no such name exists: no name is used twice.
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

  /// The pack that a file name stands for, or nil.
  package init?(fileName: String) {
    guard fileName.utf8.count == 30, fileName.hasSuffix(".pack"),
      let writer = Hex.integer(UInt64.self, fileName.prefix(16)),
      let sequence = Hex.integer(UInt32.self, fileName.dropFirst(17).prefix(8)), sequence > 0
    else { return nil }
    self.init(writer: writer, sequence: sequence)
    guard self.fileName == fileName else { return nil }
  }

  package static func < (left: PackName, right: PackName) -> Bool {
    left.writer != right.writer ? left.writer < right.writer : left.sequence < right.sequence
  }

  /// What every record header's checksum begins with, so that a record of another pack, or of another place in
  /// this one, is not taken for one that belongs here.
  package func checksumSeed(offset: Int64) -> UInt32 {
    var bytes = (writer.littleEndian, offset.littleEndian, UInt64(sequence).littleEndian)
    return withUnsafeBytes(of: &bytes) { CRC32C.checksum($0) }
  }
}

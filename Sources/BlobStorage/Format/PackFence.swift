/// What stands in the place of a pack whose writer was shut out: the writer's first name that was not taken.
///
/// Shorter than any pack, so that a listing tells one from the other. The packs of that writer that come after it are not
/// part of the store.
package struct PackFence: Hashable, Sendable {
  package static let byteCount = 64
  package static let magic = Array("BLOBFENC".utf8)

  package var name: PackName
  package var storeID: [UInt8]
  /// The collection that shut the writer out.
  package var epoch: UInt64

  package init(name: PackName, storeID: [UInt8], epoch: UInt64) {
    precondition(storeID.count == 16)
    self.name = name
    self.storeID = storeID
    self.epoch = epoch
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: Self.byteCount)
    writer.raw(Self.magic)
    writer.integer(StoreHeader.formatVersion)
    writer.zeros(6)
    writer.raw(storeID)
    writer.integer(name.writer)
    writer.integer(name.sequence)
    writer.integer(epoch)
    writer.zeros(8)
    writer.checksum()
    return writer.bytes
  }

  /// The fence that these bytes are; nil when they are none, or one of another name.
  package init?(_ bytes: [UInt8], name: PackName) {
    guard bytes.count == Self.byteCount, bytes.starts(with: Self.magic) else { return nil }
    let parts = bytes.withUnsafeBytes {
      raw -> (checksum: Bool, writer: UInt64, sequence: UInt32, epoch: UInt64) in
      func field<T: FixedWidthInteger>(_ offset: Int, _ type: T.Type) -> T {
        T(littleEndian: raw.loadUnaligned(fromByteOffset: offset, as: T.self))
      }
      let isWhole = field(60, UInt32.self) == CRC32C.checksum(UnsafeRawBufferPointer(rebasing: raw[..<60]))
      return (isWhole, field(32, UInt64.self), field(40, UInt32.self), field(44, UInt64.self))
    }
    guard parts.checksum, PackName(writer: parts.writer, sequence: parts.sequence) == name else { return nil }
    self.name = name
    storeID = Array(bytes[16..<32])
    epoch = parts.epoch
  }
}

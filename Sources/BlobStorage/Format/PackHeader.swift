/// The first 64 bytes of a pack. Format.md, "The pack header".
package struct PackHeader: Hashable, Sendable {
  package static let byteCount = 64
  package static let magic = Array("BLOBPACK".utf8)

  package var name: PackName
  package var storeID: [UInt8]
  package var digestAlgorithm: BlobDigest.Algorithm
  /// When the writer began the pack. Of two copies of a chunk, the one in the younger pack counts, unless only one of
  /// them has a base.
  package var created: UInt64

  package init(name: PackName, storeID: [UInt8], digestAlgorithm: BlobDigest.Algorithm, created: UInt64) {
    precondition(storeID.count == 16)
    self.name = name
    self.storeID = storeID
    self.digestAlgorithm = digestAlgorithm
    self.created = created
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: Self.byteCount)
    writer.raw(Self.magic)
    writer.integer(StoreHeader.formatVersion)
    writer.zeros(2)
    writer.integer(digestAlgorithm.rawValue)
    writer.zeros(3)
    writer.raw(storeID)
    writer.integer(name.writer)
    writer.integer(name.sequence)
    writer.integer(created)
    writer.zeros(8)
    writer.checksum()
    return writer.bytes
  }

  package init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    guard bytes.count >= Self.byteCount, try reader.bytes(8).elementsEqual(Self.magic) else {
      throw BlobStorageError(.corrupted, "The pack does not begin with a pack header.")
    }
    let version: UInt16 = try reader.integer()
    guard UnsafeRawBufferPointer(rebasing: bytes[..<Self.byteCount]).endsWithChecksum else {
      throw BlobStorageError(.corrupted, "The pack's header does not match its checksum.")
    }
    guard version == StoreHeader.formatVersion else { throw StoreHeader.unsupported(version, "pack") }
    try reader.reserved(2)
    let algorithm = BlobDigest.Algorithm(rawValue: try reader.integer())
    try reader.reserved(3)
    storeID = Array(try reader.bytes(16))
    let writer: UInt64 = try reader.integer()
    name = PackName(writer: writer, sequence: try reader.integer())
    created = try reader.integer()
    try reader.reserved(8)
    guard let algorithm else {
      throw BlobStorageError(.unsupportedFormat, "The pack uses a digest that this build does not know.")
    }
    guard created < Stamp.timeMax, name.sequence > 0 else {
      throw BlobStorageError(.corrupted, "The pack's time or number is invalid.")
    }
    digestAlgorithm = algorithm
  }
}

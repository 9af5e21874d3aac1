/// Encodes the keys of the catalog's rows, so that they sort in the order of what they identify.
enum RowKey {
  static func pack(_ name: PackName) -> (UInt64, UInt32) {
    (name.writer.bigEndian, name.sequence.bigEndian)
  }

  // MARK: Names

  /// LMDB keys have at most 511 bytes, and names up to 4,096. So a long name is cut into parts of this length, each
  /// stored under the number of the part before. Only the last part is shorter, so walking parts in byte order walks
  /// names in byte order.
  static let namePartByteCount = 480

  /// Calls `body` with the key of one part of a name: the byte count of the parent's number, the number in big-endian
  /// order, and the part.
  static func withName<T>(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>,
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let numberByteCount = (71 - parent.leadingZeroBitCount) / 8
    return try withUnsafeTemporaryAllocation(byteCount: 1 + numberByteCount + part.count, alignment: 8) {
      (memory) throws(BlobStorageError) in
      var filler = ByteFiller(memory)
      filler.integer(UInt8(numberByteCount))
      for index in 0..<numberByteCount {
        filler.integer(UInt8(truncatingIfNeeded: parent >> (8 * UInt64(numberByteCount - 1 - index))))
      }
      key.withUnsafeBytes { filler.raw(UnsafeRawBufferPointer(rebasing: $0[part])) }
      return try body(UnsafeRawBufferPointer(memory))
    }
  }

  // MARK: Versions and chunks

  /// Stores stamps inverted, so that the newest version comes first.
  static func version(_ key: UInt64, _ stamp: Stamp) -> (UInt64, UInt64, UInt64) {
    (key.bigEndian, (~stamp.time).bigEndian, (~stamp.writer).bigEndian)
  }

  static func numberAndStamp(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) -> (
    UInt64, Stamp
  ) {
    guard bytes.count == 24 else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a version without a stamp.")
    }
    func field(_ offset: Int) -> UInt64 {
      UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }
    return (field(0), Stamp(time: ~field(8), writer: ~field(16)))
  }

  /// The place of the record of a chunk with a base.
  static func base(_ place: Place) -> (UInt32, UInt32) {
    (place.pack.bigEndian, UInt32(place.offset).bigEndian)
  }
}

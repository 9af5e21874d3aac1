/// Integers of variable length: seven bits for each byte, the lowest first. The top bit of a byte means that another
/// byte follows.
///
/// Each number has one encoding, the shortest. A reader refuses any other. Signed numbers map to unsigned ones in the
/// order 0, -1, 1, -2.
package enum Varint {
  /// The most bytes of a number.
  package static let byteCountMax = 10

  /// The length of an encoded number.
  package static func byteCount(_ value: UInt64) -> Int { (70 - (value | 1).leadingZeroBitCount) / 7 }

  /// Maps a signed number to an unsigned one.
  package static func unsigned(_ value: Int64) -> UInt64 { UInt64(bitPattern: value << 1 ^ value >> 63) }

  /// Maps an unsigned number back to the signed one.
  package static func signed(_ value: UInt64) -> Int64 {
    Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
  }
}

extension ByteSink {
  package mutating func varint(_ value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      integer(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    integer(UInt8(truncatingIfNeeded: rest))
  }

  /// Writes a length or a count.
  package mutating func varint(_ value: Int) { varint(UInt64(value)) }
}

extension ByteReader {
  /// - Throws: `corrupted` for any encoding but the shortest.
  package mutating func varint() throws(BlobStorageError) -> UInt64 {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 70, by: 7) {
      let byte = try integer(UInt8.self)
      value |= UInt64(byte & 0x7f) << shift
      if byte & 0x80 != 0 { continue }
      guard byte != 0 || shift == 0, shift < 63 || byte == 1 else { break }
      return value
    }
    throw BlobStorageError(.corrupted, "A number is not in its shortest encoding.")
  }

  /// Reads a length or a count. Throws `corrupted` if it exceeds `max`.
  package mutating func varint(atMost max: Int) throws(BlobStorageError) -> Int {
    let value = try varint()
    guard value <= UInt64(max) else {
      throw BlobStorageError(.corrupted, "A length of \(value) exceeds the maximum of \(max).")
    }
    return Int(value)
  }
}

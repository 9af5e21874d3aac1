/// Integers of variable length: seven bits a byte, the lowest first; the top bit of a byte says that another follows.
///
/// Each number has one encoding, the shortest. A reader refuses any other. Signed numbers alternate: 0, -1, 1, -2.
package enum Varint {
  /// The most bytes that a number takes.
  package static let byteCountMax = 10

  /// Bytes that a number takes.
  package static func byteCount(_ value: UInt64) -> Int { (70 - (value | 1).leadingZeroBitCount) / 7 }

  /// The unsigned number that stands for a signed one.
  package static func unsigned(_ value: Int64) -> UInt64 { UInt64(bitPattern: value << 1 ^ value >> 63) }

  /// The signed number that an unsigned one stands for.
  package static func signed(_ value: UInt64) -> Int64 {
    Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
  }
}

extension ByteSink {
  /// Puts a number.
  package mutating func varint(_ value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      integer(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    integer(UInt8(truncatingIfNeeded: rest))
  }

  /// Puts a length or a count.
  package mutating func varint(_ value: Int) { varint(UInt64(value)) }
}

extension ByteReader {
  /// Takes a number.
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

  /// Takes a length or a count of at most `max`.
  package mutating func varint(atMost max: Int) throws(BlobStorageError) -> Int {
    let value = try varint()
    guard value <= UInt64(max) else {
      throw BlobStorageError(.corrupted, "A length of \(value) exceeds the maximum of \(max).")
    }
    return Int(value)
  }
}

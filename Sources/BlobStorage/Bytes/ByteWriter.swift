/// Puts integers and bytes one behind the other, little-endian.
package struct ByteWriter {
  /// What has been written.
  package private(set) var bytes: [UInt8] = []

  /// An empty writer with room for `capacity` bytes.
  package init(capacity: Int = 128) { bytes.reserveCapacity(capacity) }

  /// Appends an integer.
  package mutating func integer<T: FixedWidthInteger>(_ value: T) {
    withUnsafeBytes(of: value.littleEndian) { bytes.append(contentsOf: $0) }
  }

  /// Appends bytes as they are.
  package mutating func raw(_ more: UnsafeRawBufferPointer) { bytes.append(contentsOf: more) }

  /// Appends bytes as they are.
  package mutating func raw(_ more: some Collection<UInt8>) { bytes.append(contentsOf: more) }

  /// Appends `count` zero bytes.
  package mutating func zeros(_ count: Int) { bytes.append(contentsOf: repeatElement(0, count: count)) }

  /// Appends the CRC32C of all that was written so far.
  package mutating func checksum(continuing seed: UInt32 = 0) {
    integer(CRC32C.checksum(bytes.span.bytes, continuing: seed))
  }
}

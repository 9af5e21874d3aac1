/// Writes integers and bytes in sequence, little-endian.
package protocol ByteSink {
  /// Writes bytes unchanged.
  mutating func raw(_ bytes: UnsafeRawBufferPointer)
}

extension ByteSink {
  /// Writes an integer.
  package mutating func integer<T: FixedWidthInteger & BitwiseCopyable>(_ value: T) {
    withUnsafeBytes(of: value.littleEndian) { raw($0) }
  }

  /// Writes bytes unchanged.
  package mutating func raw(_ bytes: [UInt8]) { bytes.withUnsafeBytes { raw($0) } }

  /// Writes `count` zero bytes.
  package mutating func zeros(_ count: Int) { for _ in 0..<count { integer(UInt8(0)) } }
}

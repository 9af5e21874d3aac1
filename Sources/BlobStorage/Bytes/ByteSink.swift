/// Writes integers and bytes in sequence, little-endian.
package protocol ByteSink {
  /// Writes bytes unchanged.
  mutating func raw(_ bytes: UnsafeRawBufferPointer)
}

extension ByteSink {
  package mutating func integer<T: FixedWidthInteger & BitwiseCopyable>(_ value: T) {
    withUnsafeBytes(of: value.littleEndian) { raw($0) }
  }

  package mutating func raw(_ bytes: [UInt8]) { bytes.withUnsafeBytes { raw($0) } }

  package mutating func zeros(_ count: Int) { for _ in 0..<count { integer(UInt8(0)) } }
}

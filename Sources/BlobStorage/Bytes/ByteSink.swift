/// Takes integers and bytes one behind the other, little-endian.
package protocol ByteSink {
  /// Puts bytes as they are.
  mutating func raw(_ bytes: UnsafeRawBufferPointer)
}

extension ByteSink {
  /// Puts an integer.
  package mutating func integer<T: FixedWidthInteger & BitwiseCopyable>(_ value: T) {
    withUnsafeBytes(of: value.littleEndian) { raw($0) }
  }

  /// Puts bytes as they are.
  package mutating func raw(_ bytes: [UInt8]) { bytes.withUnsafeBytes { raw($0) } }

  /// Puts `count` zero bytes.
  package mutating func zeros(_ count: Int) {
    withUnsafeBytes(of: (UInt64(0), UInt64(0))) { zeros in
      for done in stride(from: 0, to: count, by: zeros.count) {
        raw(UnsafeRawBufferPointer(rebasing: zeros.prefix(count - done)))
      }
    }
  }
}

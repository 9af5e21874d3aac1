/// Compares keys in byte order, eight bytes at a time, because keys of one folder share long prefixes.
extension [UInt8] {
  /// The length of the common prefix in bytes.
  func sharedPrefixCount(with other: [UInt8]) -> Int {
    let (left, right) = (span.bytes, other.span.bytes)
    let count = Swift.min(left.byteCount, right.byteCount)
    var index = 0
    while index + 8 <= count {
      let difference =
        left.unsafeLoadUnaligned(fromUncheckedByteOffset: index, as: UInt64.self)
        ^ right.unsafeLoadUnaligned(fromUncheckedByteOffset: index, as: UInt64.self)
      if difference != 0 { return index + difference.littleEndian.trailingZeroBitCount / 8 }
      index += 8
    }
    while index < count, self[index] == other[index] { index += 1 }
    return index
  }

  func precedes(_ other: [UInt8]) -> Bool {
    let shared = sharedPrefixCount(with: other)
    if shared < count, shared < other.count { return self[shared] < other[shared] }
    return count < other.count
  }
}

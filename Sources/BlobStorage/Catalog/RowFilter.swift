/// Which keys a run cannot have: a Bloom filter whose bits for a key lie in one line of 64 bytes, the last four of which
/// are its checksum.
///
/// Source: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007. With 10 bits for each key
/// and 7 bits set, about one key in 80 that is not there is looked up in vain.
enum RowFilter {
  private static let lineByteCount = IndexRoot.filterLineByteCount
  static let bitCountOfKey = 10
  private static let bitCountOfLine = UInt64(lineByteCount - RunBlock.checksumByteCount) * 8
  private static let setCount = 7

  /// Lines for so many keys, at most `byteCountMax` bytes.
  static func lineCount(keyCount: Int, byteCountMax: Int) -> Int {
    max(1, min(keyCount * bitCountOfKey / 8, byteCountMax) / lineByteCount)
  }

  /// The line of a key, and its bits in it.
  static func place(_ key: UnsafeRawBufferPointer, lineCount: Int) -> (line: Int, bits: [UInt16]) {
    // FNV-1a with 64 bits, then the finalizer of MurmurHash3: both are public domain.
    var hash: UInt64 = 0xCBF2_9CE4_8422_2325
    for byte in key { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
    hash = (hash ^ hash >> 33) &* 0xFF51_AFD7_ED55_8CCD
    hash = (hash ^ hash >> 33) &* 0xC4CE_B9FE_1A85_EC53
    hash ^= hash >> 33
    let line = Int(hash.multipliedFullWidth(by: UInt64(lineCount)).high)
    var rest = hash &* 0x9E37_79B9_7F4A_7C15
    let bits = (0..<setCount).map { _ in
      defer { rest = (rest ^ rest >> 29) &* 0xBF58_476D_1CE4_E5B9 }
      return UInt16(((rest >> 32) * bitCountOfLine) >> 32)
    }
    return (line, bits)
  }
}

/// A filter that keys are put into.
struct RowFilterBuilder {
  private(set) var bytes: [UInt8]
  let lineCount: Int

  init(keyCount: Int, byteCountMax: Int) {
    lineCount = RowFilter.lineCount(keyCount: keyCount, byteCountMax: byteCountMax)
    bytes = [UInt8](repeating: 0, count: lineCount * IndexRoot.filterLineByteCount)
  }

  mutating func insert(_ key: UnsafeRawBufferPointer) {
    let (line, bits) = RowFilter.place(key, lineCount: lineCount)
    for bit in bits { bytes[line * IndexRoot.filterLineByteCount + Int(bit / 8)] |= 1 << (bit % 8) }
  }

  /// Sets the checksums.
  mutating func finish() {
    let count = IndexRoot.filterLineByteCount - RunBlock.checksumByteCount
    bytes.withUnsafeMutableBytes { bytes in
      for start in stride(from: 0, to: bytes.count, by: IndexRoot.filterLineByteCount) {
        let checksum = CRC32C.checksum(UnsafeRawBufferPointer(rebasing: bytes[start..<start + count]).bytes)
        bytes.storeBytes(of: checksum.littleEndian, toByteOffset: start + count, as: UInt32.self)
      }
    }
  }
}

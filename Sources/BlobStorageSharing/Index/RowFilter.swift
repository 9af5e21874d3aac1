import BlobStorage

/// Shows which keys a run lacks. A Bloom filter: the bits of a key lie in one line of 64 bytes, whose last four bytes
/// are its checksum.
///
/// Source: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007. With 10 bits for each key
/// and 7 bits set, about one in 80 lookups of absent keys is not filtered out.
package enum RowFilter {
  private static let bitCountOfLine = UInt64(IndexRoot.filterLineByteCount - RunBlock.checksumByteCount) * 8
  private static let setCount = 7

  /// The line of a key, and its bits in it.
  package static func place(_ key: UnsafeRawBufferPointer, lineCount: Int) -> (line: Int, bits: [UInt16]) {
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

import CBlobKernels

/// The checksum over stored bytes: CRC-32C (Castagnoli, RFC 3720 section 12.1).
package enum CRC32C {
  /// The checksum of these bytes; with `seed`, the checksum of the bytes before them, that of both together.
  package static func checksum(_ bytes: UnsafeRawBufferPointer, continuing seed: UInt32 = 0) -> UInt32 {
    bs_crc32c(seed, bytes.baseAddress, bytes.count)
  }
}

extension UnsafeRawBufferPointer {
  /// Whether these bytes end with the checksum of those before, as ``ByteWriter/checksum(continuing:)`` appends it.
  package var endsWithChecksum: Bool {
    let end = count - 4
    return end >= 0
      && loadUnaligned(fromByteOffset: end, as: UInt32.self).littleEndian
        == CRC32C.checksum(UnsafeRawBufferPointer(rebasing: self[..<end]))
  }
}

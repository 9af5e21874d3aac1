import CBlobKernels

/// The checksum over stored bytes: CRC-32C (Castagnoli, RFC 3720 section 12.1).
package enum CRC32C {
  /// The checksum of `bytes`. If `seed` is the checksum of preceding bytes, the result is that of both together.
  package static func checksum(_ bytes: RawSpan, continuing seed: UInt32 = 0) -> UInt32 {
    bytes.withUnsafeBytes { bs_crc32c(seed, $0.baseAddress, $0.count) }
  }
}

extension UnsafeRawBufferPointer {
  /// Whether the last four bytes are the checksum of the others, as ``ByteWriter/checksum(continuing:)`` appends it.
  package var endsWithChecksum: Bool {
    let end = count - 4
    return end >= 0
      && loadUnaligned(fromByteOffset: end, as: UInt32.self).littleEndian
        == CRC32C.checksum(bytes.extracting(0..<end))
  }
}

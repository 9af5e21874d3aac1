import CBlobKernels

/// The checksum over stored bytes: CRC-32C (Castagnoli, RFC 3720 section 12.1).
package enum CRC32C {
  /// The checksum of these bytes; with `seed`, the checksum of the bytes before them, that of both together.
  package static func checksum(_ bytes: RawSpan, continuing seed: UInt32 = 0) -> UInt32 {
    bytes.withUnsafeBytes { bs_crc32c(seed, $0.baseAddress, $0.count) }
  }
}

extension UnsafeRawBufferPointer {
  /// Whether these bytes end with the checksum of those before, as ``ByteWriter/checksum(continuing:)`` appends it.
  package var endsWithChecksum: Bool {
    let end = count - 4
    return end >= 0
      && loadUnaligned(fromByteOffset: end, as: UInt32.self).littleEndian
        == CRC32C.checksum(bytes.extracting(0..<end))
  }
}

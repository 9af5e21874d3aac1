import CBlobKernels

/// The checksum over stored bytes: CRC-32C (Castagnoli, RFC 3720 section 12.1).
package enum CRC32C {
  /// The checksum of these bytes; with `seed`, the checksum of the bytes before them, that of both together.
  package static func checksum(_ bytes: UnsafeRawBufferPointer, continuing seed: UInt32 = 0) -> UInt32 {
    bs_crc32c(seed, bytes.baseAddress, bytes.count)
  }
}

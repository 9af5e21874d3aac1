/// Appends to an array.
package struct ByteWriter: ByteSink {
  package private(set) var bytes: [UInt8] = []

  package init(capacity: Int = 128) { bytes.reserveCapacity(capacity) }

  package mutating func raw(_ more: UnsafeRawBufferPointer) { bytes.append(contentsOf: more) }

  /// Appends the CRC32C of all bytes written so far.
  package mutating func checksum(continuing seed: UInt32 = 0) {
    integer(CRC32C.checksum(bytes.span.bytes, continuing: seed))
  }
}

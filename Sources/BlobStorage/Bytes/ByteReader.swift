/// Reads little-endian integers and bytes from the front of a borrowed buffer.
///
/// A read past its end throws `corrupted`. The buffer must outlive the reader; both stay inside one `withUnsafeBytes`.
package struct ByteReader {
  private let all: UnsafeRawBufferPointer
  private var offset = 0

  package init(_ bytes: UnsafeRawBufferPointer) { all = bytes }

  package var remainingByteCount: Int { all.count - offset }

  package mutating func bytes(_ count: Int) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    let start = try skip(count)
    return UnsafeRawBufferPointer(rebasing: all[start..<start + count])
  }

  package mutating func integer<T: FixedWidthInteger>(_ type: T.Type = T.self) throws(BlobStorageError) -> T {
    T(littleEndian: all.loadUnaligned(fromByteOffset: try skip(MemoryLayout<T>.size), as: T.self))
  }

  /// Skips the next `count` bytes, and returns their offset.
  @inline(__always)
  private mutating func skip(_ count: Int) throws(BlobStorageError) -> Int {
    guard count >= 0, count <= all.count - offset else { throw early(count) }
    defer { offset += count }
    return offset
  }

  @inline(never)
  private func early(_ count: Int) -> BlobStorageError {
    BlobStorageError(
      .corrupted, "The data ends early: \(count) more bytes were expected, but \(remainingByteCount) remain.")
  }

  /// Reads `count` reserved bytes.
  ///
  /// - Throws: `unsupportedFormat` unless they are zero.
  package mutating func reserved(_ count: Int) throws(BlobStorageError) {
    guard try bytes(count).allSatisfy({ $0 == 0 }) else {
      throw BlobStorageError(.unsupportedFormat, "Reserved bytes are not zero: a later build wrote this.")
    }
  }

  /// Ends reading.
  ///
  /// - Throws: `corrupted` if a byte is left.
  package func finish() throws(BlobStorageError) {
    guard remainingByteCount == 0 else {
      throw BlobStorageError(.corrupted, "The data has \(remainingByteCount) bytes too many.")
    }
  }
}

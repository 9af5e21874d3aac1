/// Takes integers and bytes from the front of a borrowed buffer, little-endian, never past its end.
///
/// The buffer must outlive the reader; both stay inside one `withUnsafeBytes`.
package struct ByteReader {
  private var rest: UnsafeRawBufferPointer

  /// Reads from the start of `bytes`.
  package init(_ bytes: UnsafeRawBufferPointer) { rest = bytes }

  /// How many bytes have not been taken.
  package var remainingByteCount: Int { rest.count }

  /// Takes the next `count` bytes.
  package mutating func bytes(_ count: Int) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    guard count >= 0, count <= rest.count else {
      throw BlobStorageError(
        .corrupted, "Bytes end early: \(count) more were expected, \(rest.count) are there.")
    }
    let taken = UnsafeRawBufferPointer(rebasing: rest[..<count])
    rest = UnsafeRawBufferPointer(rebasing: rest[count...])
    return taken
  }

  /// Takes the next integer.
  package mutating func integer<T: FixedWidthInteger>(_ type: T.Type = T.self) throws(BlobStorageError) -> T {
    T(littleEndian: try bytes(MemoryLayout<T>.size).loadUnaligned(as: T.self))
  }

  /// Takes `count` bytes that must be zero: they are reserved.
  package mutating func reserved(_ count: Int) throws(BlobStorageError) {
    guard try bytes(count).allSatisfy({ $0 == 0 }) else {
      throw BlobStorageError(.unsupportedFormat, "Reserved bytes are not zero: a later build wrote this.")
    }
  }

  /// Ends the reading: nothing may be left.
  package func finish() throws(BlobStorageError) {
    guard rest.isEmpty else {
      throw BlobStorageError(.corrupted, "There are \(rest.count) bytes too many.")
    }
  }
}

import Foundation

/// Runs `body` on the bytes of an array, as `withUnsafeBytes` does, but keeps the error's type.
package func bridge<T>(
  _ bytes: [UInt8], _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
) throws(BlobStorageError) -> T {
  try bytes.withUnsafeBufferPointer { (bytes) throws(BlobStorageError) in
    try body(UnsafeRawBufferPointer(bytes))
  }
}

/// Runs `body` on the bytes of `data`, as `withUnsafeBytes` does, but keeps the error's type.
package func bridge<T>(
  _ data: Data, _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
) throws(BlobStorageError) -> T {
  let result: Result<T, BlobStorageError> = data.withUnsafeBytes { bytes in
    do throws(BlobStorageError) { return .success(try body(bytes)) } catch { return .failure(error) }
  }
  return try result.get()
}

extension [UInt8] {
  /// Makes an array in memory that is not zeroed before: of its `capacity` bytes, `fill` writes the first, and returns
  /// how many.
  package init(
    filling capacity: Int, by fill: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) {
    // The standard library's initializer forgets the error's type.
    var failure: BlobStorageError?
    self.init(unsafeUninitializedCapacity: capacity) { buffer, count in
      do throws(BlobStorageError) {
        count = try fill(UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: capacity))
      } catch { failure = error }
    }
    if let failure { throw failure }
  }
}

import Foundation

/// Like `withUnsafeBytes` of an array, but keeps the error's type.
package func bridge<T>(
  _ bytes: [UInt8], _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
) throws(BlobStorageError) -> T {
  try bytes.withUnsafeBufferPointer { (bytes) throws(BlobStorageError) in
    try body(UnsafeRawBufferPointer(bytes))
  }
}

/// Bytes whose memory is not zeroed before `fill` writes it.
protocol FilledBytes {
  /// - Parameters:
  ///   - capacity: the bytes to allocate.
  ///   - fill: writes the first bytes, and returns their number.
  init(
    filling capacity: Int, by fill: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError)

  init(copying array: [UInt8])
}

extension [UInt8]: FilledBytes {
  package init(
    filling capacity: Int, by fill: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) {
    guard capacity > 0 else {
      // The standard library would store a count in memory that all empty arrays share, which the thread sanitizer
      // reports as a race.
      _ = try fill(UnsafeMutableRawBufferPointer(start: nil, count: 0))
      self = []
      return
    }
    // The standard library's initializer loses the error's type.
    var failure: BlobStorageError?
    self.init(unsafeUninitializedCapacity: capacity) { buffer, count in
      do throws(BlobStorageError) {
        count = try fill(UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: capacity))
      } catch { failure = error }
    }
    if let failure { throw failure }
  }

  init(copying array: [UInt8]) { self = array }

  /// Replaces all bytes by those that `fill` writes, in the array's own memory if it is large enough.
  ///
  /// - Parameters:
  ///   - capacity: the bytes that `fill` may write.
  ///   - fill: writes the first bytes, and returns their number.
  mutating func fill(
    _ capacity: Int, by fill: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) {
    removeAll(keepingCapacity: true)
    try append(addingCapacity: capacity) { (span: inout OutputSpan<UInt8>) throws(BlobStorageError) in
      try span.withUnsafeMutableBufferPointer { (buffer, count) throws(BlobStorageError) in
        count = try fill(UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: capacity))
      }
    }
  }
}

extension Data: FilledBytes {
  package init(
    filling capacity: Int, by fill: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) {
    let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: capacity, alignment: 16)
    let count: Int
    do throws(BlobStorageError) { count = try fill(memory) } catch {
      memory.deallocate()
      throw error
    }
    guard let start = memory.baseAddress, count > 0 else {
      memory.deallocate()
      self.init()
      return
    }
    self.init(bytesNoCopy: start, count: count, deallocator: .custom { start, _ in start.deallocate() })
  }

  init(copying array: [UInt8]) { self.init(array) }
}

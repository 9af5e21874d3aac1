/// Bytes that encoder and decoder both have, so that what they share with a chunk need not be stored.
///
/// It borrows them for the one call that it is passed to.
package enum EncodingBase: ~Escapable {
  /// Nothing.
  case none
  /// The plain bytes of a similar chunk.
  case prefix(RawSpan)

  var isNone: Bool {
    if case .none = self { true } else { false }
  }

  /// Calls `body` with the bytes: none without a base.
  func withUnsafeBytes<Result>(
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    switch self {
    case .none: try body(UnsafeRawBufferPointer(start: nil, count: 0))
    case .prefix(let bytes): try bytes.withUnsafeBytes(body)
    }
  }
}

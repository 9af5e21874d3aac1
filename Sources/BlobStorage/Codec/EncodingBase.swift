/// The base of a chunk: bytes that encoder and decoder both have, so that shared content need not be stored.
///
/// It borrows the bytes for one call.
package enum EncodingBase: ~Escapable {
  /// Nothing.
  case none
  /// The plain bytes of a similar chunk.
  case prefix(RawSpan)

  var isNone: Bool {
    if case .none = self { true } else { false }
  }

  /// Calls `body` with the base's bytes, or with no bytes.
  func withUnsafeBytes<Result>(
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    switch self {
    case .none: try body(UnsafeRawBufferPointer(start: nil, count: 0))
    case .prefix(let bytes): try bytes.withUnsafeBytes(body)
    }
  }
}

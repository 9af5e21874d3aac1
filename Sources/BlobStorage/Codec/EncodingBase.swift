/// Bytes that encoder and decoder both have, so that what they share with a chunk need not be stored.
///
/// The pointers are borrowed for the one call they are passed to.
package enum EncodingBase {
  /// Nothing.
  case none
  /// The plain bytes of a similar chunk.
  case prefix(UnsafeRawBufferPointer)
  /// A dictionary made by ``DictionaryTrainer``.
  ///
  /// Its digested form is cached under `identity`: the same number must always come with the same bytes.
  case dictionary(UnsafeRawBufferPointer, identity: UInt64)

  var isNone: Bool {
    if case .none = self { true } else { false }
  }
}

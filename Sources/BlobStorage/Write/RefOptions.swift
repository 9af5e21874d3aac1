/// The part of a put's options that concerns its ref.
package struct RefOptions: Sendable {
  package var replacement: Replacement
  var condition: ChangeCondition
  package var metadata: [UInt8]
  /// Set if the version is dropped by the commit that adds it.
  let heldPut: HeldPut?
  let keepsReplaced: Bool

  init(_ options: PutOptions) {
    replacement = options.replacement
    condition = options.condition
    metadata = options.storedMetadata
    heldPut = options.heldPut
    keepsReplaced = options.keepsReplaced
  }
}

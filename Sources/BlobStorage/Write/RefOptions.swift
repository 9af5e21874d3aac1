/// What a put's options say of the ref.
package struct RefOptions: Sendable {
  package var replacement: Replacement
  var condition: ChangeCondition
  package var metadata: [UInt8]
  /// Set if the version is dropped by its own commit.
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

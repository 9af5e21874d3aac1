/// Extends the catalog by what other machines have published and removed, for a reader that misses a chunk or a pack.
package protocol CatalogExtender: Sendable {
  /// Extends the catalog for a reader that misses something. False when nothing can have changed since the last time.
  func extendForMissing() throws(BlobStorageError) -> Bool

  /// Makes the catalog anew if removed packs may have hidden other copies; says whether there is a new one.
  func completeCatalog() throws(BlobStorageError) -> Bool

  /// Brings the catalog up to the removal of a pack that it still names.
  ///
  /// - Throws: `corrupted` if no collector has removed the pack.
  func resolveGone(_ pack: PackName, _ reason: String) throws(BlobStorageError)
}

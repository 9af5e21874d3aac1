/// Extends the catalog by what other machines have published and removed, for a reader that misses a chunk or a pack.
package protocol CatalogExtender: Sendable {
  /// Extends the catalog. Returns false if nothing can have changed since the last time.
  func extendForMissing() throws(BlobStorageError) -> Bool

  /// Completes a catalog that may lack packs or, after a removal, other copies. Returns whether it has changed.
  func completeCatalog() throws(BlobStorageError) -> Bool

  /// Applies the removal of a pack that the catalog still names.
  ///
  /// - Throws: `corrupted` if no collector has removed the pack.
  func resolveGone(_ pack: PackName, _ reason: String) throws(BlobStorageError)
}

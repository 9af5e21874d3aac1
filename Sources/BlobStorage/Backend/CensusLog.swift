/// Stores a store's census.
package protocol CensusLog: Sendable {
  func read() throws(BlobStorageError) -> Census

  /// Appends lines.
  ///
  /// - Parameter durably: whether to sync the lines, and the name of a new file, before returning.
  func append(_ events: [Census.Event], durably: Bool) throws(BlobStorageError)

  /// Replaces all lines by the fewest with the same meaning. The caller holds the collection lock.
  func replace(by census: Census) throws(BlobStorageError)
}

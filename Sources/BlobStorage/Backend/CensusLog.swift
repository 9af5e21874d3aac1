/// Where a store writes its census.
package protocol CensusLog: Sendable {
  /// What was written so far.
  func read() throws(BlobStorageError) -> Census

  /// Appends lines.
  ///
  /// - Parameter durably: whether they are on the medium on return, and the name of a new file too.
  func append(_ events: [Census.Event], durably: Bool) throws(BlobStorageError)

  /// Replaces all lines by the fewest that say the same. The caller holds the collection lock.
  func replace(by census: Census) throws(BlobStorageError)
}

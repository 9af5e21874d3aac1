import BlobStorage

/// The census of published packs, which stays empty. The bucket's listing and the collection log show which packs
/// belong to the store.
package struct PublishedCensus: CensusLog {
  package init() {}

  package func read() -> Census { Census() }
  package func append(_ events: [Census.Event], durably: Bool) {}
  package func replace(by census: Census) {}
}

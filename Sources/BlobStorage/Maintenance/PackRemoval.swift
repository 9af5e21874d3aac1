/// How a collection takes packs out of a store: the steps that depend on who else decides about the packs.
package protocol PackRemoval {
  /// Packs that are condemned already. The collection plans them whatever they hold.
  var condemned: Set<PackName> { get }

  /// Ends what a collection that was killed has begun.
  func finishLast(_ collector: Collector) throws(BlobStorageError)

  /// Adds to the report why nothing may be removed.
  func addObstacles(_ rows: [(number: UInt32, row: PackRow)], _ collector: Collector)

  /// Condemns the planned packs, copies what is live in them, and removes them.
  func remove(
    _ candidates: [Collector.Candidate], _ rows: [(number: UInt32, row: PackRow)], _ collector: Collector
  ) throws(BlobStorageError)
}

/// The store alone decides: a pack goes once every commit under way has seen that it is condemned.
package struct LocalRemoval: PackRemoval {
  package init() {}

  package var condemned: Set<PackName> { [] }

  package func finishLast(_ collector: Collector) throws(BlobStorageError) { try collector.finishLast() }

  package func addObstacles(_ rows: [(number: UInt32, row: PackRow)], _ collector: Collector) {
    collector.addAbsent()
    collector.addDamaged()
  }

  package func remove(
    _ candidates: [Collector.Candidate], _ rows: [(number: UInt32, row: PackRow)], _ collector: Collector
  ) throws(BlobStorageError) { try collector.removeCondemned(candidates, rows) }
}

import BlobStorage

/// Reads and appends the log of collections of one store.
package struct CollectionLog: Sendable {
  let objects: any ObjectStore
  let storeID: [UInt8]
  /// Saves an entry locally before it is put.
  private let keep: @Sendable (UInt32, [UInt8]) throws(BlobStorageError) -> Void

  package init(
    _ objects: any ObjectStore, storeID: [UInt8],
    keep: @escaping @Sendable (UInt32, [UInt8]) throws(BlobStorageError) -> Void = { _, _ in }
  ) {
    self.keep = keep
    self.objects = objects
    self.storeID = storeID
  }

  /// Reads the newest state of the log.
  ///
  /// - Complexity: one listing of the entries after `known`, and one get if there are any.
  package func read(after known: Collections) throws(BlobStorageError) -> Collections {
    let first = known.number > 0 ? SharedNames.collection(known.number) : nil
    let entries = try objects.listAll(SharedNames.collections, after: first)
    var number = known.number
    for entry in entries {
      guard let found = SharedNames.collectionNumber(entry.name), found == number + 1 else {
        throw BlobStorageError(
          .corrupted,
          "The store's collections have \(entry.name) after entry \(number): an object is missing, or does"
            + " not belong there.",
          path: entry.name)
      }
      number = found
    }
    guard number > known.number else { return known }
    let name = SharedNames.collection(number)
    guard let bytes = try objects.whole(name, .collection) else {
      throw BlobStorageError(.corrupted, "The object \(name) is listed, but it does not exist.", path: name)
    }
    return try Collections(bytes, number: number, storeID: storeID)
  }

  /// Appends an entry that condemns more packs.
  ///
  /// - Returns: nil if another collector has appended an entry after `known`. Read and plan again.
  package func condemn(
    _ names: some Sequence<PackName>, after known: Collections, by collector: UInt64
  ) throws(BlobStorageError) -> Collections? {
    var next = known
    next.condemned.formUnion(names)
    next.epoch = known.number + 1
    return try put(&next, collector)
  }

  /// Appends an entry that removes condemned packs. Only after it may their objects be deleted.
  ///
  /// Their live records must be published in other packs. All writers must have acknowledged the condemnation, have
  /// left, or be fenced.
  ///
  /// - Parameters:
  ///   - ends: end marks of writers all of whose packs are removed. From now on the log shows how many there were.
  ///   - known: the collector's own condemnation.
  /// - Returns: nil if another collector has condemned since. Then nothing may be deleted.
  package func remove(
    _ names: some Sequence<PackName>, ends: [PackName] = [], after known: Collections, by collector: UInt64
  ) throws(BlobStorageError) -> Collections? {
    precondition(
      known.isStanding && known.collector == collector, "only the collector that condemned last removes")
    var next = known
    for name in names {
      precondition(known.condemned.contains(name), "only condemned packs are removed")
      next.condemned.remove(name)
      next.removed.insert(name)
    }
    for name in ends { next.removed.insert(name) }
    return try put(&next, collector)
  }

  private func put(_ next: inout Collections, _ collector: UInt64) throws(BlobStorageError) -> Collections? {
    next.number += 1
    next.collector = collector
    let bytes = next.encoded(storeID: storeID)
    guard bytes.count <= Limits.collectionByteCountMax else {
      throw BlobStorageError(.limitExceeded, "There are too many packs for one collection: collect fewer.")
    }
    let name = SharedNames.collection(next.number)
    try keep(next.number, bytes)
    if try objects.put(name, .bytes(bytes), ifAbsent: true) == .stored { return next }
    // The stored entry may be this one: the first answer was lost.
    guard try objects.whole(name, .collection) == bytes else { return nil }
    return next
  }
}

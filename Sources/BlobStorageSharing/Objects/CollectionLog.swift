import BlobStorage

/// The way to the collections' entries of one store.
package struct CollectionLog: Sendable {
  let objects: any ObjectStore
  let storeID: [UInt8]
  /// Called before an entry is put.
  private let keep: @Sendable (UInt32, [UInt8]) throws(BlobStorageError) -> Void

  package init(
    _ objects: any ObjectStore, storeID: [UInt8],
    keep: @escaping @Sendable (UInt32, [UInt8]) throws(BlobStorageError) -> Void = { _, _ in }
  ) {
    self.keep = keep
    self.objects = objects
    self.storeID = storeID
  }

  /// What has been said by now.
  ///
  /// - Complexity: one listing of what came after `known`, and one get if there is any.
  package func read(after known: Collections) throws(BlobStorageError) -> Collections {
    let first = known.number > 0 ? SharedNames.collection(known.number) : nil
    let entries = try objects.listAll(SharedNames.collections, after: first)
    var number = known.number
    for entry in entries {
      guard let found = SharedNames.collectionNumber(entry.name), found == number + 1 else {
        throw BlobStorageError(
          .corrupted,
          "The store's collections have \(entry.name) after entry \(number): an object is missing, or is no part of it.",
          path: entry.name)
      }
      number = found
    }
    guard number > known.number else { return known }
    let name = SharedNames.collection(number)
    guard let bytes = try objects.whole(name, .collection) else {
      throw BlobStorageError(.corrupted, "The object \(name) is listed, and not there.", path: name)
    }
    return try Collections(bytes, number: number, storeID: storeID)
  }

  /// Condemns packs, besides those that are condemned already.
  ///
  /// - Returns: nil when another has said something since `known` was read: read again, plan again.
  package func condemn(
    _ names: some Sequence<PackName>, after known: Collections, by collector: UInt64
  ) throws(BlobStorageError) -> Collections? {
    var next = known
    next.condemned.formUnion(names)
    next.epoch = known.number + 1
    return try put(&next, collector)
  }

  /// Says that packs are no part of the store any more. What of them is live must be published elsewhere, and all
  /// writers must have passed the condemnation, or be fenced. Only then may the objects be deleted.
  ///
  /// - Parameter known: the collector's own condemnation.
  /// - Returns: nil when another has condemned after it: then nothing may be deleted.
  package func remove(
    _ names: some Sequence<PackName>, after known: Collections, by collector: UInt64
  ) throws(BlobStorageError) -> Collections? {
    precondition(known.isStanding && known.collector == collector, "only who condemned last removes")
    var next = known
    for name in names {
      precondition(known.condemned.contains(name), "only what is condemned is removed")
      next.condemned.remove(name)
      next.removed.insert(name)
    }
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
    // It may be this very entry, whose answer was lost.
    guard try objects.whole(name, .collection) == bytes else { return nil }
    return next
  }
}

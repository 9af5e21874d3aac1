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
  /// It ignores objects with other names than an entry's, and objects behind a gap that are no entries of this store.
  ///
  /// - Complexity: one listing of the entries after `known`, and one get if there are any.
  package func read(after known: Collections) throws(BlobStorageError) -> Collections {
    let first = known.number > 0 ? SharedNames.collection(known.number) : nil
    var number = known.number
    for entry in try objects.listAll(SharedNames.collections, after: first) {
      guard let found = SharedNames.collectionNumber(entry.name) else { continue }
      if found == number + 1 {
        number = found
      } else if try isEntry(found) {
        throw BlobStorageError(
          .corrupted,
          "The store's log has \(entry.name) after entry \(number): restore the object that is missing between.",
          path: entry.name)
      }
    }
    return number > known.number ? try entry(number) : known
  }

  private func entry(_ number: UInt32) throws(BlobStorageError) -> Collections {
    let name = SharedNames.collection(number)
    guard let bytes = try objects.whole(name, .collection) else {
      throw BlobStorageError(.corrupted, "The object \(name) is listed, but it does not exist.", path: name)
    }
    return try Collections(bytes, number: number, storeID: storeID)
  }

  private func isEntry(_ number: UInt32) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      _ = try entry(number)
      return true
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
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

  /// Appends an entry that accepts losses: all machines then treat these packs as removed.
  ///
  /// A collector that condemned before gives up, because its entry is not the last any more.
  ///
  /// - Returns: nil if another machine has appended an entry after `known`.
  package func accept(
    _ names: some Sequence<PackName>, _ gaps: [(writer: UInt64, sequences: ClosedRange<UInt32>)],
    after known: Collections, by machine: UInt64
  ) throws(BlobStorageError) -> Collections? {
    var next = known
    for name in names { next.removed.insert(name) }
    for gap in gaps { next.removed.insert(gap.sequences, of: gap.writer) }
    next.condemned = next.condemned.filter { !next.removed.contains($0) }
    return try put(&next, machine)
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

import BlobStorage
import Synchronization

/// Changes: machines learn of published packs without listing all.
extension RemoteBackend {
  private var changes: ChangeList { ChangeList(objects, storeID: storeID) }

  /// The last change that this process knows. The next change gets a higher number.
  var lastChange: UInt32 { max(knownChange.withLock { $0 }, collections.horizon) }

  private func raiseLastChange(to number: UInt32) { knownChange.withLock { $0 = max($0, number) } }

  // MARK: Naming packs

  /// Names a published pack, so that other machines find it.
  ///
  /// Its writer is registered, so no collector deletes the changes whose numbers this one could collide with.
  func announce(_ name: PackName) throws(BlobStorageError) {
    // After the last possible pack there is no name for a fence either.
    guard name.sequence < .max else { return }
    try append(Change(name.writer, name.sequence..<name.sequence + 1))
  }

  private func append(_ change: Change) throws(BlobStorageError) {
    guard hasChanges else { return }
    raiseLastChange(to: try changes.append(change) { lastChange })
  }

  /// Names the packs that an ended writer may not have named. Delete its registration only afterwards.
  ///
  /// The writer's fence or end mark must exist. Reads the log after it. A collection that begins later finds the writer
  /// registered and ended, and also names its packs before it deletes changes.
  func announceEnd(of writer: UInt64) throws(BlobStorageError) {
    guard hasChanges, !weaknesses.contains(.skipsUnnamedPacks) else { return }
    // Before any process deletes the registration, it names the packs.
    guard let found = try Membership.registration(of: writer, objects, storeID: storeID) else { return }
    let published = found.publishedSequence
    let listing = try listing(of: writer)
    guard let end = listing.fences[writer] else { return }
    var first = published < end ? published + 1 : end
    while end - first > Change.packCountMax {
      try append(Change(writer, first..<first + Change.packCountMax))
      first += Change.packCountMax
    }
    try append(Change(writer, first..<end, isLast: true))
  }

  /// Deletes changes whose numbers no writer can mistake for free ones any more.
  func removeOldChanges(_ collections: Collections) throws(BlobStorageError) {
    guard collections.horizon > 0 else { return }
    try changes.remove(upTo: collections.horizon)
  }

  // MARK: Reading

  /// Lists the packs of one writer, and reads the log.
  func listing(of writer: UInt64) throws(BlobStorageError) -> StoreListing {
    let listing = try StoreListing.read(
      objects, storeID: storeID, known: collections, strays: strays.withLock { $0 }, of: writer)
    adopt(listing.collections)
    return listing
  }

  var log: CollectionLog { CollectionLog(objects, storeID: storeID) }

  /// Looks up the last change.
  func newestChange() throws(BlobStorageError) -> UInt32 {
    guard hasChanges else { return 0 }
    raiseLastChange(to: try changes.last(after: lastChange))
    return lastChange
  }

  /// The packs published and removed after the change `cursor`; nil if it needs a listing of all packs.
  ///
  /// It lists changes and log together until a listing shows no new log entry. So none of the changes that it read had
  /// been deleted, and they name the packs that replace removed ones.
  ///
  /// - Complexity: one listing if nothing is new. Otherwise one more listing, and a get for each change and log entry.
  func news(after cursor: UInt32) throws(BlobStorageError) -> StoreListing? {
    guard hasChanges, !isForCollector else { return nil }
    var (last, log, found) = (cursor, collections, [Change]())
    var mustRead = true
    for attempt in 0..<Self.attemptCountMax {
      // The first listing includes the last known change. If that is gone, the bucket was restored from an older copy.
      let start = attempt == 0 && last > 0 ? last - 1 : last
      let names = try objects.listAll(SharedNames.news, after: SharedNames.change(start)).map(\.name)
      // The last entry is never deleted.
      let isThere = log.number == 0 || names.contains { SharedNames.collectionNumber($0) ?? 0 >= log.number }
      lacksLog.store(!isThere, ordering: .relaxed)
      let (newer, isJump) = try self.log.read(after: log, listed: names)
      // A checkpoint skipped entries, which may have contradicted this machine's state.
      guard !isJump, cursor >= newer.horizon || weaknesses.contains(.trustsOldChanges) else { return nil }
      if start < last, last > newer.horizon, !names.contains(SharedNames.change(last)) { return nil }
      let isLogNew = newer.number != log.number
      log = newer
      let numbers =
        mustRead || isLogNew ? names.compactMap { SharedNames.changeNumber($0) }.filter { $0 > last } : []
      if numbers.isEmpty, !isLogNew {
        raiseLastChange(to: last)
        return partial(found, upTo: last, log)
      }
      guard let read = try read(numbers, after: last) else { return nil }
      found += read
      last += UInt32(read.count)
      mustRead = isLogNew
    }
    throw BlobStorageError(.busy, "Other machines kept collecting garbage meanwhile: try again.")
  }

  private static let attemptCountMax = 64

  /// Reads these changes, several at once; nil if one before others is missing. Ignores objects at the end that are not
  /// changes.
  private func read(_ numbers: [UInt32], after last: UInt32) throws(BlobStorageError) -> [Change]? {
    let changes = changes
    let ahead = FetchAhead(count: numbers.count, width: width) { (index) throws(BlobStorageError) in
      try changes.find(numbers[index])
    }
    defer { ahead.stop() }
    var read: [Change] = []
    var isWhole = true
    for (index, number) in numbers.enumerated() {
      guard let change = try ahead.waitForValue(index) else {
        isWhole = false
        continue
      }
      guard isWhole, UInt64(number) == UInt64(last) + UInt64(index) + 1 else { return nil }
      read.append(change)
    }
    return read
  }

  private func partial(_ found: [Change], upTo last: UInt32, _ log: Collections) -> StoreListing {
    var listing = StoreListing(found, upTo: last, log, strays: strays.withLock { $0 })
    named.withLock { named in
      for change in found where change.end > 1 {
        named[change.writer] = max(named[change.writer] ?? 0, change.end - 1)
      }
    }
    remember(&listing)
    return listing
  }

  // MARK: Asking

  /// Whether a published pack existed, with the length that the catalog has, when this process last checked. Without
  /// changes, a pack that it never checked counts as existing.
  package func isThere(_ pack: PackRow) -> Bool {
    if weaknesses.contains(.reliesWithoutAsking) { return true }
    guard let byteCount = publishedByteCount(pack.name) else { return !hasChanges }
    return byteCount == pack.durableByteCount
  }

  /// Whether the object of a published pack had another length when this process last checked: something has cut or
  /// replaced it.
  func isReplaced(_ pack: PackRow) -> Bool { publishedByteCount(pack.name) != nil && !isThere(pack) }

  /// Checks whether a published pack exists, with the length that the catalog has.
  func ask(_ pack: PackRow) throws(BlobStorageError) -> Bool {
    let found = try objects.tail(SharedNames.pack(pack.name), byteCount: 1)
    guard let found, found.byteCount == pack.durableByteCount else { return false }
    setPublished(pack.name, found.byteCount)
    return true
  }

  /// Checks published packs, several at once; returns whether all exist, with any length.
  func areThere(_ names: [PackName]) throws(BlobStorageError) -> Bool {
    let objects = objects
    let ahead = FetchAhead(count: names.count, width: width) { (index) throws(BlobStorageError) in
      try objects.tail(SharedNames.pack(names[index]), byteCount: 1)?.byteCount
    }
    defer { ahead.stop() }
    for (index, name) in names.enumerated() {
      guard let byteCount = try ahead.waitForValue(index), !Fence.hasLength(byteCount) else { return false }
      setPublished(name, byteCount)
    }
    return true
  }
}

import BlobStorage
import Synchronization

/// Changes: how machines learn of published packs without listing all.
extension RemoteBackend {
  private var changes: ChangeList { ChangeList(objects, storeID: storeID) }

  /// The last change that this process knows of. The next one gets a later number.
  var lastChange: UInt32 { max(knownChange.withLock { $0 }, collections.horizon) }

  private func raiseLastChange(to number: UInt32) { knownChange.withLock { $0 = max($0, number) } }

  // MARK: Naming packs

  /// Names a published pack, so that other machines find it.
  ///
  /// Its writer is registered. So no collector deletes the changes that this can collide with.
  func announce(_ name: PackName) throws(BlobStorageError) {
    // There is no name for a fence behind the last possible pack either.
    guard name.sequence < .max else { return }
    try append(Change(name.writer, name.sequence..<name.sequence + 1))
  }

  private func append(_ change: Change) throws(BlobStorageError) {
    guard hasChanges else { return }
    raiseLastChange(to: try changes.append(change) { lastChange })
  }

  /// Names the packs that an ended writer may not have named. Only then may its registration be deleted.
  ///
  /// The fence or end mark is there. Reads the log after it: a collection that begins later finds the writer registered
  /// and ended, and names its packs as well before it deletes changes.
  func announceEnd(of writer: UInt64) throws(BlobStorageError) {
    guard hasChanges, !weaknesses.contains(.skipsUnnamedPacks) else { return }
    var published: UInt32 = 0
    do throws(BlobStorageError) {
      // What has deleted the registration has named the packs before.
      guard let found = try Membership.registration(of: writer, objects, storeID: storeID) else { return }
      published = found.publishedSequence
    } catch { guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error } }
    let listing = try listing(of: writer)
    guard let end = listing.fences[writer] else { return }
    var first = published < end ? published + 1 : end
    while end - first > Change.packCountMax {
      try append(Change(writer, first..<first + Change.packCountMax))
      first += Change.packCountMax
    }
    try append(Change(writer, first..<end, isLast: true))
  }

  /// Deletes changes that no writer can mistake for free numbers any more.
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

  /// The last change as of now.
  func newestChange() throws(BlobStorageError) -> UInt32 {
    guard hasChanges else { return 0 }
    raiseLastChange(to: try changes.last(after: lastChange))
    return lastChange
  }

  /// What was published and removed after the change `cursor`; nil if only a listing of all packs tells.
  ///
  /// It lists changes and log together until a listing shows no new entry of the log. So no change that was read had been
  /// deleted, and the packs that replace removed ones are among those named.
  ///
  /// - Complexity: one listing if there is nothing new; else one more, and a get for each change and entry.
  func news(after cursor: UInt32) throws(BlobStorageError) -> StoreListing? {
    guard hasChanges, !isForCollector else { return nil }
    var (last, log, found) = (cursor, collections, [Change]())
    var mustRead = true
    for attempt in 0..<Self.attemptCountMax {
      // At first with the change that is known: if it has gone, the bucket was brought back from an older copy.
      let start = attempt == 0 && last > 0 ? last - 1 : last
      let names = try objects.listAll(SharedNames.news, after: SharedNames.change(start)).map(\.name)
      // The last entry is never deleted.
      let isThere = log.number == 0 || names.contains { SharedNames.collectionNumber($0) ?? 0 >= log.number }
      lacksLog.store(!isThere, ordering: .relaxed)
      let (newer, isJump) = try self.log.read(after: log, listed: names)
      // Entries that it has passed over may have said something else.
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

  /// The changes of these numbers, several at once; nil if one is missing before others. Objects at the end that are no
  /// changes mean nothing.
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

  /// Whether a published pack was there when this process last looked for it.
  package func isThere(_ name: PackName) -> Bool {
    !hasChanges || weaknesses.contains(.reliesWithoutAsking)
      || publishedByteCount(name) != nil && !isReplaced(name)
  }

  /// Whether the object of a published pack was cut or replaced when this process last looked for it.
  func isReplaced(_ name: PackName) -> Bool { replaced.withLock { $0.contains(name) } }

  /// Compares the length of an object that was looked for with that of the pack, as the catalog has it.
  func compareLength(of name: PackName, _ byteCount: Int64) {
    guard byteCount > 0, let found = publishedByteCount(name), found != byteCount else { return }
    replaced.withLock { _ = $0.insert(name) }
  }

  /// Looks for published packs, several at once; returns whether all are there.
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

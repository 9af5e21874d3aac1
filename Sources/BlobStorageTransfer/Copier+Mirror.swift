import BlobStorage
import BlobStorageTrees

/// Drops what a mirror must drop, and refuses to drop too much: a source that lost keys looks like one that never had
/// them.
extension Copier {
  private static let shownKeyCountMax = 100

  /// Refuses a source that is known to be damaged, or that lacks more than a tenth of the target's keys.
  func checkMirror() throws(BlobStorageError) {
    if options.isForced { return }
    var refusal = try source.losses().summary.map { summary in
      BlobStorageError(
        .corrupted,
        "\(source.information.path) is damaged (\(summary)): a mirror would drop what it has lost; repair it, or give "
          + "--force.", path: source.information.path)
    }
    if refusal == nil { refusal = try refusalOfDropping() }
    guard let refusal else { return }
    guard options.isDryRun else { throw refusal }
    report.refusal = refusal.message
  }

  private func refusalOfDropping() throws(BlobStorageError) -> BlobStorageError? {
    var (keyCount, otherCount) = (0, 0)
    try forEachPageOfTarget { (page, others) in
      keyCount += page.count
      otherCount += others.count
    }
    guard otherCount > keyCount / 10 else { return nil }
    return BlobStorageError(
      .wouldDropMany,
      "The mirror would drop \(otherCount) of \(keyCount) keys of \(target.information.path), because "
        + "\(source.information.path) does not have them: check that it is the right source, and give --force.",
      path: target.information.path)
  }

  /// Drops the keys of the target that the source does not have.
  func dropOthers() throws(BlobStorageError) {
    // The source has unreadable versions: the target's copies may be the only ones left.
    if !report.damaged.isEmpty, !options.isForced { return try dropStates(lacking: false) }
    // The source may have changed since the first check.
    if !options.isDryRun { try checkMirror() }
    try forEachPageOfTarget { (_, others) throws(BlobStorageError) in
      var others = others
      // A dry run has counted the keys that the source has dropped.
      if options.isDryRun { others = try unknownToSource(others) }
      guard !others.isEmpty else { return }
      if options.isDryRun {
        name(others.map(\.key))
      } else {
        _ = try target.delete(others.map(\.key), .relaxed)
        if let watermark = try target.writer.commit(on: [], { _ in }).watermark {
          watermarks[watermark.pack] = watermark
        }
      }
      report.droppedKeyCount += others.count
      report.droppedVersionCount += others.reduce(0) { $0 + $1.versionCount }
    }
    try dropStates(lacking: true)
    if options.prefix.isAll, !options.isDryRun {
      let replaced = try target.internalVersions(InternalKey.Purpose.replaced.prefix).map(\.key)
      try target.dropInternal(try notShown(replaced, lacking: true))
    }
  }

  private func unknownToSource(_ keys: [KeyEntry]) throws(BlobStorageError) -> [KeyEntry] {
    try source.catalog.read { (transaction) throws(BlobStorageError) in
      var unknown: [KeyEntry] = []
      for entry in keys where try transaction.nameRow(Array(entry.key.utf8)) == nil { unknown.append(entry) }
      return unknown
    }
  }

  /// Reports the first hundred keys that a dry run would drop.
  private func name(_ keys: [String]) {
    report.droppedKeys += keys.prefix(Self.shownKeyCountMax - report.droppedKeys.count)
  }

  /// Drops the states that the source has dropped, unless a hold of the target protects them. What other states of the
  /// target build on stays as a link. A copy with a prefix drops none, nor does a dry run.
  ///
  /// - Parameter lacking: whether to drop states that the source does not know as well.
  func dropStates(lacking: Bool) throws(BlobStorageError) {
    guard options.prefix.isAll, !options.isDryRun else { return }
    let states = try StateFile(target).states()
    let keys = states.map { InternalKey.Purpose.state.key(Array($0.id.description.utf8)) }
    let links = try target.internalVersions(InternalKey.Purpose.link.prefix).map(\.key)
    let gone = Set(try notShown(keys + links, lacking: lacking))
    if gone.isEmpty { return }
    lock = nil
    let alone = try StatesLock.exclusive(target.folder)
    defer { withExtendedLifetime(alone) {} }
    try StateFile(target).drop(
      zip(states, keys).filter { gone.contains($0.1) }.map(\.0), isAlone: alone != nil)
  }

  /// Those of the target's internal keys that the source has dropped, or if `lacking` does not know.
  private func notShown(_ keys: [[UInt8]], lacking: Bool) throws(BlobStorageError) -> [[UInt8]] {
    try source.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [[UInt8]] = []
      for key in keys where try transaction.nameRow(key).map({ $0.versionCount == 0 }) ?? lacking {
        found.append(key)
      }
      return found
    }
  }

  /// Calls `body` with the target's keys, a page at a time, and with those that the source lacks and no hold protects.
  private func forEachPageOfTarget(
    _ body: (_ page: [KeyEntry], _ others: [KeyEntry]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try target.forEachPage(prefix: options.prefix, countMax: 500) { (page) throws(BlobStorageError) in
      let others = try source.catalog.read { (transaction) throws(BlobStorageError) in
        var others: [KeyEntry] = []
        for entry in page where try transaction.nameRow(Array(entry.key.utf8))?.versionCount ?? 0 == 0 {
          others.append(entry)
        }
        return others
      }
      let held = try target.holds(on: others.map { Array($0.key.utf8) })
      try body(page, zip(others, held).filter { $0.1 == nil }.map(\.0))
    }
  }

  // MARK: Dry runs

  /// Counts what a batch would copy and drop.
  func count(_ batch: Batch) throws(BlobStorageError) {
    var failures: [BlobDigest: BlobStorageError] = [:]
    for digest in Set(batch.keys.flatMap { $0.plan.added.map(\.row.digest) }) {
      do throws(BlobStorageError) { try countChunks(of: digest) } catch {
        guard error.code == .corrupted else { throw error }
        failures[digest] = error
      }
    }
    for planned in batch.keys where !InternalKey.isInternal(planned.key.bytes) {
      let added = planned.plan.added.count { failures[$0.row.digest] == nil }
      report.newVersionCount += added
      guard added == planned.plan.added.count else { continue }
      report.droppedVersionCount += planned.plan.dropped.count
      guard planned.plan.dropsKey else { continue }
      report.droppedKeyCount += 1
      name([String(decoding: planned.key.bytes, as: UTF8.self)])
    }
    if !failures.isEmpty { try report(failures, batch) }
  }

  /// Counts the blob's chunks that the target lacks, each once.
  private func countChunks(of digest: BlobDigest) throws(BlobStorageError) {
    if try isInTarget(digest) { return }
    let layout = try layoutInSource(digest)
    try LiveWalk(source.blobs).forEachGroup(of: layout) {
      (digests) throws(BlobStorageError) in
      try count(digests)
      return true
    }
    try count(layout.listDigests)
  }

  private func count(_ digests: [BlobDigest]) throws(BlobStorageError) {
    let missing = try target.catalog.read { (transaction) throws(BlobStorageError) in
      var missing: [BlobDigest] = []
      for digest in digests where try transaction.chunkToShare(digest) == nil { missing.append(digest) }
      return missing
    }
    try source.catalog.read { (transaction) throws(BlobStorageError) in
      for digest in missing {
        guard let row = try transaction.chunkRow(digest) else {
          throw BlobStorageError(
            .corrupted, "Chunk \(digest) is missing from the store.", digest: digest)
        }
        guard plan.isFirst(digest) else { continue }
        report.chunkCount += 1
        report.newByteCount += Int64(row.plainByteCount)
        report.storedByteCount += Int64(row.recordByteCount)
      }
    }
  }
}

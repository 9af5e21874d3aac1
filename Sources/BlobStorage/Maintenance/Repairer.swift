import Foundation
import Logging

/// Repairs a store: saves the whole records of damaged packs, sets those packs aside, and rebuilds the catalog. The
/// next put of lost bytes then stores them again.
///
/// Removes no pack: a damaged one moves to the folder `set-aside` as a whole. Where packs are published it stays in
/// place, and this machine no longer relies on its damaged records. Once the loss is accepted, gc removes the pack.
struct Repairer {
  let engine: Engine
  private let progress: ProgressHandler
  private let waitSeconds: Double

  init(_ engine: Engine, _ progress: ProgressHandler?, waitSeconds: Double = 60) {
    self.engine = engine
    self.waitSeconds = waitSeconds
    self.progress = progress ?? { _ in }
  }

  /// Repairs the store.
  ///
  /// - Parameter acceptsLosses: whether to drop the versions that cannot be read, and to report no loss from then on.
  /// - Throws: `busy` if another process collects garbage or repairs for too long, or still writes to a damaged pack.
  func run(acceptsLosses: Bool = false) throws(BlobStorageError) -> RepairReport {
    let start = Date()
    try engine.checkOpen()
    var report = RepairReport()
    let lock = try CollectionLock(engine, waitSeconds: waitSeconds)
    defer { withExtendedLifetime(lock) {} }
    try engine.backend.finishLeaving()
    try engine.sharing.restoreLog()
    try engine.writer.rollOver()
    let misnamed = try restoreNames()
    let before = try engine.catalog.packRows().map(\.row)
    let missing = try engine.sharing.missingPacks(before).subtracting(misnamed)
    // The catalog had every record of these packs, so that all of them were restored.
    var vouched: Set<PackName> = []
    if !engine.sharing.keepsDamagedPacks, try restoreKnownState() {
      vouched = Set(before.lazy.filter { !$0.hasLostRecords }.map(\.name))
    }
    // The catalog is not rebuilt if it knows a lost pack: no other place has the pack's records.
    if missing.isDisjoint(with: before.lazy.map(\.name)) { try engine.catalog.rebuild(because: nil) }
    let rows = try engine.catalog.packRows()
    var findings: [Verifier.Finding] = []
    var lost: Set<BlobDigest> = []
    // Published packs whose whole records other packs have by now.
    var replaced: Set<PackName> = []
    // A damaged pack that another process still writes to.
    var busy: PackName?
    for (index, (number, row)) in rows.enumerated() where row.isSealed {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "repairing", doneCount: index, totalCount: rows.count))
      let isMissing = missing.contains(row.name)
      // Where the records of a pack that can be read begin.
      var whole: Set<Int64> = []
      var result: PackVerifier.Outcome =
        try isMissing
        ? .missing(row.name)
        : verifier(of: row).run(whole: { records in
          if engine.sharing.keepsDamagedPacks { whole.formUnion(records.lazy.map(\.offset)) }
        })
      var file: (any File)?
      defer { file?.close() }
      if Self.isDamaged(row, result), !engine.sharing.keepsDamagedPacks, !isMissing {
        file = try engine.backend.adoptPack(row.name)
        if file == nil {
          // A retired pack may have no file any more: the next collection forgets it.
          if row.state == .retired { continue }
          busy = row.name
          // All that it had was restored. The next repair does not know that, because the catalog is another by then.
          if vouched.contains(row.name) { try forgetLosses(of: row.name) }
          continue
        }
        // Its writer may have added records, and closed it, since it was read.
        result = try verifier(of: row).run()
      }
      // At the end, because what a later reading finds counts.
      defer { findings += result.findings }
      guard Self.isDamaged(row, result) else { continue }
      if result.hasUnknownRecords {
        report.hasLaterRecords = true
        engine.logger.error(
          "Pack \(row.name) has records of a later build: repair the store with that build.")
      } else if let distrusted = try engine.sharing.distrust(number, except: whole) {
        lost.formUnion(distrusted)
        if acceptsLosses, isMissing {
          let known = try knownRecords(of: row.name)
          if !known.isEmpty { try copy(row.name) { (add) in add(known) } }
        } else if acceptsLosses, row.isDamaged || result.isReplaced {
          let wholeCount = result.wholeCount
          if wholeCount > 0 { result = try copyWhole(row) }
          // If less could be read this time, the pack stays, and the next repair copies the rest.
          if result.wholeCount >= wholeCount { replaced.insert(row.name) }
        }
      } else if !isMissing {
        // If neither copy has a record, its key is unknown, unless the catalog had all records.
        if row.hasLostRecords, !vouched.contains(row.name) {
          try engine.backend.census.append([.unreadable(row.name)], durably: true)
        }
        if result.wholeCount > 0 { result = try copyWhole(row) }
        engine.packs.forget([row.name])
        report.setAside.append(try engine.backend.setAsidePack(row.name))
      }
    }
    // Some missing packs were never read here.
    findings += missing.subtracting(rows.lazy.map(\.row.name)).sorted().map(Verifier.Finding.missing)
    if !report.setAside.isEmpty { try engine.catalog.rebuild(because: nil) }
    if let busy {
      throw BlobStorageError(
        .busy,
        "Pack \(busy) is damaged, and another process still writes to it: end that one and repair again.",
        pack: "\(busy)")
    }
    report.losses = try engine.losses()
    // Before versions are examined: what only a lost pack had is missing from then on.
    if acceptsLosses, !report.hasLaterRecords { try engine.sharing.acceptLosses(engine, replaced: replaced) }
    report.packCount = try engine.catalog.packRows().count
    let baseless = Set(findings.lazy.filter(\.isOnlyBase).compactMap(\.digest))
    var needed: Set<BlobDigest> = []
    var unreadable: [LostVersion] = []
    // Packs may have been removed meanwhile, with copies of their chunks in others.
    _ = try engine.sharing.completeCatalog()
    let search = DamageSearch(catalog: engine.catalog, blobs: engine.blobs, folder: engine.folder)
    try search.forEachVersion { (owner, digest, needs) throws(BlobStorageError) in
      for need in needs where baseless.contains(need.digest) { needed.insert(need.digest) }
      guard let (key, id) = owner.version,
        needs.contains(where: { !$0.isPresent || lost.contains($0.digest) })
      else { return }
      unreadable.append((key, UnreadableVersion(key: owner.name, version: id, digest: digest)))
    } isInteresting: { digest in
      baseless.contains(digest) || lost.contains(digest)
    }
    let harmed = lost.union(findings.lazy.compactMap(\.digest))
    for hold in try BlobHolds(engine).all() {
      let needs = try search.needs(of: hold.digest) { harmed.contains($0) }
      // If only the blob itself is missing, a process may have died before it stored the blob.
      let isUnreadable = needs.contains {
        harmed.contains($0.digest) || $0.isDamaged || !$0.isPresent && $0.digest != hold.digest
      }
      if isUnreadable { report.unreadableHolds.append(hold.name) }
    }
    // What a later build can read is not lost.
    if acceptsLosses, !report.hasLaterRecords {
      let dropped: [LostVersion]
      (dropped, unreadable) = try drop(unreadable, lost: lost)
      report.dropped = dropped.map(\.report)
    }
    report.unreadable = unreadable.map(\.report)
    // A chunk that no version needs and whose base was collected is garbage, not damage.
    for finding in findings where !finding.isOnlyBase || finding.digest.map({ needed.contains($0) }) ?? true {
      report.damaged.append(Damage(finding))
    }
    try engine.forEachPage { report.keyCount += $0.count }
    engine.shortenCensus()
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  private func forgetLosses(of pack: PackName) throws(BlobStorageError) {
    _ = try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.updatePack(pack) { $0.hasLostRecords = false }
    }
  }

  private func verifier(of row: PackRow) -> PackVerifier {
    PackVerifier(blobs: engine.blobs, sharing: engine.sharing, row: row)
  }

  /// A chunk whose base is damaged in another pack is whole itself: its own pack stays.
  private static func isDamaged(_ row: PackRow, _ result: PackVerifier.Outcome) -> Bool {
    row.isDamaged || result.findings.contains { !$0.isOnlyBase }
  }

  /// Gives packs whose files were renamed or exchanged their names back: nothing of them is damaged.
  ///
  /// - Returns: packs that the catalog has only because a file had their name. Such a file may have hidden a pack of
  ///   the store; the losses say so.
  private func restoreNames() throws(BlobStorageError) -> Set<PackName> {
    let (found, left) = try engine.backend.restoreNames(of: engine.header)
    guard !found.isEmpty else { return [] }
    // Including packs that are open under a wrong name.
    engine.packs.forgetAll()
    engine.logger.warning(
      "Files of packs had other names, and have their own again.",
      metadata: ["packs": "\(found.sorted().map(\.description).joined(separator: ", "))"])
    let rows = try engine.catalog.packRows().map(\.row)
    let empty = rows.filter { left.contains($0.name) && $0.recordCount == 0 }.map(\.name)
    if !empty.isEmpty { try engine.backend.census.append(empty.map { .unreadable($0) }, durably: true) }
    return Set(empty)
  }

  /// Reads a pack once more, and copies what can be read into a new one, which is durable on return. So memory need not
  /// hold all records of a pack.
  private func copyWhole(_ row: PackRow) throws(BlobStorageError) -> PackVerifier.Outcome {
    var result = PackVerifier.Outcome()
    try copy(row.name) { (add) throws(BlobStorageError) in result = try verifier(of: row).run(whole: add) }
    return result
  }

  /// Copies records of a pack into a new one, which is durable on return.
  ///
  /// - Parameter read: passes the records on.
  private func copy(
    _ name: PackName, _ read: (_ add: ([PackRecord]) -> Void) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let session = engine.newSession()
    var copies = try Compaction(of: name, engine: engine, to: session, isChecked: true)
    // Kept apart from errors of `read`, which count as damage of the pack.
    var failure: BlobStorageError?
    try read { records in
      guard failure == nil else { return }
      do throws(BlobStorageError) {
        for record in records {
          switch record.content {
          case .ref(let ref): try copies.copy(.written(.ref(ref)))
          case .drop(let drop): try copies.copy(.written(.drop(drop)))
          case .chunk, .manifest: try copies.copy(.copy(record))
          case .skipped: break
          }
        }
      } catch { failure = error }
    }
    if let failure { throw failure }
    try copies.finish()
    try session.close()
  }

  /// The refs and drops of a lost pack, if this machine has its footer.
  private func knownRecords(of name: PackName) throws(BlobStorageError) -> [PackRecord] {
    var known: [PackRecord] = []
    do throws(BlobStorageError) {
      try engine.packs.scan(name) { record in
        switch record.content {
        case .ref, .drop: known.append(record)
        case .chunk, .manifest, .skipped: break
        }
      }
    } catch {
      guard error.code == .corrupted || error.code == .packGone else { throw error }
      return []
    }
    return known
  }
}

/// Restores what only the catalog still knows: it may have been built before a record was damaged.
extension Repairer {
  private static let keyCountOfPage = 500
  private static let recordCountOfCommit = 1_000
  private static let chunkCountOfPage = 10_000

  /// Writes a record for every version that the catalog shows or hides and the packs would not. A catalog rebuilt from
  /// the packs then gives the same answers.
  ///
  /// Other processes may write meanwhile. Restoring what they have written since changes nothing.
  ///
  /// - Returns: false if the catalog could not be read.
  func restoreKnownState() throws(BlobStorageError) -> Bool {
    var isRestored = true
    let session = engine.newSession()
    do throws(BlobStorageError) {
      // Their writers have changed nothing since.
      let failedPacks = try engine.failedPacks()
      try engine.catalog.withSecond { (database) throws(BlobStorageError) in
        try engine.builder.fillWithoutRecovery(database)
      } _: { (known, packs) throws(BlobStorageError) in
        var last: [UInt8]?
        repeat {
          try CancellationFlag.check()
          let (records, end) = try Self.page(known, packs, after: last)
          if !records.isEmpty { try write(records, to: session, exceptFailed: failedPacks) }
          last = end
        } while last != nil
        try restoreChunks(known, packs, session)
        try restoreManifests(known, packs, session)
      }
    } catch {
      guard error.code == .catalogDamaged else { throw error }
      isRestored = false
      engine.logger.warning(
        "What only the catalog knows cannot be read.", metadata: ["reason": "\(error.message)"])
    }
    try session.rollOver()
    return isRestored
  }

  /// The records to write for the keys of one page, and the page's last key; nil after the last page.
  private static func page(
    _ known: Database, _ packs: Database, after last: [UInt8]?
  ) throws(BlobStorageError) -> (records: [PackRecord.Content], end: [UInt8]?) {
    var records: [PackRecord.Content] = []
    var keyCount = 0
    var end: [UInt8]?
    try known.read { (known) throws(BlobStorageError) in
      try packs.read { (packs) throws(BlobStorageError) in
        try known.forEachKey(prefix: [], after: last, includesHidden: true, includesInternal: true) {
          (key, row) throws(BlobStorageError) in
          records += try Self.records(key, row, known, packs)
          keyCount += 1
          end = keyCount == keyCountOfPage ? key : nil
          return end == nil
        }
      }
    }
    return (records, end)
  }

  /// Refs for versions of a key that the packs lack, and drops for versions that nothing in the packs hides.
  private static func records(
    _ key: [UInt8], _ row: NameRow, _ known: ReadTransaction, _ packs: ReadTransaction
  ) throws(BlobStorageError) -> [PackRecord.Content] {
    let name = try packs.nameRow(key)
    var records: [PackRecord.Content] = []
    try known.forEachVersion(of: row) { (known) throws(BlobStorageError) in
      let (stamp, version) = (known.stamp, known.row)
      if let name {
        if let found = try packs.versionRow(of: name, stamp),
          !found.digest.isUnknown || version.digest.isUnknown
        {
          return true
        }
        if try packs.maskRow(of: name, stamp) != nil { return true }
      }
      records.append(
        .ref(
          RefRecord(
            key: key, version: stamp, replaced: .none, digest: version.digest, byteCount: version.byteCount,
            created: version.created, metadata: version.metadata)))
      return true
    }
    guard let name else { return records }
    var hidden: [Stamp] = []
    try known.forEachHidden(of: row) { (stamp) throws(BlobStorageError) in
      if try packs.versionRow(of: name, stamp) != nil { hidden.append(stamp) }
    }
    for versions in hidden.parts(of: BlobLimits.dropVersionCountMax) {
      records.append(
        .drop(DropRecord(key: key, stamp: versions[versions.startIndex], versions: Array(versions))))
    }
    return records
  }

  /// Stores chunks again that the packs no longer list, if they can still be read.
  private func restoreChunks(
    _ known: Database, _ packs: Database, _ session: WriterSession
  ) throws(BlobStorageError) {
    var last: BlobDigest?
    repeat {
      try CancellationFlag.check()
      var missing: [BlobDigest] = []
      last = try known.read { (known) throws(BlobStorageError) -> BlobDigest? in
        try packs.read { (packs) throws(BlobStorageError) -> BlobDigest? in
          var end: BlobDigest?
          var count = 0
          try known.forEachChunk(after: last) { (digest, _) throws(BlobStorageError) in
            if try packs.chunkRow(digest) == nil { missing.append(digest) }
            count += 1
            end = count == Self.chunkCountOfPage ? digest : nil
            return end == nil
          }
          return end
        }
      }
      for digest in missing {
        guard let plain = try unlessCorrupted(try engine.chunks.bytes(digest)) else { continue }
        let record = ChunkRecord(
          digest: digest, plainByteCount: plain.count, codecNumber: CodecKind.none.rawValue, features: nil)
        try session.append(.chunk(record), payload: plain.span.bytes)
      }
      if !missing.isEmpty { _ = try session.commit(on: []) { _ in } }
    } while last != nil
  }

  /// Stores manifests again that the packs no longer list, if they can still be read.
  private func restoreManifests(
    _ known: Database, _ packs: Database, _ session: WriterSession
  ) throws(BlobStorageError) {
    var missing: [BlobDigest] = []
    try known.read { (known) throws(BlobStorageError) in
      try packs.read { (packs) throws(BlobStorageError) in
        try known.forEachManifest {
          (digest, _) throws(BlobStorageError) in
          if try packs.manifestRow(digest) == nil { missing.append(digest) }
          return true
        }
      }
    }
    for digest in missing {
      do throws(BlobStorageError) {
        guard let layout = try engine.blobs.layout(digest) else { continue }
        _ = try session.commit { (commit) throws(BlobStorageError) in
          _ = try commit.appendManifest(of: layout) { _ in false }
        }
      } catch { guard error.code == .corrupted else { throw error } }
    }
  }

  private func write(
    _ records: [PackRecord.Content], to session: WriterSession, exceptFailed known: Set<PackName>
  ) throws(BlobStorageError) {
    // Other processes may have made these changes since the packs were read. What is written here must not outlive them
    // (H1).
    try session.synchronizeOpenPacks(exceptFailed: known, isOfOthers: true)
    for part in records.parts(of: Self.recordCountOfCommit) {
      _ = try session.commit { (commit) throws(BlobStorageError) in
        for content in part { try commit.append(content) }
      }
    }
  }
}

/// A version that cannot be read. Reports call an internal key by another name.
typealias LostVersion = (key: [UInt8], report: UnreadableVersion)

/// Accepts a loss: drops versions that cannot be read, unless the same bytes were put again meanwhile.
extension Repairer {
  private static let dropCountOfCommit = 1_000
  /// How often a version is examined while other processes keep changing its chunks.
  private static let lookCountMax = 8

  /// What a blob lacks according to the catalog.
  private struct Lack {
    var layout: KnownLayout
    var needs: [DamageSearch.Need]
  }

  /// The records of the current catalog that say what a blob is made of. Their content never changes.
  private struct KnownLayout: Equatable {
    var generation: String?
    var chunk: Place?
    var isSuspect: Bool
    var manifest: Place?

    init(
      _ blob: BlobDigest, generation: String?, _ transaction: ReadTransaction
    ) throws(BlobStorageError) {
      self.generation = generation
      let row = try transaction.chunkRow(blob)
      chunk = row?.place
      isSuspect = row?.isSuspect ?? false
      manifest = try transaction.manifestRow(blob)?.place
    }
  }

  /// Drops versions that cannot be read, so that their keys answer with the newest version that can be.
  ///
  /// Other processes write meanwhile, and may have put the missing bytes again. So each version is examined again, and
  /// the commit that drops it checks that it still lacks the same. No other process changes a key during that commit.
  ///
  /// - Parameter lost: chunks that are in the store and damaged.
  /// - Returns: the versions that were dropped, and those that stay because other processes kept changing them.
  func drop(
    _ versions: [LostVersion], lost: Set<BlobDigest>
  ) throws(BlobStorageError) -> (dropped: [LostVersion], left: [LostVersion]) {
    let session = engine.newSession()
    var dropped: [LostVersion] = []
    var left: [LostVersion] = []
    for part in versions.parts(of: Self.dropCountOfCommit) {
      var waiting = Array(part)
      for _ in 0..<Self.lookCountMax where !waiting.isEmpty {
        // Outside the commit, for which all other writers wait: a long blob has many lists.
        let lacks = try lacks(waiting, lost)
        let found = waiting.filter { lacks[$0.report.digest] != nil }
        waiting = []
        guard !found.isEmpty else { break }
        let (gone, changed) = try session.commit { (commit) throws(BlobStorageError) in
          var gone: [LostVersion] = []
          var changed: [LostVersion] = []
          for version in found {
            let digest = version.report.digest
            guard let lack = lacks[digest], try isStillThere(lack, digest, lost, commit.transaction)
            else {
              changed.append(version)
              continue
            }
            try commit.drop([version.report.version.stamp], of: version.key)
            gone.append(version)
          }
          return (gone, changed)
        }.result
        dropped += gone
        waiting = changed
      }
      left += waiting
    }
    try session.close()
    return (dropped, left)
  }

  /// What the blobs of these versions lack. Leaves out those that lack nothing.
  private func lacks(
    _ versions: [LostVersion], _ lost: Set<BlobDigest>
  ) throws(BlobStorageError) -> [BlobDigest: Lack] {
    let search = DamageSearch(catalog: engine.catalog, blobs: engine.blobs, folder: engine.folder)
    var lacks: [BlobDigest: Lack] = [:]
    var known: Set<BlobDigest> = []
    for version in versions where known.insert(version.report.digest).inserted {
      try CancellationFlag.check()
      let blob = version.report.digest
      // In this order, so that the commit notices later changes.
      let generation = engine.catalog.generation
      let layout = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try KnownLayout(blob, generation: generation, transaction)
      }
      let needs = try search.needs(of: blob) { lost.contains($0) }
      let missing = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        var missing: [DamageSearch.Need] = []
        for need in needs where try isMissing(need, of: blob, lost, transaction) { missing.append(need) }
        return missing
      }
      if !missing.isEmpty { lacks[blob] = Lack(layout: layout, needs: missing) }
    }
    return lacks
  }

  /// Whether a blob still lacks something that it lacked. False if its records lie elsewhere since, for example after a
  /// rebuild.
  private func isStillThere(
    _ lack: Lack, _ blob: BlobDigest, _ lost: Set<BlobDigest>, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Bool {
    guard try KnownLayout(blob, generation: engine.catalog.generation, transaction) == lack.layout else {
      return false
    }
    for need in lack.needs where try isMissing(need, of: blob, lost, transaction) { return true }
    return false
  }

  private func isMissing(
    _ need: DamageSearch.Need, of blob: BlobDigest, _ lost: Set<BlobDigest>, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Bool {
    // A dependant that was stored again may have another base, or none.
    if let dependent = need.dependent, try transaction.chunkRow(dependent)?.base != need.digest {
      return false
    }
    if let row = try transaction.chunkRow(need.digest), !row.isSuspect || !lost.contains(need.digest) {
      return false
    }
    // A blob that is missing or damaged as one chunk may have a manifest.
    if need.digest != blob { return true }
    return try transaction.manifestRow(blob) == nil
  }
}

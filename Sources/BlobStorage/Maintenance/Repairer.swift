import Foundation
import Logging

/// Repairs a store: saves the whole records of damaged packs, sets those packs aside, and rebuilds the catalog. The
/// next put of lost bytes then stores them again.
///
/// Nothing is removed: a damaged pack goes to the folder `set-aside`, whole. Where packs are published it stays where
/// it is, and what is damaged in it is no more relied on by this machine. Once its loss is accepted, gc removes it.
struct Repairer {
  let engine: Engine
  private let progress: ProgressHandler
  private let waitSeconds: Double

  init(_ engine: Engine, _ progress: ProgressHandler?, waitSeconds: Double = 60) {
    self.engine = engine
    self.waitSeconds = waitSeconds
    self.progress = progress ?? { _ in }
  }

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
    // Of these packs the catalog had every record: what it knows is restored.
    var vouched: Set<PackName> = []
    if !engine.sharing.keepsDamagedPacks, try restoreKnownState() {
      vouched = Set(before.lazy.filter { !$0.hasLostRecords }.map(\.name))
    }
    // Only the catalog knows the records of lost packs.
    if missing.isDisjoint(with: before.lazy.map(\.name)) { try engine.catalog.rebuild(because: nil) }
    let rows = try engine.catalog.packRows()
    var findings: [Verifier.Finding] = []
    var lost: Set<BlobDigest> = []
    // Published packs whose whole records are in other packs by now.
    var replaced: Set<PackName> = []
    for (index, (number, row)) in rows.enumerated() where row.isSealed {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "repairing", doneCount: index, totalCount: rows.count))
      let result =
        try missing.contains(row.name)
        ? .missing(row.name) : PackVerifier(engine: engine, row: row, keepsWhole: true).run()
      findings += result.findings
      // A chunk whose base is damaged in another pack is whole itself: its own pack stays.
      let isDamaged = row.isDamaged || result.findings.contains { !$0.isOnlyBase }
      if isDamaged, result.hasUnknownRecords {
        report.hasLaterRecords = true
        engine.logger.error(
          "Pack \(row.name) has records of a later build: repair the store with that build.")
      } else if isDamaged, let distrusted = try engine.sharing.distrust(number, except: result.whole) {
        lost.formUnion(distrusted)
        if acceptsLosses, missing.contains(row.name) {
          try copy(try knownRecords(of: row.name), of: row.name)
        } else if acceptsLosses, row.isDamaged {
          try copy(result.whole, of: row.name)
          replaced.insert(row.name)
        }
      } else if isDamaged, !missing.contains(row.name) {
        // Of records that neither copy has, the keys are not known, unless the catalog had all of them.
        if row.hasLostRecords, !vouched.contains(row.name) {
          try engine.backend.census.append([.unreadable(row.name)], durably: true)
        }
        report.setAside.append(try save(result.whole, row.name))
      }
    }
    // Some were never read here.
    for name in missing.subtracting(rows.lazy.map(\.row.name)).sorted() {
      findings.append(.missing(name))
    }
    if !report.setAside.isEmpty { try engine.catalog.rebuild(because: nil) }
    report.losses = try engine.losses()
    // Before versions are looked through: what only a lost pack had is missing from then on.
    if acceptsLosses, !report.hasLaterRecords { try engine.sharing.acceptLosses(engine, replaced: replaced) }
    report.packCount = try engine.catalog.packRows().count
    let baseless = Set(findings.lazy.filter(\.isOnlyBase).compactMap(\.digest))
    var needed: Set<BlobDigest> = []
    var unreadable: [LostVersion] = []
    // Packs may have gone meanwhile whose chunks have copies in others.
    _ = try engine.sharing.completeCatalog()
    try DamageSearch(engine).forEachVersion { (owner, digest, needs) throws(BlobStorageError) in
      for need in needs where baseless.contains(need.digest) { needed.insert(need.digest) }
      guard let (key, id) = owner.version,
        needs.contains(where: { !$0.isPresent || lost.contains($0.digest) })
      else { return }
      unreadable.append(
        LostVersion(
          key: key, report: UnreadableVersion(key: owner.name, version: id, digest: digest)))
    } isInteresting: { digest in
      baseless.contains(digest) || lost.contains(digest)
    }
    let harmed = lost.union(findings.lazy.compactMap(\.digest))
    for hold in try engine.holds() {
      let needs = try DamageSearch(engine).needs(of: hold.digest) { harmed.contains($0) }
      if needs.contains(where: { harmed.contains($0.digest) }) { report.unreadableHolds.append(hold.name) }
    }
    // What a later build can read is not lost.
    if acceptsLosses, !report.hasLaterRecords {
      let dropped: [LostVersion]
      (dropped, unreadable) = try drop(unreadable, lost: lost)
      report.dropped = dropped.map(\.report)
    }
    report.unreadable = unreadable.map(\.report)
    // A chunk that no version needs, and whose base was collected, is garbage, not damage.
    for finding in findings where !finding.isOnlyBase || finding.digest.map({ needed.contains($0) }) ?? true {
      report.damaged.append(Damage(finding))
    }
    try engine.forEachPage(prefix: "") { report.keyCount += $0.count }
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  /// Gives packs whose files were renamed or exchanged their names back: nothing of them is damaged.
  ///
  /// - Returns: packs that the catalog has only because a file had their name. Whether that hid a pack of the store is not
  ///   known, and the losses say so.
  private func restoreNames() throws(BlobStorageError) -> Set<PackName> {
    let (found, left) = try engine.backend.restoreNames(of: engine.header)
    guard !found.isEmpty else { return [] }
    // Also what is open under a wrong name.
    try engine.packs.forget { _ in true }
    engine.logger.warning(
      "Files of packs had other names, and have their own again.",
      metadata: ["packs": "\(found.sorted().map(\.description).joined(separator: ", "))"])
    let rows = try engine.catalog.packRows().map(\.row)
    let empty = rows.filter { left.contains($0.name) && $0.recordCount == 0 }.map(\.name)
    if !empty.isEmpty { try engine.backend.census.append(empty.map { .unreadable($0) }, durably: true) }
    return Set(empty)
  }

  /// Copies records of a pack into a new one, which is durable on return.
  private func copy(_ whole: [PackRecord], of name: PackName) throws(BlobStorageError) {
    guard !whole.isEmpty else { return }
    let session = engine.newSession()
    var copies = try Compaction(of: name, engine: engine, to: session, isChecked: true)
    for record in whole {
      switch record.content {
      case .ref(let ref): try copies.copy(.written(.ref(ref)))
      case .drop(let drop): try copies.copy(.written(.drop(drop)))
      case .chunk, .manifest: try copies.copy(.copy(record))
      case .skipped: break
      }
    }
    try copies.finish()
    try session.close()
  }

  /// The refs and drops of a lost pack, if this machine has its footer.
  private func knownRecords(of name: PackName) throws(BlobStorageError) -> [PackRecord] {
    var known: [PackRecord] = []
    do throws(BlobStorageError) {
      try engine.scan(name) { record in
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

  /// Copies what can be read of a pack into a new one, before the old one is set aside.
  private func save(_ whole: [PackRecord], _ name: PackName) throws(BlobStorageError) -> String {
    try copy(whole, of: name)
    try engine.packs.forget { $0 == name }
    return try engine.backend.setAsidePack(name)
  }
}

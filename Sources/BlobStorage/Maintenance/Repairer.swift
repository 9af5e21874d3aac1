import Foundation

/// Mends what can be mended: saves whole records out of damaged packs, sets those packs aside, and rebuilds the
/// catalog, so that the next put of lost bytes stores them anew.
///
/// Nothing is removed: a damaged pack goes to the folder `set-aside`, whole.
struct Repairer {
  private let engine: Engine
  private let progress: ProgressHandler

  init(_ engine: Engine, _ progress: ProgressHandler?) {
    self.engine = engine
    self.progress = progress ?? { _ in }
  }

  func run() throws(BlobStorageError) -> RepairReport {
    let start = Date()
    try engine.checkOpen()
    try engine.checkPacksAreOwn("Repairing")
    var report = RepairReport()
    let lock = try CollectionLock(engine, waitSeconds: 60)
    defer { withExtendedLifetime(lock) {} }
    try engine.writer.rollOver()
    try engine.catalog.rebuild(because: nil)
    let rows = try engine.catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows()
    }
    let verifier = Verifier(engine, progress)
    for (index, (_, row)) in rows.enumerated() where row.isSealed {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "repairing", doneCount: index, totalCount: rows.count))
      let result = try verifier.verify(row, isQuick: false, keepsWhole: true)
      report.damaged += result.findings.map {
        Damage(digest: $0.digest, pack: "\($0.pack)", offset: $0.offset, keys: [], reason: $0.reason)
      }
      // A chunk whose base is damaged in another pack is whole itself: its own pack stays.
      let isDamaged = row.isDamaged || result.findings.contains { !$0.isOnlyBase }
      if isDamaged { report.setAside.append(try save(result.whole, row.name)) }
    }
    if !report.setAside.isEmpty { try engine.catalog.rebuild(because: nil) }
    report.packCount = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packRows().count
    }
    try DamageSearch(engine).forEachVersion { (key, digest, needed) throws(BlobStorageError) in
      guard needed.contains(where: { !$0.isPresent }) else { return }
      for version in try engine.versions(key) where version.digest == digest {
        let lost = UnreadableVersion(key: key, version: version.id, digest: digest)
        if !report.unreadable.contains(lost) { report.unreadable.append(lost) }
      }
    } isInteresting: { _ in
      false
    }
    report.keyCount = try StoreStatistics.take(engine).keyCount
    report.seconds = Date().timeIntervalSince(start)
    return report
  }

  /// Copies the whole records of a pack into a new one, which is on the medium before the old one is set aside.
  private func save(_ whole: [PackRecord], _ name: PackName) throws(BlobStorageError) -> String {
    if !whole.isEmpty {
      let session = engine.newSession()
      try Compaction.copy(whole.map { Self.kept($0) }, of: name, engine: engine, to: session)
      try session.rollOver()
    }
    try engine.packs.forget { $0 == name }
    return try engine.backend.setAsidePack(name)
  }

  private static func kept(_ record: PackRecord) -> PackContent.Kept {
    switch record.content {
    case .ref(let ref): .ref(ref)
    case .drop(let drop): .drop(drop)
    default: .copy(record)
    }
  }
}

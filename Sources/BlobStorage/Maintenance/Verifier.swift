import Foundation
import Logging

/// Reads a store back and reports its damage.
struct Verifier {
  typealias Finding = PackVerifier.Finding

  let engine: Engine
  private let progress: ProgressHandler

  init(_ engine: Engine, _ progress: ProgressHandler?) {
    self.engine = engine
    self.progress = progress ?? { _ in }
  }

  func run(
    _ depth: VerificationDepth, _ share: VerificationShare? = nil, maximumAge: Duration? = nil
  ) throws(BlobStorageError) -> VerificationReport {
    let start = Date()
    try engine.checkOpen()
    var report = VerificationReport()
    report.depth = depth
    report.share = share
    var findings: [Finding] = []
    try engine.extend()
    // What a removed pack had is missing only if no other pack has it.
    _ = try engine.sharing.completeCatalog()
    let allRows = try engine.catalog.packRows()
    // A local copy of a published pack says nothing about that pack.
    let missing = try engine.sharing.missingPacks(allRows.map(\.row))
    var rows = allRows.filter { (_, row) in
      row.state != .retired && (share?.contains(row.name) != false || missing.contains(row.name))
    }
    report.packCount = rows.count
    if let maximumAge {
      rows = try due(rows, maximumAge, missing)
      report.duePackCount = rows.count
    }
    var verified: [PackName: VerifiedPacks.Entry] = [:]
    // Also after an interruption, so that the next verification continues there.
    defer { record(verified, of: allRows.map(\.row.name)) }
    let total = rows.reduce(0) { $0 + $1.row.appliedByteCount }
    var done: Int64 = 0
    for (index, (_, row)) in rows.enumerated() {
      try CancellationFlag.check()
      func tell(_ byteCount: Int64) {
        progress(
          WorkProgress(
            phase: "verifying", doneByteCount: done + byteCount, totalByteCount: total, doneCount: index,
            totalCount: rows.count))
      }
      tell(0)
      let entry = depth == .structure ? nil : try entry(of: row)
      let result =
        try missing.contains(row.name)
        ? .missing(row.name)
        : PackVerifier(blobs: engine.blobs, sharing: engine.sharing, row: row, isQuick: depth == .structure)
          .run(progress: tell)
      done += row.appliedByteCount
      report.chunkCount += result.chunkCount
      report.byteCount += result.byteCount
      findings += result.findings
      if result.findings.isEmpty, !result.hasUnknownRecords { verified[row.name] = entry }
    }
    let wrong = depth == .blobs ? try wrongBlobs(share) : []
    findings += wrong
    // Some missing packs were never read here.
    findings += missing.subtracting(rows.lazy.map(\.row.name)).sorted().map(Finding.missing)
    for _ in 0..<3 {
      let generation = engine.catalog.generation
      try addDamage(findings, &report)
      // Another pack may have a copy of what is missing, if the known one was removed meanwhile.
      guard report.damaged.contains(where: \.pack.isEmpty),
        try engine.sharing.completeCatalog() || engine.catalog.generation != generation
      else { break }
    }
    report.losses = try engine.losses()
    let damagedLineCount = try engine.backend.census.read().damagedLineCount
    if damagedLineCount > 0 { report.damagedCensusLineCount = damagedLineCount }
    // A manifest that no version needs is garbage, whatever chunks it names.
    let unneeded = Set(wrong.compactMap(\.digest))
    report.damaged.removeAll { $0.keys.isEmpty && $0.digest.map(unneeded.contains) ?? false }
    report.versionsAhead = try versionsAhead()
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  // MARK: What was verified before

  /// The packs that were not verified within that time, or have changed since.
  private func due(
    _ rows: [(UInt32, row: PackRow)], _ maximumAge: Duration, _ missing: Set<PackName>
  ) throws(BlobStorageError) -> [(UInt32, row: PackRow)] {
    let known = VerifiedPacks.read(engine.folder)
    let now = engine.clock.now()
    let since = now - min(now, maximumAge.milliseconds)
    var due: [(UInt32, row: PackRow)] = []
    for (number, row) in rows {
      let status = try status(of: row.name)
      if missing.contains(row.name) || known.isDue(row.name, status, since: since, now: now) {
        due.append((number, row: row))
      }
    }
    return due
  }

  private func status(of pack: PackName) throws(BlobStorageError) -> FileStatus? {
    guard let file = try engine.backend.openPack(pack) else { return nil }
    defer { file.close() }
    return try file.status()
  }

  /// The entry for a pack in which a verification, begun now, finds nothing. Nil for a pack that is to be published: a
  /// local copy says nothing about the published pack.
  private func entry(of row: PackRow) throws(BlobStorageError) -> VerifiedPacks.Entry? {
    guard engine.backend.isDurableOnceSynced || row.durableByteCount > 0,
      let status = try status(of: row.name)
    else {
      return nil
    }
    // The pack of a living writer is read only up to here.
    let byteCount = row.isSealed ? status.byteCount : min(status.byteCount, row.appliedByteCount)
    return VerifiedPacks.Entry(byteCount: byteCount, changed: status.changed, time: engine.clock.now())
  }

  private func record(_ entries: [PackName: VerifiedPacks.Entry], of packs: [PackName]) {
    guard !entries.isEmpty else { return }
    do throws(BlobStorageError) { try VerifiedPacks.add(entries, of: Set(packs), to: engine.folder) } catch {
      // The entries only save reading, and the folder may not be writable.
      engine.logger.debug("What was verified was not recorded.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Reads each blob of several chunks, and compares it with its digest.
  private func wrongBlobs(_ share: VerificationShare?) throws(BlobStorageError) -> [Finding] {
    var findings: [Finding] = []
    try engine.catalog.forEachManifestPage { (page) throws(BlobStorageError) in
      for (digest, row) in page where share?.contains(digest) != false {
        try CancellationFlag.check()
        do throws(BlobStorageError) {
          guard let layout = try engine.blobs.layout(digest) else { continue }
          try engine.blobs.streamWhole(layout) { _ in }
        } catch {
          // Other damage was found in its pack.
          guard error.code == .corrupted, error.digest == digest, error.pack == nil else {
            guard error.code == .corrupted else { throw error }
            continue
          }
          let pack = try engine.catalog.read { (transaction) throws(BlobStorageError) in
            try transaction.packRow(row.place.pack)?.name
          }
          guard let pack else { continue }
          findings.append(
            Finding(digest: digest, pack: pack, offset: row.place.offset, reason: error.message))
        }
      }
    }
    return findings
  }

  private static let aheadCountMax = 1_000

  /// The first versions whose stamps are too far ahead of the present for the clock to follow.
  private func versionsAhead() throws(BlobStorageError) -> [VersionAhead] {
    let now = engine.clock.now()
    return try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [VersionAhead] = []
      try transaction.forEachKey(prefix: [], after: nil) { (key, name) throws(BlobStorageError) in
        try transaction.forEachVersion(of: name) { version in
          guard Stamp.isFarAhead(version.stamp.time, wallClock: now) else { return false }
          found.append(
            VersionAhead(
              key: String(decoding: key, as: UTF8.self), version: BlobVersion.ID(version.stamp)))
          return true
        }
        return found.count < Self.aheadCountMax
      }
      return found
    }
  }

  // MARK: From places to keys

  /// Adds to the report what versions miss, and to each damaged place the keys that need it.
  private func addDamage(_ findings: [Finding], _ report: inout VerificationReport) throws(BlobStorageError) {
    report.blobCount = 0
    var damage: [Damage] = []
    var indexByDigest: [BlobDigest: Int] = [:]
    for finding in findings {
      if let digest = finding.digest { indexByDigest[digest] = damage.count }
      damage.append(Damage(finding))
    }
    // By place, which takes one bit for each blob instead of a digest.
    var blobs = PlaceSet()
    var missingBlobs: Set<BlobDigest> = []
    let search = DamageSearch(catalog: engine.catalog, blobs: engine.blobs, folder: engine.folder)
    try search.forEachVersion { (owner, digest, needs) throws(BlobStorageError) in
      let key = owner.name
      let place = try engine.catalog.read { (view) throws(BlobStorageError) in try view.place(ofBlob: digest)
      }
      if let place {
        if blobs.insert(place) { report.blobCount += 1 }
      } else if missingBlobs.insert(digest).inserted {
        report.blobCount += 1
      }
      for need in needs {
        if let index = indexByDigest[need.digest] {
          if damage[index].keys.last != key { damage[index].keys.append(key) }
        } else if !need.isPresent || need.isDamaged {
          indexByDigest[need.digest] = damage.count
          damage.append(
            Damage(
              digest: need.digest, pack: "", offset: 0, keys: [key],
              reason: need.isPresent ? "it cannot be read" : "it is missing from the store"))
        }
      }
    } isInteresting: { digest in
      indexByDigest[digest] != nil
    }
    // The base may have gone while no version needed the chunk. A put that needed the chunk since has stored one of the
    // two again.
    var baseless: Set<BlobDigest> = []
    var passedOver: Set<BlobDigest> = []
    for finding in findings where finding.isOnlyBase {
      guard let digest = finding.digest else { continue }
      baseless.insert(digest)
      if try unlessCorrupted(try engine.chunks.bytes(digest)) != nil { passedOver.insert(digest) }
    }
    report.damaged = damage.filter { found in
      guard let digest = found.digest, baseless.contains(digest) else { return true }
      return !found.keys.isEmpty && !passedOver.contains(digest)
    }
  }
}

extension Damage {
  init(_ finding: Verifier.Finding) {
    self.init(
      digest: finding.digest, pack: "\(finding.pack)", offset: finding.offset, keys: [],
      reason: finding.reason)
  }
}

import Logging

/// What only the catalog still knows: it may have been made before a record was damaged.
extension Repairer {
  private static let keyCountOfPage = 500
  private static let recordCountOfCommit = 1_000
  private static let chunkCountOfPage = 10_000

  /// Writes a record for every version that the catalog shows or hides and the packs would not. So a catalog that is
  /// rebuilt from the packs gives the same answers.
  ///
  /// Other processes may write meanwhile. What they have written since is restored in vain, and changes nothing.
  ///
  /// - Returns: false when the catalog could not be read.
  func restoreKnownState() throws(BlobStorageError) -> Bool {
    var isRestored = true
    let session = engine.newSession()
    do throws(BlobStorageError) {
      try engine.catalog.withSecond { (environment) throws(BlobStorageError) in
        try engine.builder.fillWithoutRecovery(environment)
      } _: { (known, packs) throws(BlobStorageError) in
        var last: [UInt8]?
        repeat {
          try CancellationFlag.check()
          let (records, end) = try Self.page(known, packs, after: last)
          if !records.isEmpty { try write(records, to: session) }
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

  /// What is to be written for the keys of one page, and the page's last key; nil behind the last page.
  private static func page(
    _ known: Environment, _ packs: Environment, after last: [UInt8]?
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

  /// Refs for versions of a key that the packs do not have, and drops for those that nothing in the packs hides.
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

  /// Stores chunks again whose records the packs do not list any more, if they can still be read.
  private func restoreChunks(
    _ known: Environment, _ packs: Environment, _ session: WriterSession
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

  /// The same for manifests.
  private func restoreManifests(
    _ known: Environment, _ packs: Environment, _ session: WriterSession
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
          _ = try commit.appendManifest(of: layout, unlessThere: false)
        }
      } catch { guard error.code == .corrupted else { throw error } }
    }
  }

  private func write(
    _ records: [PackRecord.Content], to session: WriterSession
  ) throws(BlobStorageError) {
    for part in records.parts(of: Self.recordCountOfCommit) {
      _ = try session.commit { (commit) throws(BlobStorageError) in
        for content in part { try commit.append(content) }
      }
    }
  }
}

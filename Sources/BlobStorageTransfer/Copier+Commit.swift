import BlobStorage

/// How what was copied comes to be seen.
extension Copier {
  /// How much is done in one commit.
  private static let refCountOfCommit = 4_096

  private struct Committed {
    var keyCount = 0
    var addedCount = 0
    var droppedCount = 0
    /// Those of them that reports count.
    var countedCount = 0
    var countedDroppedCount = 0
    var droppedKeyCount = 0
    var storedByteCount = 0
    var named: [BlobDigest] = []
    /// Keys that were written whole.
    var whole: [CopiedKey] = []
  }

  /// Makes versions visible whose blobs are there, and drops those that are to go: of a key all together, unless it has
  /// more than one commit takes.
  func commit(
    _ keys: [CopiedKey], _ blobs: inout [BlobDigest: Blob], _ lossCount: Int
  ) throws(BlobStorageError) {
    var rest = keys[...]
    while !rest.isEmpty {
      let (done, watermark) = try target.writer.commit {
        [blobs] (commit) throws(BlobStorageError) -> Committed in
        try commit.checkNothingLost(since: lossCount)
        var done = Committed()
        for key in rest where done.addedCount + done.droppedCount < Self.refCountOfCommit {
          guard try write(key, blobs, &commit, &done) else { break }
          done.keyCount += 1
        }
        return done
      }
      if let watermark { watermarks[watermark.pack] = watermark }
      rest = rest.dropFirst(done.keyCount)
      for digest in done.named { blobs[digest]?.isNamed = true }
      for key in done.whole { settle(key) }
      report.newVersionCount += done.countedCount
      report.droppedVersionCount += done.countedDroppedCount
      report.droppedKeyCount += done.droppedKeyCount
      report.storedByteCount += Int64(done.storedByteCount)
    }
  }

  /// False when the key has more versions than there is room for.
  private func write(
    _ key: CopiedKey, _ blobs: [BlobDigest: Blob], _ commit: inout WriterSession.Commit,
    _ done: inout Committed
  ) throws(BlobStorageError) -> Bool {
    let plan = try plan(of: key, commit.transaction) { (place) throws(BlobStorageError) in
      try commit.canRefer(to: place)
    }
    let ready = plan.added.filter { blobs[$0.row.digest] != nil }
    let room = Self.refCountOfCommit - done.addedCount
    for addition in ready.prefix(room) {
      let row = addition.row
      guard let blob = blobs[row.digest] else { continue }
      try check(blob.layout, commit)
      done.storedByteCount += try commit.appendManifest(of: blob.layout, unlessThere: blob.isNamed)
      if !blob.isNamed { done.named.append(row.digest) }
      done.storedByteCount += try commit.append(
        .ref(
          RefRecord(
            key: key.bytes, version: addition.stamp, replaced: .none, digest: row.digest,
            byteCount: row.byteCount, created: row.created, metadata: row.metadata)))
      done.addedCount += 1
      if !InternalKey.isInternal(key.bytes) { done.countedCount += 1 }
    }
    if ready.count > room { return false }
    // What could not be brought takes nothing's place.
    if ready.count < plan.added.count { return true }
    try commit.drop(plan.dropped, of: key.bytes)
    done.droppedCount += plan.dropped.count
    if !InternalKey.isInternal(key.bytes) {
      done.countedDroppedCount += plan.dropped.count
      if plan.dropsKey { done.droppedKeyCount += 1 }
    }
    done.whole.append(key)
    return true
  }

  /// What the leases should have kept is really there.
  private func check(_ layout: BlobLayout, _ commit: borrowing WriterSession.Commit) throws(BlobStorageError)
  {
    var digests = layout.listDigests
    if case .chunks(let chunks) = layout.listed { digests = chunks.map(\.digest) }
    if digests.isEmpty { digests = [layout.digest] }
    try commit.check(digests, remedy: "copy again")
  }
}

/// The records that a session has appended and that views may lack. No commit has made them visible, or they became
/// visible while attempts to commit were in progress.
package struct PendingRecords: Sendable {
  /// With the base of each chunk that has one.
  private var chunks: [BlobDigest: BlobDigest?] = [:]
  private var manifests: Set<BlobDigest> = []
  /// Attempts to commit that are in progress, in the order in which they began.
  private var attempts: [UInt64] = []
  private var attemptCount: UInt64 = 0
  /// Chunks and manifests that became visible during attempts, with the latest attempt at that time. The views of these
  /// attempts may lack them.
  private var recentChunks: [BlobDigest: (attempt: UInt64, hasBase: Bool)] = [:]
  private var recentManifests: [BlobDigest: UInt64] = [:]

  package init() {}

  /// Whether a record is pending, of a chunk without a base or with the same one. Refs and drops never are.
  func contains(_ content: PackRecord.Content) -> Bool {
    switch content {
    case .chunk(let chunk):
      if let base = chunks[chunk.digest] { base == nil || base == chunk.base } else { false }
    case .manifest(let manifest): manifests.contains(manifest.digest)
    case .ref, .drop, .skipped: false
    }
  }

  /// Whether a chunk is pending without a base. Any commit may count on such a chunk. Only the put that has appended
  /// one with a base is sure that the base is still there.
  func containsChunk(_ digest: BlobDigest) -> Bool {
    if let base = chunks[digest] { base == nil } else { false }
  }

  /// Makes a record pending; false if it is already.
  mutating func insert(_ content: PackRecord.Content) -> Bool {
    if contains(content) { return false }
    switch content {
    case .chunk(let chunk): chunks.updateValue(chunk.base, forKey: chunk.digest)
    case .manifest(let manifest): manifests.insert(manifest.digest)
    case .ref, .drop, .skipped: break
    }
    return true
  }

  /// The same for the members of a frame, which is appended in any case.
  mutating func insert(_ frame: FrameRecord) -> Bool {
    for member in frame.members { chunks.updateValue(nil, forKey: member.digest) }
    return true
  }

  /// Forgets the manifests of a commit that has failed: nothing protects what they name.
  mutating func removeManifests() { manifests = [] }

  /// Forgets records that every new view shows.
  package mutating func remove(_ settled: [PackRecord.Content]) {
    for content in settled {
      switch content {
      case .chunk(let chunk):
        chunks.removeValue(forKey: chunk.digest)
        if let last = attempts.last { recentChunks[chunk.digest] = (last, chunk.base != nil) }
      case .manifest(let manifest):
        // Else its commit has failed.
        guard manifests.remove(manifest.digest) != nil, let last = attempts.last else { continue }
        recentManifests[manifest.digest] = last
      case .ref, .drop, .skipped: break
      }
    }
  }

  /// Forgets all records but the chunks that are pending in `packs`. Commits of manifests there may have failed.
  mutating func reset(to packs: borrowing OpenPacks) {
    (chunks, recentChunks, recentManifests) = ([:], [:], [:])
    for index in packs.pending.indices { _ = insert(packs.pending[index].record.content) }
    removeManifests()
  }

  // MARK: Attempts to commit

  /// Begins an attempt, after it has entered the current epoch and before it takes its view. Returns its number.
  package mutating func beginAttempt() -> UInt64 {
    attemptCount += 1
    attempts.append(attemptCount)
    return attemptCount
  }

  package mutating func endAttempt(_ number: UInt64) {
    attempts.removeAll { $0 == number }
    guard let oldest = attempts.first else {
      (recentChunks, recentManifests) = ([:], [:])
      return
    }
    if oldest > number, recentChunks.count + recentManifests.count > 0 {
      recentChunks = recentChunks.filter { $0.value.attempt >= oldest }
      recentManifests = recentManifests.filter { $0.value >= oldest }
    }
  }

  /// Whether an attempt finds a chunk or manifest in its session's packs though its view may lack it. Such a record is
  /// pending, or another thread's commit has made it visible since the attempt began.
  ///
  /// gc keeps the record: it can only have condemned the pack since then, and it waits for the attempt (H2).
  package func has(_ content: PackRecord.Content, in attempt: UInt64) -> Bool {
    switch content {
    case .chunk(let chunk): hasChunk(chunk.digest, in: attempt)
    case .manifest(let manifest):
      manifests.contains(manifest.digest)
        || recentManifests[manifest.digest].map { $0 >= attempt } ?? false
    case .ref, .drop, .skipped: false
    }
  }

  /// Whether any commit may count on the chunk. gc may have condemned the pack of its base before the attempt, so the
  /// chunk has none.
  func hasChunk(_ digest: BlobDigest, in attempt: UInt64) -> Bool {
    containsChunk(digest) || recentChunks[digest].map { $0.attempt >= attempt && !$0.hasBase } ?? false
  }

  /// The same for a put that has appended the chunk itself, or has leased its base.
  package func hasOwnChunk(_ digest: BlobDigest, in attempt: UInt64) -> Bool {
    chunks[digest] != nil || recentChunks[digest].map { $0.attempt >= attempt } ?? false
  }
}

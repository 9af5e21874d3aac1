import BlobStorage

/// Finds the holders of a key, blob or chunk in one walk over all versions.
///
/// Memory: two bits for each record of the packs with the subject, and results for up to 100,000 blobs.
package final class UsageSearch {
  /// How a blob relates to the subject.
  private struct Overlap {
    /// Stored bytes of the chunks that both need.
    var byteCount: Int64 = 0
    /// Whether it needs the chunk in question.
    var holdsChunk = false
    /// Whether its chunks were counted as needed by others.
    var isKept = false
  }

  private static let overlapCountMax = 100_000
  private static let attemptCountMax = 4

  private let engine: Engine
  private let subject: BlobUsage.Subject
  private let listCountMax: Int
  private let progress: (Int) -> Void
  private let needed: NeededChunks
  private var usage = BlobUsage(kind: .key)
  /// The subject's blobs, or the chunk in question.
  private var blobs: Set<BlobDigest> = []
  /// The place of the chunk in question.
  private var chunkPlace: Place?
  /// The places of the subject's chunks, and of those that others need too.
  private var target = PlaceSet()
  private var kept = PlaceSet()
  private var keptByteCount: Int64 = 0
  private var overlaps: [BlobDigest: Overlap] = [:]
  private var sharers: Largest<BlobUsage.Sharer>

  package init(
    _ engine: Engine, _ subject: BlobUsage.Subject, listCountMax: Int,
    progress: @escaping (Int) -> Void = { _ in }
  ) {
    self.progress = progress
    self.engine = engine
    self.subject = subject
    self.listCountMax = listCountMax
    needed = NeededChunks(engine.blobs)
    sharers = Largest(countMax: listCountMax)
  }

  /// Returns nil if the store does not have the subject. Searches again if gc has moved chunks of it meanwhile.
  package func run() throws(BlobStorageError) -> BlobUsage? {
    var search = self
    for _ in 1..<Self.attemptCountMax {
      guard let found = try search.walk() else { return nil }
      if try !search.hasMoved() { return found }
      search = UsageSearch(engine, subject, listCountMax: listCountMax, progress: progress)
    }
    return try search.walk()
  }

  /// Whether a chunk of the subject lies elsewhere than when the search began.
  private func hasMoved() throws(BlobStorageError) -> Bool {
    var hasMoved = false
    for blob in blobs {
      try needed.forEachChunk(of: blob) { row in if !target.contains(row.place) { hasMoved = true } }
    }
    return hasMoved
  }

  private func walk() throws(BlobStorageError) -> BlobUsage? {
    try engine.checkOpen()
    guard try begin() else { return nil }
    // The subject may be garbage, which no walk over versions follows.
    let isWhole = needed.unreadableMessages.isEmpty
    var keyCount = 0
    try engine.forEachKey { (entry) throws(BlobStorageError) in
      try add(entry.key, entry.versions)
      if !entry.replaced.isEmpty, !isSubject(entry.key) {
        try add(InternalKey.Purpose.replaced.key(entry.key), entry.replaced)
      }
      keyCount += 1
      if keyCount % 1_024 == 0 { progress(keyCount) }
    }
    for blob in try engine.heldBlobs() where try overlap(blob).byteCount > 0 { try keep(blob) }
    usage.sharers = sharers.descending
    usage.exclusiveByteCount = usage.storedByteCount - keptByteCount
    let reasons = needed.unreadableMessages
    usage.unreadable = isWhole ? try engine.confirmed(reasons) : reasons
    return usage
  }

  /// Finds the subject's chunks; false if the store does not have it.
  private func begin() throws(BlobStorageError) -> Bool {
    switch subject {
    case .key(let key):
      let versions = try engine.versions(key)
      if versions.isEmpty { return false }
      for version in versions {
        usage.byteCount = usage.byteCount.addingClamped(version.byteCount)
        blobs.insert(version.digest)
      }
      // Deleting the key also drops what imports have replaced.
      let replaced = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.versions(ofKey: InternalKey.Purpose.replaced.key(key.utf8))
      }
      blobs.formUnion(replaced.map(\.row.digest))
    case .digest(let digest):
      guard digest.algorithm == engine.header.digestAlgorithm else { return false }
      let (row, manifest) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        (try transaction.chunkRow(digest), try transaction.manifestRow(digest))
      }
      if let manifest {
        usage.kind = .blob
        usage.byteCount = manifest.byteCount
      } else if let row {
        usage.kind = .chunk
        usage.byteCount = Int64(row.plainByteCount)
        chunkPlace = row.place
      } else {
        return false
      }
      blobs = [digest]
    }
    for blob in blobs {
      try needed.forEachChunk(of: blob) { row in
        guard target.insert(row.place) else { return }
        usage.chunkCount += 1
        usage.storedByteCount += Int64(row.storedByteCount)
      }
    }
    return true
  }

  private func isSubject(_ key: [UInt8]) -> Bool {
    if case .key(let name) = subject { key.elementsEqual(name.utf8) } else { false }
  }

  private func add(_ name: [UInt8], _ versions: [StampedVersion]) throws(BlobStorageError) {
    var others: [BlobDigest] = []
    var isHolder = false
    let key = InternalKey.shown(name)
    for (index, version) in versions.enumerated() {
      guard try holds(name, version.row.digest) else {
        others.append(version.row.digest)
        continue
      }
      isHolder = true
      usage.holderCount += 1
      // A blob of one chunk has the chunk's digest.
      if chunkPlace != nil, case .digest(version.row.digest) = subject { usage.kind = .blob }
      guard usage.holders.count < listCountMax else { continue }
      usage.holders.append(
        BlobUsage.Holder(
          version: BlobVersion(key: key, stamp: version.stamp, row: version.row), isCurrent: index == 0))
    }
    var overlapping: Set<BlobDigest> = []
    for blob in others where !overlapping.contains(blob) {
      guard try overlap(blob).byteCount > 0 else { continue }
      overlapping.insert(blob)
      try keep(blob)
    }
    guard let first = overlapping.first, !isHolder else { return }
    let shared = overlapping.count == 1 ? try overlap(first).byteCount : try look(overlapping).byteCount
    usage.sharerCount += 1
    sharers.insert(BlobUsage.Sharer(key: key, sharedByteCount: shared), rank: shared)
  }

  private func holds(_ key: [UInt8], _ blob: BlobDigest) throws(BlobStorageError) -> Bool {
    switch subject {
    case .key: return isSubject(key)
    case .digest(let digest):
      if blob == digest { return true }
      return chunkPlace == nil ? false : try overlap(blob).holdsChunk
    }
  }

  private func overlap(_ blob: BlobDigest) throws(BlobStorageError) -> Overlap {
    if let known = overlaps[blob] { return known }
    let found = try look([blob])
    if overlaps.count >= Self.overlapCountMax { overlaps = [:] }
    overlaps[blob] = found
    return found
  }

  /// How several blobs together relate to the subject.
  private func look(_ blobs: Set<BlobDigest>) throws(BlobStorageError) -> Overlap {
    var own = PlaceSet()
    var found = Overlap()
    for blob in blobs {
      try needed.forEachChunk(of: blob) { row in
        guard target.contains(row.place), own.insert(row.place) else { return }
        found.byteCount += Int64(row.storedByteCount)
        if row.place == chunkPlace { found.holdsChunk = true }
      }
    }
    return found
  }

  /// Counts the bytes that a blob shares with the subject: they stay if the subject is dropped.
  private func keep(_ blob: BlobDigest) throws(BlobStorageError) {
    guard overlaps[blob]?.isKept != true else { return }
    try needed.forEachChunk(of: blob) { row in
      guard target.contains(row.place), kept.insert(row.place) else { return }
      keptByteCount += Int64(row.storedByteCount)
    }
    overlaps[blob]?.isKept = true
  }
}

/// Finds what is live: follows every version to its blob, and every blob to its chunks and their bases.
///
/// Reads versions a page at a time, so it may miss what is put meanwhile, and mark what is dropped. A collector marks
/// once more after it has condemned packs and before it removes them. See ``Collector``.
package struct Marker {
  package var marks = Marks()
  package private(set) var keyCount = 0
  package private(set) var versionCount = 0
  package private(set) var blobCount = 0
  /// Plain bytes of all versions; a blob counts once for each version.
  package private(set) var versionByteCount: Int64 = 0
  /// The first errors in following blobs. Nothing may be removed that those blobs might need.
  package private(set) var unreadable: [BlobStorageError] = []
  /// The first digests that versions need and that the store lacks.
  package private(set) var missing: Set<BlobDigest> = []
  /// The first chunks that versions need and whose bases are missing.
  private(set) var baseless: Set<BlobDigest> = []
  /// The first digests that versions need and that a read found damaged.
  package private(set) var damaged: Set<BlobDigest> = []
  private static let obstacleCountMax = 1_000

  private let blobs: BlobSource
  private let folder: StoreFolder
  /// Versions that are looked up together.
  static let pageCount = 32_768
  /// Chunks of any blobs that are looked up together. In the order of digests, each page of the catalog is visited once
  /// for several of them: even of ten million chunks, once for three.
  private static let groupCount = 524_288
  /// Roughly how many of them one thread looks up at once.
  private static let shareCount = 8_192
  /// Chunks that are needed and have not been looked up yet.
  private var pending: [BlobDigest] = []
  /// The places of lists whose chunks were marked.
  private var markedLists = PlaceSet()

  /// - Parameter folder: has the file of holds.
  package init(_ blobs: BlobSource, _ folder: StoreFolder) {
    self.blobs = blobs
    self.folder = folder
  }

  /// Marks what holds and versions need, except versions for which `isLeftOut` returns true.
  ///
  /// - Parameters:
  ///   - countsRefs: whether to count the versions and their refs; false for a second pass.
  ///   - archivedCountMax: ignores archived versions beyond this number of each key that `keep` would change.
  package mutating func markVersions(
    countsRefs: Bool = true, archivedCountMax: Int? = nil, progress: (Int) -> Void = { _ in },
    isLeftOut: (_ key: [UInt8], _ version: Stamp) -> Bool = { _, _ in false }
  ) throws(BlobStorageError) {
    let holds = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
      try archivedCountMax == nil ? [] : transaction.keyHolds()
    }
    // Internal keys last: versions move there from other keys.
    for prefix in [[], InternalKey.prefix] {
      var pages = KeyPages(blobs.catalog, prefix: prefix, countMax: Self.pageCount)
      while let page = try pages.next({ (key, name, transaction) throws(BlobStorageError) in
        var versions: [VersionRow] = []
        var countMax = archivedCountMax
        if InternalKey.isInternal(key) { countMax = nil }
        if countMax != nil, try transaction.hold(on: key, among: holds) != nil { countMax = nil }
        var archivedCount = -1  // the first is the current one
        try transaction.forEachVersion(of: name) { version in
          archivedCount += 1
          if let countMax, archivedCount > countMax { return false }
          if !isLeftOut(key, version.stamp) { versions.append(version.row) }
          return true
        }
        return ((InternalKey.isInternal(key), versions), versions.count)
      }) {
        if countsRefs {
          keyCount += page.count { !$0.0 }
          for (isInternal, versions) in page {
            for version in versions { count(version, isInternal: isInternal) }
          }
        }
        try markBlobs(page.flatMap { $0.1.map(\.digest) })
        progress(keyCount)
      }
    }
    try markHolds()
  }

  /// Marks blobs that are held by name. Skips blobs that were never stored, because a process died first.
  mutating func markHolds() throws(BlobStorageError) {
    let digests = try HoldFile(folder).read().map(\.digest)
    guard !digests.isEmpty else { return }
    let stored = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
      var stored: [BlobDigest] = []
      for digest in digests where try transaction.place(ofBlob: digest) != nil { stored.append(digest) }
      return stored
    }
    try markBlobs(stored)
  }

  private mutating func count(_ version: VersionRow, isInternal: Bool) {
    if !isInternal {
      versionCount += 1
      // Refs may claim any length, hostile ones too.
      versionByteCount = versionByteCount.addingClamped(version.byteCount)
    }
    marks.insertRef(version.place, recordByteCount: version.recordByteCount)
  }

  /// Marks blobs and everything that they need.
  mutating func markBlobs(_ digests: [BlobDigest]) throws(BlobStorageError) {
    let (newCount, others) = try look(up: digests)
    blobCount += newCount
    let rows = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
      try others.map { (digest, _) throws(BlobStorageError) in try transaction.manifestRow(digest) }
    }
    var manifests: [BlobDigest] = []
    for ((digest, isThere), row) in zip(others, rows) {
      guard let row else {
        doubt(digest, isThere: isThere)
        continue
      }
      if marks.insert(row) {
        blobCount += 1
        manifests.append(digest)
      }
    }
    for digest in manifests { try markManifest(digest) }
    try markPending()
  }

  /// Marks blobs and chunks that leases name. Those that the store lacks do not count as missing: no holder relies on
  /// them.
  mutating func markHeld(blobs: [BlobDigest], chunks: [BlobDigest]) throws(BlobStorageError) {
    let known = (missing, baseless, damaged)
    try markChunks(chunks)
    try markBlobs(blobs)
    (missing, baseless, damaged) = known
  }

  private mutating func doubt(_ digest: BlobDigest, isThere: Bool) {
    if isThere {
      if damaged.count < Self.obstacleCountMax { damaged.insert(digest) }
    } else if missing.count < Self.obstacleCountMax {
      missing.insert(digest)
    }
  }

  /// Marks those of the chunks that the store has.
  mutating func markChunks(_ digests: [BlobDigest]) throws(BlobStorageError) { _ = try look(up: digests) }

  /// Marks the lists and chunks of a blob, but not again the chunks of a list that an earlier blob has.
  private mutating func markManifest(_ digest: BlobDigest) throws(BlobStorageError) {
    let walk = LiveWalk(blobs)
    let outcome = try walk.outcome(of: digest) { (layout) throws(BlobStorageError) in
      try walk.forEachPart(of: layout) { (list) throws(BlobStorageError) in
        let row = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
          try transaction.chunkRow(list.digest)
        }
        // A missing list counts as unreadable.
        return row.map { markedLists.insert($0.place) } ?? true
      } _: { (part) throws(BlobStorageError) in
        pending.append(part.digest)
        if part.kind == .list { try CancellationFlag.check() }
        if pending.count >= Self.groupCount { try markPending() }
        return true
      }
    }
    switch outcome {
    case .whole: break
    case .missing: doubt(digest, isThere: false)
    case .unreadable(let error): if unreadable.count < Self.obstacleCountMax { unreadable.append(error) }
    }
  }

  private mutating func markPending() throws(BlobStorageError) {
    for (digest, isThere) in try look(up: pending).doubtful { doubt(digest, isThere: isThere) }
    pending.removeAll(keepingCapacity: true)
  }

  /// Marks those of the chunks that the store has, with their bases.
  ///
  /// - Returns: how many were not marked before, the chunks that the store lacks, and those that may be damaged.
  private mutating func look(
    up digests: [BlobDigest]
  ) throws(BlobStorageError) -> (newCount: Int, doubtful: [(digest: BlobDigest, isThere: Bool)]) {
    var newCount = 0
    var doubtful: [(digest: BlobDigest, isThere: Bool)] = []
    var based: [(digest: BlobDigest, row: ChunkRow, base: BlobDigest)] = []
    try forEachRow(digests) { digest, row in
      guard let row else { return doubtful.append((digest, false)) }
      if row.isSuspect { doubtful.append((digest, true)) }
      if marks.contains(row.place), !marks.isOnlyBase(row.place) { return }
      if let base = row.base {
        based.append((digest, row, base))
      } else if marks.insert(row) {
        newCount += 1
      }
    }
    based.sort { $0.base < $1.base }
    var rest = based[...]
    try forEachRow(based.map(\.base)) { base, baseRow in
      guard let (digest, row, _) = rest.popFirst() else { return }
      if let baseRow {
        if baseRow.isSuspect { doubtful.append((base, true)) }
        marks.insertBase(baseRow)
      } else {
        doubt(base, isThere: false)
        if baseless.count < Self.obstacleCountMax { baseless.insert(digest) }
      }
      if marks.insert(row) { newCount += 1 }
    }
    return (newCount, doubtful)
  }

  /// Calls `body` with the row of each chunk in the order of digests; twice if a digest is named twice. All threads
  /// sort and look up shares of the digests.
  private func forEachRow(
    _ digests: [BlobDigest], _ body: (BlobDigest, ChunkRow?) -> Void
  ) throws(BlobStorageError) {
    var shares = Self.shares(of: digests)[...]
    try blobs.work.orderedMap(
      inFlightMax: blobs.work.width * 2 + 1,
      next: { shares.popFirst() },
      transform: { [catalog = blobs.catalog] (share) throws(BlobStorageError) in
        let sorted = share.sorted()
        return try catalog.read { (transaction) throws(BlobStorageError) in
          var rows: [(digest: BlobDigest, row: ChunkRow?)] = []
          rows.reserveCapacity(sorted.count)
          try transaction.forEachChunkRow(sorted) { rows.append(($0, $1)) }
          return rows
        }
      },
      consume: { for (digest, row) in $0 { body(digest, row) } })
  }

  /// Divides digests by their first byte, lowest first, into shares of about ``shareCount``.
  private static func shares(of digests: [BlobDigest]) -> [[BlobDigest]] {
    guard digests.count > shareCount else { return digests.isEmpty ? [] : [digests] }
    let bits = min(
      8, (digests.count / shareCount).bitWidth - (digests.count / shareCount).leadingZeroBitCount)
    var shares = [[BlobDigest]](repeating: [], count: 1 << bits)
    for index in shares.indices { shares[index].reserveCapacity(digests.count >> bits + shareCount / 4) }
    for digest in digests { shares[Int(digest.withUnsafeBytes { $0[0] }) >> (8 - bits)].append(digest) }
    return shares
  }
}

/// Marks what is live in a few packs, without following every version of the store.
///
/// The catalog counts the versions of each blob. A chunk that is a blob of its own is live while its count is not 0. A
/// chunk of a longer blob is live while that blob is, so only blobs with a manifest are followed. A chunk that any
/// record is encoded against, live or not, is kept as well: the catalog counts those records.
extension Marker {
  /// Marks what versions and bases need of these packs, and what longer blobs need of all packs.
  ///
  /// - Returns: false if the catalog has no counts, and everything had to be marked.
  mutating func markLive(in packs: [PackName]) throws(BlobStorageError) -> Bool {
    let isCounted = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.countsVersions()
    }
    // The store is no cache, or the cache has not turned counting on again since a rebuild.
    guard isCounted else {
      try markVersions(countsRefs: false)
      return false
    }
    for name in packs {
      var digests: [BlobDigest] = []
      // A damaged pack is left alone when its content is examined.
      let outcome = try unlessCorrupted(
        try blobs.packs.scan(name) { record in
          if case .chunk(let chunk) = record.content { digests.append(chunk.digest) }
        })
      // What could not be read now may be readable then, and would pass for garbage.
      if let error = outcome??.unreadable { unreadable.append(error) }
      for page in digests.parts(of: Self.pageCount) {
        let (live, bases) = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
          var live: [BlobDigest] = []
          var bases: [BlobDigest] = []
          for digest in page {
            if try transaction.versionCount(of: digest) > 0 { live.append(digest) }
            if try transaction.isBase(digest) { bases.append(digest) }
          }
          return (live, bases)
        }
        try markBlobs(live)
        try markChunks(bases)
      }
    }
    try blobs.catalog.forEachManifestPage { (page) throws(BlobStorageError) in
      try markBlobs(
        try blobs.catalog.read { (transaction) throws(BlobStorageError) in
          var live: [BlobDigest] = []
          for (digest, _) in page where try transaction.versionCount(of: digest) > 0 { live.append(digest) }
          return live
        })
    }
    return true
  }
}

extension Int64 {
  /// Adds without overflow: refs may claim any length, hostile ones too.
  package func addingClamped(_ other: Int64) -> Int64 {
    let sum = addingReportingOverflow(other)
    return sum.overflow ? .max : sum.partialValue
  }
}

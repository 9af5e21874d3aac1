/// Works out what is live: follows every version to its blob, and every blob to its chunks and their bases.
///
/// Versions are walked a page at a time: what is put meanwhile may be missed, and what is dropped may be marked. Who
/// removes anything marks once more after condemning it. See ``Collector``.
struct Marker {
  var marks = Marks()
  private(set) var keyCount = 0
  private(set) var versionCount = 0
  private(set) var blobCount = 0
  /// Plain bytes of all versions, each counted.
  private(set) var versionByteCount: Int64 = 0
  /// What could not be followed: nothing may be removed that it might need.
  private(set) var unreadable: [BlobStorageError] = []
  /// Needed, and not in the store.
  private(set) var missing: Set<Digest> = []

  let engine: Engine
  private var algorithm: Digest.Algorithm { engine.header.digestAlgorithm }
  /// Versions, and chunks of a blob, that are looked up together: in the order of digests, so that neighbours in the
  /// catalog are asked for one after the other. In a catalog of a million chunks that takes a third of the time.
  static let pageCount = 32_768

  init(_ engine: Engine) { self.engine = engine }

  /// Marks what all versions need, except those that `isLeftOut` says.
  ///
  /// - Parameters:
  ///   - countsRefs: whether the versions and their refs are counted; a second pass does not.
  ///   - archivedCountMax: leaves out what a key has beyond so many archived versions.
  mutating func markVersions(
    countsRefs: Bool = true, archivedCountMax: Int? = nil, progress: (Int) -> Void = { _ in },
    isLeftOut: (_ key: [UInt8], _ version: Stamp) -> Bool = { _, _ in false }
  ) throws(BlobStorageError) {
    var last: [UInt8]?
    while true {
      try CancellationFlag.check()
      var page: [(key: [UInt8], stamp: Stamp, row: VersionRow)] = []
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachKey(prefix: [], after: last) { (key, name) throws(BlobStorageError) in
          last = key
          if countsRefs { keyCount += 1 }
          var archivedCount = -1  // the first is the current one
          try transaction.forEachVersion(key: name.key, algorithm: algorithm) { version in
            archivedCount += 1
            if let archivedCountMax, archivedCount > archivedCountMax { return false }
            page.append((key, version.stamp, version.row))
            return true
          }
          return page.count < Self.pageCount
        }
      }
      if page.isEmpty { return }
      for (key, stamp, row) in page where !isLeftOut(key, stamp) {
        if countsRefs {
          versionCount += 1
          // What refs claim, hostile ones too.
          let sum = versionByteCount.addingReportingOverflow(row.byteCount)
          versionByteCount = sum.overflow ? .max : sum.partialValue
          marks.insertRef(
            row.place,
            recordByteCount: RecordHeader.byteCount + RefRecord.fixedByteCount + key.count
              + row.metadata.count)
        }
      }
      try markBlobs(page.filter { !isLeftOut($0.key, $0.stamp) }.map(\.row.digest))
      progress(keyCount)
    }
  }

  /// Marks blobs and all that they need.
  mutating func markBlobs(_ digests: [Digest]) throws(BlobStorageError) {
    var manifests: [Digest] = []
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for digest in digests.sorted() {
        if let row = try transaction.chunkRow(digest) {
          if try mark(row, transaction) { blobCount += 1 }
        } else if let row = try transaction.manifestRow(digest) {
          if marks.insert(row) {
            blobCount += 1
            manifests.append(digest)
          }
        } else {
          missing.insert(digest)
        }
      }
    }
    for digest in manifests { try markManifest(digest) }
  }

  /// Marks chunks that a lease names.
  mutating func markChunks(_ digests: [Digest]) throws(BlobStorageError) {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for digest in digests {
        if let row = try transaction.chunkRow(digest) { _ = try mark(row, transaction) }
      }
    }
  }

  private mutating func markManifest(_ digest: Digest) throws(BlobStorageError) {
    do throws(BlobStorageError) {
      guard let layout = try engine.blobs.layout(digest) else {
        missing.insert(digest)
        return
      }
      try markAll(layout.listDigests)
      var group: [Digest] = []
      try layout.forEachChunk(in: 0..<layout.byteCount, from: engine.chunks) {
        (placed) throws(BlobStorageError) in
        group.append(placed.entry.digest)
        if group.count == Self.pageCount {
          try markAll(group)
          group.removeAll(keepingCapacity: true)
        }
        return true
      }
      try markAll(group)
    } catch {
      guard error.code == .corrupted else { throw error }
      unreadable.append(error)
    }
  }

  private mutating func markAll(_ digests: [Digest]) throws(BlobStorageError) {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for digest in digests.sorted() {
        if let row = try transaction.chunkRow(digest) {
          _ = try mark(row, transaction)
        } else {
          missing.insert(digest)
        }
      }
    }
  }

  private mutating func mark(_ row: ChunkRow, _ transaction: Transaction) throws(BlobStorageError) -> Bool {
    if marks.contains(row.place), !marks.isOnlyBase(row.place) { return false }
    var baseRow: ChunkRow?
    if let base = row.base {
      baseRow = try transaction.chunkRow(base)
      if let baseRow { marks.insertBase(baseRow, kind: row.baseKind) } else { missing.insert(base) }
    }
    return marks.insert(row, base: baseRow)
  }
}

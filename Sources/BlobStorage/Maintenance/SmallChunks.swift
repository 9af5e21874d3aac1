/// The small chunks that a dictionary could make smaller: live, stored without a base and in no frame, and no base of
/// another.
struct SmallChunks: Sendable {
  private(set) var count = 0
  /// The first of them in the order of digests, which is no order of theirs: a fair sample.
  private(set) var sample: [Digest] = []
  private var samplePlainByteCount = 0
  private var places = PlaceSet()
  private var storedByteCounts: [UInt32: Int64] = [:]

  /// - Parameters:
  ///   - packs: only what lies there.
  ///   - leased: what writers at work may be about to encode others against.
  init(
    _ engine: Engine, _ marks: Marks, in packs: Set<UInt32>, leased: Set<Digest> = []
  ) throws(BlobStorageError) {
    try engine.forEachChunk { (digest, row, transaction) throws(BlobStorageError) in
      guard row.base == nil, Self.isSmall(row), !row.isSuspect, packs.contains(row.place.pack),
        marks.contains(row.place), !marks.isOnlyBase(row.place), !leased.contains(digest),
        try !transaction.isBase(digest)
      else { return true }
      count += 1
      places.insert(row.place)
      storedByteCounts[row.place.pack, default: 0] += Int64(row.storedByteCount)
      if samplePlainByteCount < DictionaryPolicy.sampleByteCountMax {
        sample.append(digest)
        samplePlainByteCount += row.plainByteCount
      }
      return true
    }
  }

  static func isSmall(_ row: ChunkRow) -> Bool {
    row.frameOffset == nil && DictionaryPolicy.plainByteCounts.contains(row.plainByteCount)
  }

  func contains(_ place: Place) -> Bool { places.contains(place) }

  /// Stored bytes of those in a pack.
  func storedByteCount(_ pack: UInt32) -> Int64 { storedByteCounts[pack] ?? 0 }
}

extension Engine {
  /// Calls `body` with every chunk of the catalog, in the order of digests, until it returns false. Each batch has a
  /// snapshot of its own.
  func forEachChunk(
    _ body: (Digest, ChunkRow, ReadTransaction) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let pageCountMax = 20_000
    var last: Digest?
    while true {
      try CancellationFlag.check()
      var pageCount = 0
      var goesOn = true
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachChunk(after: last) {
          (digest, row) throws(BlobStorageError) in
          last = digest
          pageCount += 1
          goesOn = try body(digest, row, transaction)
          return goesOn && pageCount < pageCountMax
        }
      }
      if !goesOn || pageCount < pageCountMax { return }
    }
  }
}

/// Reading the bytes of a blob in order.
extension BlobSource {
  /// Hands the bytes of a whole blob to `sink` in order. At the end compares them with the blob's digest, unless
  /// checksums are to do: chunks may all be undamaged and the manifest name the wrong ones.
  ///
  /// - Throws: `corrupted` behind the last byte.
  package func streamWhole(
    _ layout: BlobLayout, _ verification: Verification = .digest,
    _ sink: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    // Of a blob of one chunk the chunk's digest is the blob's.
    guard layout.chunkCount > 1, verification == .digest else {
      return try stream(layout, 0..<layout.byteCount, verification: verification, sink)
    }
    var digest = DigestStream(layout.digest.algorithm)
    try stream(layout, 0..<layout.byteCount) { (bytes) throws(BlobStorageError) in
      digest.update(bytes.bytes)
      try sink(bytes)
    }
    guard digest.finalize() == layout.digest else {
      throw BlobStorageError(
        .corrupted,
        "The manifest of blob \(layout.digest) names the chunks of other bytes: put the same bytes again.",
        digest: layout.digest)
    }
  }

  /// Hands the bytes of a range to `sink` in order. Chunks are read and verified on all cores, a bounded number ahead.
  ///
  /// - Parameter keeps: whether chunks are likely to be wanted again soon.
  func stream(
    _ layout: BlobLayout, _ range: Range<Int64>, access: ChunkSource.Access = .sequential,
    keeps: Bool = false, verification: Verification = .digest,
    _ sink: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let source = chunks
    let aheadCount = backend.readAheadCount
    var group: ArraySlice<ReadPart> = []
    // Where chunks come over a network, those of the next group are on their way while this one is read.
    var following: ArraySlice<ReadPart>?
    var position = range.lowerBound
    func fetchGroup() throws(BlobStorageError) -> ArraySlice<ReadPart> {
      guard position < range.upperBound else { return [] }
      var fetched: [BlobLayout.PlacedChunk] = []
      let countMax = aheadCount > 0 ? aheadCount : 256
      try layout.forEachChunk(in: position..<range.upperBound, from: source, access: access) { placed in
        fetched.append(placed)
        return fetched.count < countMax
      }
      if let last = fetched.last { position = last.start + Int64(last.entry.plainByteCount) }
      if aheadCount > 0, fetched.count > 1 { prefetch(fetched.map(\.entry)) }
      let frames = fetched.count > 1 ? try source.framePlaces(of: fetched.map(\.entry.digest)) : [nil]
      return zip(fetched, frames).map { (placed, frame) in
        let end = placed.start + Int64(placed.entry.plainByteCount)
        let wanted = max(range.lowerBound, placed.start)..<min(range.upperBound, end)
        return ReadPart(
          entry: placed.entry,
          wanted: Int(wanted.lowerBound - placed.start)..<Int(wanted.upperBound - placed.start), frame: frame)
      }[...]
    }
    // To hand a chunk to another thread costs about as much as to hash it; of a short range each goes by itself.
    let partCountMax = range.count > Self.byteCountOfSingles ? Self.partCountTogether : 1
    /// Chunks for one thread: those of a frame go together, so that no other thread waits for its decoding.
    func nextParts() throws(BlobStorageError) -> [ReadPart]? {
      try CancellationFlag.check()
      if group.isEmpty {
        if let next = following { group = next } else { group = try fetchGroup() }
        if aheadCount > 0 { following = try fetchGroup() }
      }
      guard let first = group.popFirst() else { return nil }
      var parts = [first]
      while let next = group.first, next.frame == first.frame, next.frame != nil || parts.count < partCountMax
      {
        parts.append(group.removeFirst())
      }
      return parts
    }
    @Sendable func read(_ parts: [ReadPart]) throws(BlobStorageError) -> [ReadResult] {
      func result(_ part: ReadPart) throws(BlobStorageError) -> ReadResult {
        let bytes = try source.bytes(part.entry, access: access, keeps: keeps, verification: verification)
        return ReadResult(bytes: bytes, wanted: part.wanted)
      }
      guard parts[0].frame != nil else { return try parts.map(result) }
      // From the last: a frame that is decoded up to there holds the others as well.
      return try parts.reversed().map(result).reversed()
    }
    func handOver(_ results: [ReadResult]) throws(BlobStorageError) {
      for result in results {
        try bridge(result.bytes) { (raw) throws(BlobStorageError) in
          try sink(UnsafeRawBufferPointer(rebasing: raw[result.wanted]))
        }
      }
    }
    guard let first = try nextParts() else { return }
    // For a single chunk, one frame, or a few chunks that are stored as they are, waking another thread takes longer than
    // it saves.
    var isDoneAlone = first.reduce(0) { $0 + $1.wanted.count } == range.count
    if !isDoneAlone, range.count <= Self.byteCountWithoutThreads {
      isDoneAlone = try !source.isEncoded(first[0].entry.digest)
    }
    if isDoneAlone {
      var parts: [ReadPart]? = first
      while let next = parts {
        try handOver(try read(next))
        parts = try nextParts()
      }
      return
    }
    var ahead: [ReadPart]? = first
    try work.orderedMap(
      inFlightMax: work.width * 4,
      next: { () throws(BlobStorageError) -> [ReadPart]? in
        if let first = ahead.take() { return first }
        return try nextParts()
      },
      transform: read, consume: handOver)
  }

  private static let byteCountWithoutThreads = 256 << 10
  private static let byteCountOfSingles = 1 << 20
  private static let partCountTogether = 4

  private struct ReadPart: Sendable {
    var entry: ChunkEntry
    var wanted: Range<Int>
    var frame: ChunkSource.FramePlace?
  }

  private struct ReadResult: Sendable {
    var bytes: [UInt8]
    var wanted: Range<Int>
  }
}

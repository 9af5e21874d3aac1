/// Reading the bytes of a blob in order.
extension BlobSource {
  /// Hands the bytes of a whole blob to `sink` in order. At the end compares them with the blob's digest, unless
  /// checksums are to do: chunks may all be undamaged and the manifest name the wrong ones.
  ///
  /// - Throws: `corrupted` behind the last byte.
  func streamWhole(
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
    var group: ArraySlice<BlobLayout.PlacedChunk> = []
    // Where chunks come over a network, those of the next group are on their way while this one is read.
    var following: ArraySlice<BlobLayout.PlacedChunk>?
    var position = range.lowerBound
    func fetchGroup() throws(BlobStorageError) -> ArraySlice<BlobLayout.PlacedChunk> {
      guard position < range.upperBound else { return [] }
      var fetched: [BlobLayout.PlacedChunk] = []
      let countMax = aheadCount > 0 ? aheadCount : 256
      try layout.forEachChunk(in: position..<range.upperBound, from: source, access: access) { placed in
        fetched.append(placed)
        return fetched.count < countMax
      }
      if let last = fetched.last { position = last.start + Int64(last.entry.plainByteCount) }
      if aheadCount > 0, fetched.count > 1 { prefetch(fetched.map(\.entry)) }
      return fetched[...]
    }
    func nextPart() throws(BlobStorageError) -> ReadPart? {
      try CancellationFlag.check()
      if group.isEmpty {
        if let next = following { group = next } else { group = try fetchGroup() }
        if aheadCount > 0 { following = try fetchGroup() }
      }
      guard let placed = group.popFirst() else { return nil }
      let end = placed.start + Int64(placed.entry.plainByteCount)
      let wanted = max(range.lowerBound, placed.start)..<min(range.upperBound, end)
      return ReadPart(
        entry: placed.entry,
        wanted: Int(wanted.lowerBound - placed.start)..<Int(wanted.upperBound - placed.start))
    }
    guard let first = try nextPart() else { return }
    // For a single chunk, or a few that are stored as they are, waking another thread takes longer than it saves.
    var isDoneAlone = first.wanted.count == range.count
    if !isDoneAlone, range.count <= Self.byteCountWithoutThreads {
      isDoneAlone = try !source.isEncoded(first.entry.digest)
    }
    if isDoneAlone {
      var part: ReadPart? = first
      while let next = part {
        let bytes = try source.bytes(next.entry, access: access, keeps: keeps, verification: verification)
        try bridge(bytes) { (raw) throws(BlobStorageError) in
          try sink(UnsafeRawBufferPointer(rebasing: raw[next.wanted]))
        }
        part = try nextPart()
      }
      return
    }
    var ahead: ReadPart? = first
    // To hand a chunk to another thread costs about as much as to hash it; of a short range each goes by itself.
    let partCountMax = range.count > Self.byteCountOfSingles ? Self.partCountTogether : 1
    try work.orderedMap(
      inFlightMax: work.width * 4,
      next: { () throws(BlobStorageError) -> [ReadPart]? in
        var parts: [ReadPart] = []
        while parts.count < partCountMax {
          var part = ahead.take()
          if part == nil { part = try nextPart() }
          guard let part else { break }
          parts.append(part)
        }
        return parts.isEmpty ? nil : parts
      },
      transform: { (parts) throws(BlobStorageError) in
        var results: [ReadResult] = []
        for part in parts {
          let bytes = try source.bytes(part.entry, access: access, keeps: keeps, verification: verification)
          results.append(ReadResult(bytes: bytes, wanted: part.wanted))
        }
        return results
      },
      consume: { (results) throws(BlobStorageError) in
        for result in results {
          try bridge(result.bytes) { (raw) throws(BlobStorageError) in
            try sink(UnsafeRawBufferPointer(rebasing: raw[result.wanted]))
          }
        }
      })
  }

  private static let byteCountWithoutThreads = 256 << 10
  private static let byteCountOfSingles = 1 << 20
  private static let partCountTogether = 4

  private struct ReadPart: Sendable {
    var entry: ChunkEntry
    var wanted: Range<Int>
  }

  private struct ReadResult: Sendable {
    var bytes: [UInt8]
    var wanted: Range<Int>
  }
}

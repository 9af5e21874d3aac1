import Foundation

extension Engine {
  package func data(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> Data? {
    if let data = try smallData(key, id) { return data }
    // Between looking up the version and reading its chunks, it can be dropped and collected: then it is looked up
    // again, and what is missing then is missing.
    for attempt in 0..<3 {
      guard let version = try version(key, id) else { return nil }
      do throws(BlobStorageError) {
        if let data = try data(version.digest) { return data }
      } catch {
        guard error.code == .corrupted, attempt < 2, try self.version(key, id)?.digest != version.digest
        else {
          throw named(error, key)
        }
        continue
      }
      guard try self.version(key, id)?.digest == version.digest else { continue }
      throw named(Self.missing(version.digest), key)
    }
    return nil
  }

  /// The blob of a version if it is a single chunk that can be read at once: looked up in one snapshot.
  private func smallData(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> Data? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    do throws(BlobStorageError) {
      if id == nil, uncertain.time(of: bytes) != nil { return nil }
      return try chunks.bytes { (transaction) throws(BlobStorageError) in
        guard let name = try transaction.nameRow(bytes) else { return nil }
        guard let id else {
          return try transaction.currentVersion(key: name.key)?.row.digest
        }
        return try transaction.versionRow(key: name.key, id.stamp)?.digest
      }.map { Data($0) }
    } catch {
      // It may have been dropped and collected meanwhile: the long way finds out.
      guard error.code == .corrupted else { throw error }
      return nil
    }
  }

  package func data(_ digest: Digest) throws(BlobStorageError) -> Data? {
    try checkOpen()
    try check(digest)
    guard let layout = try blobs.layout(digest) else { return nil }
    if layout.byteCount == 0 { return Data() }
    guard layout.byteCount <= Int.max / 2 else {
      throw BlobStorageError(
        .limitExceeded, "Blob \(digest) is too long for memory: use a reader.", digest: digest)
    }
    if layout.chunkCount == 1 { return Data(try chunks.bytes(digest)) }
    // A manifest may claim any length: what is not there yet is not paid for in advance.
    var data = Data(capacity: Int(min(layout.byteCount, 64 << 20)))
    try streamWhole(layout) { data.append(contentsOf: $0) }
    return data
  }

  /// Hands the bytes of a whole blob to `sink` in order, and compares them with the blob's digest at the end: chunks may
  /// all be undamaged and the manifest name the wrong ones.
  ///
  /// - Throws: `corrupted` behind the last byte.
  func streamWhole(
    _ layout: BlobLayout, _ sink: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    // Of a blob of one chunk the chunk's digest is the blob's.
    guard layout.chunkCount > 1 else { return try stream(layout, 0..<layout.byteCount, sink) }
    var digest = DigestStream(layout.digest.algorithm)
    try stream(layout, 0..<layout.byteCount) { (bytes) throws(BlobStorageError) in
      digest.update(bytes)
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
    keeps: Bool = false,
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
        let bytes = try source.bytes(next.entry, access: access, keeps: keeps)
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
          results.append(
            ReadResult(
              bytes: try source.bytes(part.entry, access: access, keeps: keeps), wanted: part.wanted))
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

  package func openBlob(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> OpenBlob? {
    for _ in 0..<8 {
      guard let version = try version(key, id) else { return nil }
      let hold = try leases.holdWhereThereIsRoom([.blob(version.digest)])
      // Only a version that is still there after the lease was written is sure to stay readable.
      guard try self.version(key, id)?.id == version.id else {
        leases.release(hold)
        continue
      }
      do throws(BlobStorageError) {
        guard let layout = try blobs.layout(version.digest) else {
          throw Self.missing(version.digest)
        }
        return OpenBlob(engine: self, layout: layout, hold: hold)
      } catch {
        leases.release(hold)
        throw named(error, key)
      }
    }
    throw BlobStorageError(.busy, "Key “\(key)” changes faster than it can be opened.", key: key)
  }

  package func openBlob(_ digest: Digest) throws(BlobStorageError) -> OpenBlob? {
    try checkOpen()
    try check(digest)
    let hold = try leases.holdWhereThereIsRoom([.blob(digest)])
    do throws(BlobStorageError) {
      if let layout = try blobs.layout(digest) { return OpenBlob(engine: self, layout: layout, hold: hold) }
    } catch {
      leases.release(hold)
      throw error
    }
    leases.release(hold)
    return nil
  }

  package func holdVersions(_ key: String) throws(BlobStorageError) -> HeldVersions {
    for _ in 0..<8 {
      let versions = try versions(key)
      let hold = try leases.holdWhereThereIsRoom(versions.map { .blob($0.digest) })
      if try self.versions(key) == versions {
        return HeldVersions(versions: versions, hold: hold, leases: leases)
      }
      leases.release(hold)
    }
    throw BlobStorageError(.busy, "Key “\(key)” changes faster than its history can be opened.", key: key)
  }

  private func check(_ digest: Digest) throws(BlobStorageError) {
    guard digest.algorithm == header.digestAlgorithm else {
      throw BlobStorageError(
        .invalidArgument,
        "The store names blobs by \(header.digestAlgorithm.name): \(digest) cannot be in it.",
        digest: digest)
    }
  }

  private static func missing(_ digest: Digest) -> BlobStorageError {
    BlobStorageError(
      .corrupted, "Blob \(digest) is missing from the store: put the same bytes again to heal it.",
      digest: digest)
  }

  /// The error for a version that cannot be read. If another machine has fenced this one, the error says so first:
  /// relaxed puts may refer to chunks that are gone.
  private func named(_ error: BlobStorageError, _ key: String) -> BlobStorageError {
    guard error.key == nil, error.code == .corrupted else { return error }
    let cause = sharing.fencing ?? error
    return BlobStorageError(
      cause.code, "Key “\(key)”: \(cause.message)", key: key, digest: error.digest, pack: error.pack,
      offset: error.offset, path: error.path, errno: error.errno)
  }
}

extension ChunkSource {
  /// The chunk that a manifest names: its length is the one that the manifest says, or the manifest is wrong.
  func bytes(_ entry: ChunkEntry, access: Access = .sequential, keeps: Bool = false) throws(BlobStorageError)
    -> [UInt8]
  {
    let bytes = try bytes(entry.digest, access: access, keeps: keeps)
    guard bytes.count == entry.plainByteCount else {
      throw BlobStorageError(
        .corrupted, "Chunk \(entry.digest) has not the length that a manifest says.", digest: entry.digest)
    }
    return bytes
  }
}

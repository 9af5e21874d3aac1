extension WriterSession {
  /// One commit under way: what it reads of the catalog, and the way to append to the pack.
  ///
  /// Refs and drops are held back to the end and become one record of the pack, so that a crash leaves all of them or
  /// none.
  ///
  /// It has the open packs while the append lock is held, and cannot be copied: it ends with the lock.
  package struct Commit: ~Copyable {
    package let transaction: ReadTransaction
    let session: WriterSession
    /// Which attempt this is, as ``WriterState`` counts.
    private let attempt: UInt64
    var packs = OpenPacks()
    /// Whether a sync follows before the caller's operation returns.
    var isPromised = false
    private var deferred: [CommitRecord.Entry] = []
    /// The first key that got a version. It is held apart, so that a commit of one key makes no table.
    private var first: (key: [UInt8], version: Stamp)?
    /// The last versions of the other keys.
    private var lastVersions: [[UInt8]: Stamp] = [:]
    private var byteCount = 0
    private var listedByteCount = 0

    init(transaction: ReadTransaction, session: WriterSession, attempt: UInt64) {
      self.transaction = transaction
      self.session = session
      self.attempt = attempt
    }

    /// The next stamp of the clock: later than any in the store that is not far ahead of the present, and later than
    /// `other`, which may be.
    package mutating func stamp(after other: Stamp = .none) throws(BlobStorageError) -> Stamp {
      let last =
        session.weaknesses.contains(.clockFollowsWall) ? 0 : max(try transaction.clock(), packs.lastTime)
      var time = Stamp.timeAfter(last, wallClock: session.clock.now())
      // The clock may have reached stamps that were given out ahead of it.
      for given in packs.timesAhead where given.contains(time) { time = given.upperBound + 1 }
      guard time < Stamp.timeMax else {
        throw BlobStorageError(.limitExceeded, "The store's clock has come to its end.")
      }
      if other.time >= time, !session.weaknesses.contains(.clockFollowsWall) {
        return try stamp(farAfter: other)
      }
      packs.lastTime = time
      return Stamp(time: time, writer: session.writerID)
    }

    /// A stamp for a key whose newest version the clock does not follow. It leaves the clock as it is.
    private mutating func stamp(farAfter other: Stamp) throws(BlobStorageError) -> Stamp {
      let last = packs.timesAhead.last
      let time = max(other.time, last?.upperBound ?? 0) + 1
      guard time < Stamp.timeMax else {
        throw BlobStorageError(
          .limitExceeded,
          "A version of the key is stamped at the end of the clock, so that no version can follow it: delete or "
            + "replace it first.")
      }
      if let last, last.upperBound + 1 == time {
        packs.timesAhead[packs.timesAhead.count - 1] = last.lowerBound...time
      } else {
        packs.timesAhead.append(time...time)
      }
      return Stamp(time: time, writer: session.writerID)
    }

    /// When the pack of the next record was created, if it has to be begun: later than all in the store.
    private func packTime() throws(BlobStorageError) -> UInt64 {
      packs.writer != nil ? 0 : Stamp.timeAfter(try transaction.clock(), wallClock: wallTime)
    }

    /// Milliseconds since 1970 by the wall clock.
    package var wallTime: UInt64 { session.clock.now() }

    /// Drops versions of a key, in as many records as that takes.
    package mutating func drop(_ versions: [Stamp], of key: [UInt8]) throws(BlobStorageError) {
      for start in stride(from: 0, to: versions.count, by: Limits.dropVersionCountMax) {
        let part = Array(versions[start..<min(start + Limits.dropVersionCountMax, versions.count)])
        try append(.drop(DropRecord(key: key, stamp: try stamp(), versions: part)))
      }
    }

    /// Appends a record as part of the commit.
    ///
    /// - Returns: bytes that it adds to the pack; of a ref or drop, which shares a record with others, about.
    /// - Throws: `limitExceeded` when the commit would become too long for a pack.
    @discardableResult
    package mutating func append(
      _ content: PackRecord.Content,
      payload: RawSpan = RawSpan()
    ) throws(BlobStorageError) -> Int {
      guard let entry = content.entry else {
        if session.locked({ $0.has(content, in: attempt) }) { return 0 }
        let time = try packTime()
        let added = try session.append(content, payload: payload, to: &packs, time: time)
        // Nothing was added of what is pending.
        if added > 0 { try count(added, listed: added - payload.byteCount) }
        return added
      }
      let added: Int
      switch entry {
      case .ref(let ref):
        if let first, first.key != ref.key {
          lastVersions[ref.key] = ref.version
        } else {
          first = (ref.key, ref.version)
        }
        added = RefRecord.recordByteCount(
          keyByteCount: ref.key.count, metadataByteCount: ref.metadata.count)
      case .drop(let drop): added = drop.recordByteCount
      }
      try count(added, listed: added)
      deferred.append(entry)
      return added
    }

    /// Appends a frame as part of the commit. Returns bytes that it adds to the pack.
    fileprivate mutating func append(
      _ frame: FrameRecord, payload: RawSpan
    ) throws(BlobStorageError) -> Int {
      let time = try packTime()
      let added = try session.append(frame, payload: payload, to: &packs, time: time)
      try count(added, listed: added - payload.byteCount)
      return added
    }

    private mutating func count(_ added: Int, listed: Int) throws(BlobStorageError) {
      byteCount += added
      listedByteCount += listed
      guard byteCount <= Limits.commitByteCountMax, listedByteCount <= Limits.commitListedByteCountMax else {
        throw BlobStorageError(
          .limitExceeded,
          "A commit holds at most \(Limits.commitByteCountMax) bytes, \(Limits.commitListedByteCountMax) of them "
            + "keys, metadata and digests: divide it into several.")
      }
    }

    /// Appends what was held back and hands all packs to the system.
    mutating func finishAppending() throws(BlobStorageError) {
      if deferred.isEmpty {
        packs.writer?.endCommit()
      } else {
        let time = try packTime()
        // A pack that is begun for the refs holds nothing before.
        packs.commitOffset = packs.writer?.byteCount ?? Int64(PackHeader.byteCount)
        try session.append(commit: deferred, to: &packs, time: time)
      }
      try session.flush(&packs)
    }

    /// The last version of a key that this commit has made.
    func lastVersion(of key: [UInt8]) -> Stamp? {
      if let first, first.key == key { return first.version }
      return lastVersions.isEmpty ? nil : lastVersions[key]
    }

    /// Throws why, if records that were appended since there were `lossCount` losses may have been lost.
    package func checkNothingLost(since lossCount: Int) throws(BlobStorageError) {
      let (count, cause) = session.locked { ($0.lossCount, $0.lossCause) }
      guard count != lossCount else { return }
      throw cause ?? BlobStorageError(.io, "A pack could not be written.")
    }

    var trustsCondemnedPacks: Bool { session.weaknesses.contains(.trustsCondemnedPacks) }

    /// Whether a record of this commit may refer to one at `place` (H1).
    package func canRefer(to place: Place) throws(BlobStorageError) -> Bool {
      try session.canRefer(to: place, transaction)
    }

    /// Bytes that the pack under way can still take without asking for space.
    package var roomByteCount: Int64 {
      guard let writer = packs.writer else { return 0 }
      return max(0, writer.reservedByteCount - writer.byteCount)
    }

    /// Whether a chunk is pending, or was until after the view was taken.
    package func hasPendingChunk(_ digest: Digest) -> Bool {
      session.locked { $0.hasChunk(digest, in: attempt) }
    }
  }
}

/// Manifests as commits append them.
extension WriterSession.Commit {
  /// Appends the manifest of a blob of few chunks, unless it is there.
  package mutating func appendManifest(
    _ digest: Digest, _ entries: [ChunkEntry]
  ) throws(BlobStorageError) -> Int {
    if try isManifestThere(digest) { return 0 }
    return try append(digest, entries)
  }

  /// Appends the manifest of a blob of many chunks, unless it is there.
  package mutating func appendManifest(
    _ digest: Digest, _ lists: [ListEntry], _ byteCount: Int64, _ chunkCount: Int64
  ) throws(BlobStorageError) -> Int {
    if try isManifestThere(digest) { return 0 }
    return try append(digest, lists, byteCount, chunkCount)
  }

  /// Appends a manifest that names the chunks as the layout does. One that is there may name others, which are not: this
  /// one takes its place.
  ///
  /// - Parameter unlessThere: the one that is there is known to do.
  package mutating func appendManifest(
    of layout: BlobLayout, unlessThere: Bool
  ) throws(BlobStorageError) -> Int {
    // A blob of one chunk has no manifest, an empty one no list.
    guard layout.chunkCount > 1 else { return 0 }
    if unlessThere, try isManifestThere(layout.digest) { return 0 }
    switch layout.listed {
    case .chunks(let entries): return try append(layout.digest, entries)
    case .lists(let lists):
      return try append(layout.digest, lists, layout.byteCount, layout.chunkCount)
    }
  }

  private func isManifestThere(_ digest: Digest) throws(BlobStorageError) -> Bool {
    guard let row = try transaction.manifestToShare(digest) else { return false }
    return try canRefer(to: row.place)
  }

  private mutating func append(
    _ digest: Digest, _ entries: [ChunkEntry]
  ) throws(BlobStorageError) -> Int {
    var payload = ByteWriter(capacity: entries.count * ChunkEntry.byteCount)
    var byteCount: Int64 = 0
    for entry in entries {
      entry.encode(into: &payload)
      byteCount += Int64(entry.plainByteCount)
    }
    let record = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: Int64(entries.count), depth: 0,
      listedCount: entries.count)
    return try append(.manifest(record), payload: payload.bytes.span.bytes)
  }

  private mutating func append(
    _ digest: Digest, _ lists: [ListEntry], _ byteCount: Int64, _ chunkCount: Int64
  ) throws(BlobStorageError) -> Int {
    guard lists.count <= Limits.manifestListCountMax else {
      throw BlobStorageError(.limitExceeded, "The blob has more chunks than a manifest can name.")
    }
    var payload = ByteWriter(capacity: lists.count * ListEntry.byteCount)
    for list in lists { list.encode(into: &payload) }
    let record = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: chunkCount, depth: 1, listedCount: lists.count)
    return try append(.manifest(record), payload: payload.bytes.span.bytes)
  }
}

extension WriterSession {
  /// Applies appended records to the catalog.
  func apply(
    _ pending: [(header: PackHeader, record: PackRecord)], to transaction: WriteTransaction,
    isPromised: Bool = false
  ) throws(BlobStorageError) {
    var index = 0
    while index < pending.count {
      let header = pending[index].header
      var row = PackRow(name: header.name, created: header.created)
      let number: UInt32
      if let known = try transaction.pack(header.name) {
        number = known.number
        row = known.row
      } else {
        number = try transaction.addPack(row)
      }
      while index < pending.count, pending[index].header.name == header.name {
        // A rebuild by another process may have been here before.
        if pending[index].record.offset >= row.appliedByteCount {
          if pending[index].record.offset > row.appliedByteCount {
            // A rebuild by another process could not read what lies between.
            row.isDamaged = true
            row.appliedByteCount = pending[index].record.offset
          }
          try transaction.apply(pending[index].record, from: number, &row)
        }
        index += 1
      }
      if isPromised { row.promisedByteCount = row.appliedByteCount }
      try transaction.setPackRow(number, row)
    }
  }
}

// MARK: Appending plans

extension ChunkPlan {
  /// What appending a plan came to.
  struct Added {
    /// Plain bytes of the chunks that the store lacked.
    var newByteCount: Int64 = 0
    /// Bytes that were added to packs.
    var storedByteCount = 0
  }

  /// Appends what the store lacks: chunks, and the manifest that lists them.
  ///
  /// What the plan counts on is looked up again in the commit's view. So nothing that gc has removed meanwhile is
  /// counted on, and H2 needs no lease.
  ///
  /// - Parameters:
  ///   - bytes: the content that was planned.
  ///   - joined: bytes of chunks that this commit has stored together with others, and that count for the first plan
  ///     that has them.
  /// - Throws: `needsLookup` if a chunk that was not looked up could be shared once its pack is synced. Then nothing was
  ///   appended.
  func append(
    _ bytes: RawSpan, to commit: inout WriterSession.Commit, by codecs: CodecPool,
    joined: inout [Digest: Int]
  ) throws(BlobStorageError) -> Added {
    precondition(bytes.byteCount == byteCount, "the bytes are those that were planned")
    var added = Added()
    for chunk in chunks {
      if let storedByteCount = joined.removeValue(forKey: chunk.digest) {
        added.storedByteCount += storedByteCount
        added.newByteCount += Int64(chunk.range.count)
      }
      if commit.hasPendingChunk(chunk.digest) { continue }
      if try commit.canShare(chunk.digest, isLookedUp: isLookedUp) { continue }
      let plain = bytes.extracting(chunk.range)
      let encoded: EncodedChunk
      if let ready = chunk.encoded, try commit.canUseBase(of: ready.record) {
        encoded = ready
      } else {
        encoded = try codecs.encode(chunk.digest, plain, by: codec, hint: hint)
      }
      added.storedByteCount += try encoded.withPayload(plain) { (payload) throws(BlobStorageError) in
        try commit.append(.chunk(encoded.record), payload: payload)
      }
      added.newByteCount += Int64(plain.byteCount)
    }
    if chunks.count > 1 {
      added.storedByteCount += try commit.appendManifest(
        digest, chunks.map { ChunkEntry(digest: $0.digest, plainByteCount: $0.range.count) })
    }
    return added
  }
}

extension WriterSession.Commit {
  /// Whether this commit may refer to the chunk: found, trusted, and on the medium or before it in its own pack.
  fileprivate func canShare(_ digest: Digest, isLookedUp: Bool) throws(BlobStorageError) -> Bool {
    if trustsCondemnedPacks { return try transaction.chunkRow(digest) != nil }
    guard let row = try transaction.chunkToShare(digest) else { return false }
    if try canRefer(to: row.place) {
      guard let base = row.base, let baseRow = try transaction.chunkRow(base) else { return true }
      if try canRefer(to: baseRow.place) { return true }
    }
    guard isLookedUp else {
      throw BlobStorageError(.needsLookup, "The pack of a chunk has to be synced first.")
    }
    return false
  }

  /// Appends small chunks together, those that are not there yet.
  ///
  /// - Returns: the bytes that each takes.
  mutating func append(
    _ group: JoinedChunks, by choice: CodecChoice, _ codecs: CodecPool
  ) throws(BlobStorageError) -> [Digest: Int] {
    var there: Set<Digest> = []
    for digest in group.members.lazy.map(\.digest) {
      if hasPendingChunk(digest) {
        there.insert(digest)
      } else if try canShare(digest, isLookedUp: true) {
        there.insert(digest)
      }
    }
    var added: [Digest: Int] = [:]
    for part in try group.parts(by: choice, codecs, except: { there.contains($0) }) {
      switch part {
      case .frame(let frame, let stored):
        _ = try append(frame, payload: stored.span.bytes)
        let members = frame.records(at: 0, payloadByteCount: stored.count)
        for (member, record) in zip(frame.members, members) { added[member.digest] = record.byteCount }
      case .chunk(let chunk, let stored):
        added[chunk.digest] = try append(.chunk(chunk), payload: stored.span.bytes)
      }
    }
    return added
  }

  /// Checks that chunks are there which leases should have kept.
  ///
  /// - Parameter remedy: what the caller can do about a chunk that is gone.
  package func check(_ digests: some Sequence<Digest>, remedy: String) throws(BlobStorageError) {
    for digest in digests where !hasPendingChunk(digest) {
      guard try transaction.chunkRow(digest) == nil else { continue }
      throw BlobStorageError(
        .busy, "Chunk \(digest) was removed while it was being shared: \(remedy).", digest: digest)
    }
  }

  /// Whether the base of an encoded chunk, if it has one, can still be counted on.
  fileprivate func canUseBase(of record: ChunkRecord) throws(BlobStorageError) -> Bool {
    guard let base = record.base else { return true }
    guard try transaction.chunkRow(record.digest) == nil, try !transaction.isBase(record.digest),
      let row = try transaction.baseToShare(base)
    else { return false }
    return try canRefer(to: row.place)
  }
}

extension BlobStorageError.Code {
  /// A plan that looked nothing up does not do. Never leaves the library.
  static let needsLookup = Self("needsLookup")
}

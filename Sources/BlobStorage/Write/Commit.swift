/// One commit in progress: its view of the catalog, and its access to the pack.
///
/// It collects refs and drops and appends them at the end, as one commit record or several that count only together.
/// So a crash leaves all of them or none.
///
/// It has the open packs while the append lock is held. It cannot be copied and ends with the lock.
package struct Commit: ~Copyable {
  package let transaction: ReadTransaction
  let session: WriterSession
  /// The number of this attempt in ``PendingRecords``.
  private let attempt: UInt64
  var packs = OpenPacks()
  /// Whether the caller's operation syncs before it returns.
  var isPromised = false
  private var deferred: [CommitRecord.Entry] = []
  /// The last version that this commit has given to each key.
  private var lastVersions: [[UInt8]: Stamp] = [:]
  private var byteCount = 0
  private var listedByteCount = 0
  /// Holds on keys; nil until they are needed.
  private var holds: [KeyHold]?
  /// Whether packs are condemned; nil until that is needed.
  private var isCollecting: Bool?

  init(transaction: ReadTransaction, session: WriterSession, attempt: UInt64) {
    self.transaction = transaction
    self.session = session
    self.attempt = attempt
  }

  /// Returns the next stamp of the clock. It is later than every stamp of the store that is not far ahead of the
  /// present, and later than `other` in any case.
  package mutating func stamp(after other: Stamp = .none) throws(BlobStorageError) -> Stamp {
    let last =
      session.weaknesses.contains(.clockFollowsWall) ? 0 : max(try transaction.clock(), packs.lastTime)
    var time = Stamp.timeAfter(last, wallClock: session.clock.now())
    // The clock may have reached stamps that were issued ahead of it.
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

  /// Returns a stamp later than `other`, which the clock does not follow. Leaves the clock as it is.
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

  /// Milliseconds since 1970 by the wall clock.
  package var wallTime: UInt64 { session.clock.now() }

  /// Drops versions of a key, in as many records as necessary.
  package mutating func drop(_ versions: [Stamp], of key: [UInt8]) throws(BlobStorageError) {
    for part in versions.parts(of: BlobLimits.dropVersionCountMax) {
      try append(.drop(DropRecord(key: key, stamp: try stamp(), versions: Array(part))))
    }
  }

  /// Appends a record as part of the commit.
  ///
  /// - Returns: bytes that it adds to the pack; for a ref or drop an estimate, because it shares a record with
  ///   others.
  /// - Throws: `limitExceeded` if the commit would become too long for a pack.
  @discardableResult
  package mutating func append(
    _ content: PackRecord.Content,
    payload: RawSpan = RawSpan()
  ) throws(BlobStorageError) -> Int {
    guard let entry = content.entry else {
      if session.locked({ $0.pending.has(content, in: attempt) }) { return 0 }
      let added = try session.append(content, payload: payload, to: &packs)
      // A pending record adds nothing.
      if added > 0 { try count(added, listed: added - payload.byteCount) }
      return added
    }
    let added: Int
    var listed = 0
    switch entry {
    case .ref(let ref):
      lastVersions[ref.key] = ref.version
      added = RefRecord.recordByteCount(
        keyByteCount: ref.key.count, metadataByteCount: ref.metadata.count)
      // It may name its blob by digest, with the digest's length: one that was there, or beyond a limit of a commit.
      listed = BlobDigest.byteCount + 1
    case .drop(let drop): added = drop.recordByteCount
    }
    try count(added, listed: added + listed)
    deferred.append(entry)
    return added
  }

  /// Appends a frame as part of the commit. Returns the bytes that it adds to the pack.
  mutating func append(
    _ frame: FrameRecord, payload: RawSpan
  ) throws(BlobStorageError) -> Int {
    let added = try session.append(frame, payload: payload, to: &packs)
    try count(added, listed: added - payload.byteCount)
    return added
  }

  private mutating func count(_ added: Int, listed: Int) throws(BlobStorageError) {
    byteCount += added
    listedByteCount += listed
    guard byteCount <= BlobLimits.commitByteCountMax, listedByteCount <= BlobLimits.commitListedByteCountMax
    else {
      throw BlobStorageError(
        .limitExceeded,
        "A commit holds at most \(BlobLimits.commitByteCountMax) bytes, \(BlobLimits.commitListedByteCountMax) of them "
          + "keys, metadata and digests: divide it into several.")
    }
  }

  /// Appends the collected refs and drops, and flushes all packs to the system.
  mutating func finishAppending() throws(BlobStorageError) {
    if deferred.isEmpty {
      packs.writer?.endCommit()
    } else {
      packs.commitOffset = packs.writer?.byteCount
      try session.append(commit: deferred, to: &packs)
    }
    try session.flush(&packs)
  }

  /// Throws the cause if the session has lost records since its loss count was `lossCount`.
  package func checkNothingLost(since lossCount: Int) throws(BlobStorageError) {
    let (count, cause) = session.locked { ($0.lossCount, $0.lossCause) }
    guard count != lossCount else { return }
    throw cause ?? BlobStorageError(.io, "A pack could not be written.")
  }

  /// Whether a record of this commit may refer to one at `place` (H1).
  package func canRefer(to place: Place) throws(BlobStorageError) -> Bool {
    try session.canRefer(to: place, transaction)
  }

  /// Whether the record at `place` is stored for good once the records of the session are (H1).
  package func stays(at place: Place, isChecked: Bool = true) throws(BlobStorageError) -> Bool {
    try session.stays(at: place, transaction, isChecked: isChecked)
  }

  /// Bytes that fit into the space reserved for the current pack.
  package var roomByteCount: Int64 {
    guard let writer = packs.writer else { return 0 }
    return max(0, writer.reservedByteCount - writer.byteCount)
  }

  /// Whether a chunk without a base is pending, or was until after the view was taken.
  package func hasPendingChunk(_ digest: BlobDigest) -> Bool {
    session.locked { $0.pending.hasChunk(digest, in: attempt) }
  }
}

/// Refs and drops of a commit.
extension Commit {
  /// Appends the ref that makes a blob the current version of a key.
  ///
  /// - Parameter created: when the bytes were put; nil for now.
  /// - Throws: `conditionFailed` when the options' condition does not hold.
  mutating func appendRef(
    _ key: [UInt8], _ digest: BlobDigest, _ byteCount: Int64, _ options: RefOptions, created: UInt64? = nil
  ) throws(BlobStorageError) -> (BlobVersion, Int) {
    try transaction.check(options.condition, on: key)
    // The two newest versions of the key: the new one must be newer than those that stay.
    var (newest, second) = (Stamp.none, Stamp.none)
    if let name = try transaction.nameRow(key) {
      try transaction.forEachVersion(of: name) { version in
        if newest == .none {
          newest = version.stamp
          return true
        }
        second = version.stamp
        return false
      }
    }
    var isReplacing = options.replacement == .replaceCurrent
    if isReplacing, newest != .none {
      isReplacing = options.keepsReplaced ? try keepReplaced(newest, of: key) : try !isHeld(key)
    }
    // Of several puts of one key in one commit, each replaces the one before.
    if let earlier = lastVersions[key] { (newest, second) = (earlier, newest) }
    let stamp = try stamp(after: isReplacing ? second : newest)
    let ref = RefRecord(
      key: key, version: stamp, replaced: isReplacing ? newest : .none, digest: digest, byteCount: byteCount,
      created: created ?? wallTime, metadata: options.metadata)
    let added = try append(.ref(ref))
    if options.heldPut != nil { try drop([stamp], of: key) }
    let row = VersionRow(
      place: Place(pack: 0, offset: 0, ordinal: 0), record: ref, recordByteCount: added)
    return (BlobVersion(key: String(decoding: key, as: UTF8.self), stamp: stamp, row: row), added)
  }

  /// The hold that protects the key's versions; nil if there is none. A commit that changes a hold takes all stripes,
  /// so none comes between the view and the end of this commit.
  package mutating func hold(on key: [UInt8]) throws(BlobStorageError) -> KeyHold? {
    let known: [KeyHold]
    if let holds { known = holds } else { known = try transaction.keyHolds() }
    holds = known
    return try transaction.hold(on: key, among: known)
  }

  /// Whether a hold protects the key. A replaced version is then archived.
  private mutating func isHeld(_ key: [UInt8]) throws(BlobStorageError) -> Bool {
    if InternalKey.isInternal(key) { return false }
    return try hold(on: key) != nil
  }

  /// - Throws: `held` if a hold protects the key.
  mutating func checkHold(on key: [UInt8]) throws(BlobStorageError) {
    if let hold = try hold(on: key) { throw hold.refusal(of: key) }
  }

  /// Adds an internal key for a version that is about to be replaced. gc reads internal keys after all others, so it
  /// sees the version under one of the two keys.
  ///
  /// - Returns: false if the key is too long, or if a power cut or a collector may destroy the version. The caller then
  ///   archives it.
  mutating func keepReplaced(_ stamp: Stamp, of key: [UInt8]) throws(BlobStorageError) -> Bool {
    guard let name = try transaction.nameRow(key), let row = try transaction.versionRow(of: name, stamp),
      !row.digest.isUnknown
    else { return true }
    let internalKey = InternalKey.Purpose.replaced.key(key)
    guard internalKey.count <= BlobLimits.maximumKeyByteCount else { return false }
    guard try stays(replaced: row.place), try isSpared(row) else { return false }
    try append(
      .ref(
        RefRecord(
          key: internalKey, version: stamp, replaced: .none, digest: row.digest, byteCount: row.byteCount,
          created: row.created, metadata: row.metadata)))
    return true
  }

  /// Throws `needsSync` if the current version of one of the keys could be replaced only by archiving it, until its
  /// pack is synced.
  func checkKept(_ keys: [[UInt8]]) throws(BlobStorageError) {
    for key in keys {
      guard let row = try transaction.nameRow(key)?.current?.row, try !stays(replaced: row.place) else {
        continue
      }
      throw BlobStorageError(.needsSync, "The pack of a version has to be synced first.")
    }
  }

  /// Whether a version that was replaced may be kept at its place: a power cut spares it if it spares this commit.
  private func stays(replaced place: Place) throws(BlobStorageError) -> Bool {
    if try canRefer(to: place) { return true }
    // Whether an object is still there is asked for at the end. What a collector is about to remove does not stay (H2).
    guard !session.backend.isDurableOnceSynced, let pack = try transaction.packRow(place.pack),
      session.backend.isCountedOn(pack.name)
    else { return false }
    return try stays(at: place, isChecked: false)
  }

  /// Whether no collector of a bucket is about to remove what a version needs. Another machine may have dropped the
  /// version, and the collector does not see a new ref before it is published (H2).
  private mutating func isSpared(_ row: VersionRow) throws(BlobStorageError) -> Bool {
    let backend = session.backend
    if backend.isDurableOnceSynced || row.byteCount == 0 { return true }
    let isCollecting =
      if let known = self.isCollecting {
        known
      } else {
        try FoundBlobs.isCollecting(transaction, backend, countsLost: false)
      }
    self.isCollecting = isCollecting
    if !isCollecting { return true }
    // A manifest is not read inside a commit.
    guard try transaction.chunkRow(row.digest) != nil else { return false }
    return try FoundBlobs.stays(row.digest, [row.digest], hasManifest: false, transaction, backend)
  }

  /// Drops all versions of a key but the youngest `count`. If `count` is 0, also drops those that imports replaced.
  ///
  /// Versions that another process has not published, and never may, are neither counted nor dropped, unless none is
  /// kept. In a folder, versions that a power cut may take are not counted.
  ///
  /// - Parameter needsSync: whether to throw `needsSync` for such a version in a folder.
  /// - Returns: how many; nil when the key has none.
  mutating func dropVersions(
    of key: [UInt8], keeping count: Int, needsSync: Bool = false
  ) throws(BlobStorageError) -> Int? {
    guard let name = try transaction.nameRow(key), name.versionCount > 0 else { return nil }
    guard name.versionCount > count else { return 0 }
    if count == 0 {
      let internalKey = InternalKey.Purpose.replaced.key(key)
      if let kept = try transaction.nameRow(internalKey), kept.versionCount > 0 {
        try drop(try transaction.versions(of: kept).map(\.stamp), of: internalKey)
      }
    }
    var dropped: [Stamp] = []
    var keptCount = 0
    let isInFolder = session.backend.isDurableOnceSynced
    for version in try transaction.versions(of: name) {
      if count > 0, keptCount < count || !isInFolder, try !willStay(version.row.place) {
        if needsSync, try !KeptVersions(session).isUncertain(version.row.place, transaction) {
          throw BlobStorageError(.needsSync, "The pack of a version has to be synced first.")
        }
        continue
      }
      if keptCount < count { keptCount += 1 } else { dropped.append(version.stamp) }
    }
    try drop(dropped, of: key)
    return dropped.count
  }

  /// Whether a version is published, or will be before what this commit writes. In a folder, whether it is on the
  /// medium if this commit is.
  private func willStay(_ place: Place) throws(BlobStorageError) -> Bool {
    // Without a row, the pack was removed, and another has a copy.
    guard session.backend.isDurableOnceSynced, try transaction.packRow(place.pack) != nil else {
      return try !KeptVersions(session).isUncertain(place, transaction)
    }
    return try canRefer(to: place)
  }
}

/// Chunks and manifests of a commit: what it can share, and what it appends.
extension Commit {
  /// Appends what the store lacks of a planned blob: chunks, and the manifest that lists them.
  ///
  /// The commit looks up again in its own view what the plan found. So it relies on nothing that gc has removed
  /// meanwhile, and H2 needs no lease.
  ///
  /// - Parameters:
  ///   - bytes: the content that was planned.
  ///   - joined: stored bytes of chunks that this commit has already appended in groups. They count for the first plan
  ///     that has the chunk.
  /// - Throws: `needsLookup` if a chunk that was not looked up could be shared once its pack is synced. Nothing was
  ///   appended then.
  mutating func append(
    _ plan: ChunkPlan, _ bytes: RawSpan, by codecs: CodecPool, joined: inout [BlobDigest: Int]
  ) throws(BlobStorageError) -> ChunkPlan.Added {
    precondition(bytes.byteCount == plan.byteCount, "the bytes are those that were planned")
    var added = ChunkPlan.Added()
    for chunk in plan.chunks {
      if let storedByteCount = joined.removeValue(forKey: chunk.digest) {
        added.storedByteCount += storedByteCount
        added.newByteCount += Int64(chunk.range.count)
      }
      if hasPendingChunk(chunk.digest) { continue }
      if try canShare(chunk.digest, isLookedUp: plan.isLookedUp) { continue }
      let plain = bytes.extracting(chunk.range)
      let encoded: EncodedChunk
      if let ready = chunk.encoded, try canUseBase(of: ready.record) {
        encoded = ready
      } else {
        encoded = try codecs.encode(chunk.digest, plain, by: plan.codec, hint: plan.hint)
      }
      let byteCount = try encoded.withPayload(plain) { (payload) throws(BlobStorageError) in
        try append(.chunk(encoded.record), payload: payload)
      }
      // A chunk with the same base is pending.
      guard byteCount > 0 else { continue }
      added.storedByteCount += byteCount
      added.newByteCount += Int64(plain.byteCount)
    }
    if plan.chunks.count > 1 {
      let entries = plan.chunks.map { ChunkEntry(digest: $0.digest, plainByteCount: $0.range.count) }
      added.storedByteCount += try appendManifest(of: BlobLayout(digest: plan.digest, chunks: entries)) {
        $0 == plan.manifestPlace
      }
    }
    return added
  }

  /// Appends the manifest that names the chunks as the layout does.
  ///
  /// The store may have another manifest of the blob, after a copy from a store with chunks of other lengths for
  /// example. Its chunks may be gone, so the new one takes its place.
  ///
  /// - Parameter isSame: whether the manifest at a place is known to name the same chunks, and can be shared.
  package mutating func appendManifest(
    of layout: BlobLayout, unless isSame: (Place) -> Bool
  ) throws(BlobStorageError) -> Int {
    // A blob of one chunk and the empty blob have no manifest.
    guard layout.chunkCount > 1 else { return 0 }
    if let row = try transaction.manifestToShare(layout.digest), isSame(row.place),
      try canRefer(to: row.place)
    {
      return 0
    }
    let (record, payload) = try layout.manifest()
    return try append(.manifest(record), payload: payload.span.bytes)
  }

  /// Whether this commit may refer to the chunk: it is found, trusted, and on the medium or earlier in the commit's own
  /// pack. So is its base, if it has one.
  ///
  /// - Throws: `needsLookup` if the chunk could be shared once its pack is synced, and was not looked up.
  func canShare(_ digest: BlobDigest, isLookedUp: Bool) throws(BlobStorageError) -> Bool {
    if session.weaknesses.contains(.trustsCondemnedPacks) { return try transaction.chunkRow(digest) != nil }
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

  /// Appends those of the small chunks that the store lacks, in one frame if that takes fewer bytes.
  ///
  /// - Returns: the stored bytes of each appended chunk.
  mutating func append(
    _ group: JoinedChunks, by choice: CodecChoice, _ codecs: CodecPool
  ) throws(BlobStorageError) -> [BlobDigest: Int] {
    var there: Set<BlobDigest> = []
    for digest in group.members.lazy.map(\.digest) {
      if hasPendingChunk(digest) {
        there.insert(digest)
      } else if try canShare(digest, isLookedUp: true) {
        there.insert(digest)
      }
    }
    var added: [BlobDigest: Int] = [:]
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

  /// Checks that the store still has chunks that leases protect.
  ///
  /// - Parameter remedy: what the caller can do about a chunk that is gone.
  /// - Throws: `busy` if one is gone.
  package func check(_ digests: some Sequence<BlobDigest>, remedy: String) throws(BlobStorageError) {
    for digest in digests where !session.locked({ $0.pending.hasOwnChunk(digest, in: attempt) }) {
      guard try transaction.chunkRow(digest) == nil else { continue }
      throw BlobStorageError(
        .busy, "Chunk \(digest) was removed while it was being shared: \(remedy).", digest: digest)
    }
  }

  /// Whether the commit may rely on the base of an encoded chunk, if it has one.
  func canUseBase(of record: ChunkRecord) throws(BlobStorageError) -> Bool {
    guard let base = record.base else { return true }
    guard try transaction.chunkRow(record.digest) == nil, try !transaction.isBase(record.digest),
      let row = try transaction.baseToShare(base)
    else { return false }
    return try canRefer(to: row.place)
  }
}

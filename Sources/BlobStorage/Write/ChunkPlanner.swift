/// Plans what a put stores: cuts bytes into chunks, names the chunks, looks them up, finds bases for new ones, and
/// encodes them.
///
/// Holds no lock; several threads may use it. A chunk that it found may be gone before a record refers to it. So the
/// commit looks content in memory up again (``Commit/append(_:_:by:joined:)``), and leases protect the
/// chunks of streams.
package final class ChunkPlanner: Sendable {
  /// How found chunks are protected so that records may refer to them.
  package enum Assurance: Sendable {
    /// Not at all: the plan is for counting.
    case none
    /// The planner makes their packs durable. A commit looks everything up again.
    case commit
    /// The planner makes their packs durable and leases them. Pending chunks count as found.
    case leases
  }

  /// What is known about the bytes to plan.
  private struct Job {
    var hint: CompressibilityHint
    var assurance: Assurance
    /// The key whose current version to try, if that is not known yet.
    var key: [UInt8]?
    var version: PreviousVersion?
    /// Where the bytes begin in their blob.
    var start: Int64 = 0
    /// Whether the bytes are a whole blob of one chunk.
    var isOnly = false
  }

  /// A chunk that is being planned.
  private struct Draft {
    enum Standing { case shared, pending, missing }

    let digest: BlobDigest
    let range: Range<Int>
    var standing = Standing.missing
    /// The store does not know the chunk at all, so it may have a base.
    var isUnknown = false
    var features: SIMD3<UInt32>?
    var previous: PreviousVersion.Candidate?
    var bases: [BaseSearch.Base] = []
  }

  private typealias Drafts = OneOrMore<Draft>

  let catalog: Catalog
  let writer: WriterSession
  let leases: LeaseFile
  let blobs: BlobSource
  let sizes: ChunkSizes
  let algorithm: BlobDigest.Algorithm
  private let search: BaseSearch

  /// - Parameter search: also has the codec of new chunks.
  init(
    catalog: Catalog, writer: WriterSession, leases: LeaseFile, blobs: BlobSource, sizes: ChunkSizes,
    algorithm: BlobDigest.Algorithm, search: BaseSearch
  ) {
    self.catalog = catalog
    self.writer = writer
    self.leases = leases
    self.blobs = blobs
    self.sizes = sizes
    self.algorithm = algorithm
    self.search = search
  }

  /// The codec of new chunks.
  var codec: CodecChoice { search.codec }

  /// The same planner for another codec.
  func with(_ codec: CodecChoice) -> ChunkPlanner {
    ChunkPlanner(
      catalog: catalog, writer: writer, leases: leases, blobs: blobs, sizes: sizes, algorithm: algorithm,
      search: search.with(codec))
  }

  /// Plans a blob that is in memory as a whole.
  ///
  /// - Parameters:
  ///   - key: the blob's key. The key's current version may be similar.
  ///   - looksUp: whether to look chunks up in any case. If false, a small blob that is compressed already takes no
  ///     view, and appending the plan may throw `needsLookup`.
  ///   - joins: whether to leave new chunks without a base unencoded, to be joined with others.
  /// - Complexity: one view of the catalog for a blob of one chunk, unless the current version has several.
  package func plan(
    _ bytes: RawSpan, key: [UInt8], looksUp: Bool = true, joins: Bool = false
  ) throws(BlobStorageError) -> ChunkPlan {
    let digest = BlobDigest.of(bytes, by: algorithm)
    let hint = CompressibilityHint(beginning: bytes)
    if !looksUp, bytes.byteCount <= sizes.minimum, search.storesAsIs(bytes, hint: hint) {
      let record = ChunkRecord(
        digest: digest, plainByteCount: bytes.byteCount, codecNumber: CodecKind.none.rawValue)
      let chunk = ChunkPlan.Chunk(
        digest: digest, range: 0..<bytes.byteCount, encoded: EncodedChunk(record: record))
      return ChunkPlan(
        digest: digest, byteCount: bytes.byteCount, chunks: OneOrMore(chunk), hint: hint, codec: search.codec,
        isLookedUp: false)
    }
    let ranges = ranges(bytes)
    var drafts = try ranges.mapped { (range) throws(BlobStorageError) in
      Draft(digest: ranges.count == 1 ? digest : self.digest(bytes, range), range: range)
    }
    _ = try find(
      &drafts, in: bytes,
      Job(hint: hint, assurance: .commit, key: key, isOnly: drafts.count == 1))
    var guesses = BaseSearch.Guesses()
    let chunks = try drafts.mapped { (draft) throws(BlobStorageError) in
      return try encode(draft, bytes, hint, &guesses, joins: joins)
    }
    var plan = ChunkPlan(
      digest: digest, byteCount: bytes.byteCount, chunks: chunks, hint: hint, codec: search.codec,
      isLookedUp: true)
    // With a chunk that is missing, so is the manifest, or it is of no use.
    if drafts.count > 1, !drafts.contains(where: { $0.standing == .missing }) {
      let entries = drafts.map { ChunkEntry(digest: $0.digest, plainByteCount: $0.range.count) }
      plan.manifestPlace = try blobs.place(of: BlobLayout(digest: digest, chunks: entries))
    }
    return plan
  }

  /// Plans a part of a blob. Calls `body` with one chunk after another, so that only one is held encoded.
  ///
  /// - Parameters:
  ///   - previous: the current version of the blob's key.
  ///   - joins: whether to leave new chunks without a base unencoded, to be joined with others.
  /// - Returns: with ``Assurance/leases``, a lease of all chunks and the bases.
  package func plan(
    _ batch: Cutter.Batch, previous: PreviousVersion?, _ assurance: Assurance, joins: Bool = false,
    _ body: (ChunkPlan.Chunk, _ plain: RawSpan) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> LeaseFile.Hold? {
    guard let ranges = OneOrMore(contentsOf: batch.chunks) else { return nil }
    let bytes = batch.bytes.span.bytes
    var drafts = try ranges.mapped { (range) throws(BlobStorageError) in
      Draft(digest: digest(bytes, range), range: range)
    }
    let job = Job(
      hint: batch.hint, assurance: assurance, version: previous, start: batch.start,
      isOnly: batch.isWhole && drafts.count == 1)
    let hold = try find(&drafts, in: bytes, job)
    do throws(BlobStorageError) {
      var guesses = BaseSearch.Guesses()
      for draft in drafts {
        let chunk = try encode(draft, bytes, batch.hint, &guesses, joins: joins)
        try body(chunk, bytes.extracting(draft.range))
      }
    } catch {
      if let hold { leases.release(hold) }
      throw error
    }
    return hold
  }

  /// Returns the chunks that the store lacks, and a lease of all.
  package func share(
    _ digests: [BlobDigest]
  ) throws(BlobStorageError) -> (missing: [BlobDigest], hold: LeaseFile.Hold?) {
    guard let digests = OneOrMore(contentsOf: digests) else { return ([], nil) }
    var drafts = try digests.mapped { (digest) throws(BlobStorageError) in
      Draft(digest: digest, range: 0..<0)
    }
    // Nothing is encoded, so no bases are needed.
    let job = Job(hint: .alreadyCompressed, assurance: .leases)
    let hold = try find(&drafts, in: RawSpan(), job)
    return (drafts.filter { $0.standing == .missing }.map(\.digest), hold)
  }

  /// The key's current version as a source of bases; nil if there is none, it cannot be read, or no bases are tried.
  package func previousVersion(of key: [UInt8]) throws(BlobStorageError) -> PreviousVersion? {
    guard search.triesBases(.unknown) else { return nil }
    let digest = try catalog.read { (view) throws(BlobStorageError) in try currentDigest(of: key, view) }
    return try digest.flatMap { (digest) throws(BlobStorageError) in try PreviousVersion(blobs, digest) }
  }

  /// Encodes a chunk without a base.
  package func encodeAlone(
    _ digest: BlobDigest, _ plain: RawSpan
  ) throws(BlobStorageError) -> EncodedChunk {
    try search.alone(digest, plain, hint: .unknown, features: search.features(plain, hint: .unknown))
  }

  /// Whether a record may refer to the chunk and to its base (H1).
  package func canRefer(to row: ChunkRow, _ view: ReadTransaction) throws(BlobStorageError) -> Bool {
    guard try writer.canRefer(to: row.place, view) else { return false }
    guard let base = row.base, let baseRow = try view.chunkRow(base) else { return true }
    return try writer.canRefer(to: baseRow.place, view)
  }
}

// MARK: Cutting and encoding

extension ChunkPlanner {
  private func ranges(_ bytes: RawSpan) -> OneOrMore<Range<Int>> {
    let whole = OneOrMore(0..<bytes.byteCount)
    // A chunk has at least the minimum length, unless it is the last. The empty blob is one chunk of no bytes.
    if bytes.byteCount <= sizes.minimum { return whole }
    var chunker = BlobChunker(sizes: sizes)
    return OneOrMore(contentsOf: bytes.withUnsafeBytes { chunker.chunks(in: $0, isAtEnd: true) }) ?? whole
  }

  private func digest(_ bytes: RawSpan, _ range: Range<Int>) -> BlobDigest {
    BlobDigest.of(bytes.extracting(range), by: algorithm)
  }

  private func features(
    _ draft: Draft, _ bytes: RawSpan, _ hint: CompressibilityHint
  ) -> SIMD3<UInt32>? {
    search.features(bytes.extracting(draft.range), hint: hint)
  }

  private func encode(
    _ draft: Draft, _ bytes: RawSpan, _ hint: CompressibilityHint,
    _ guesses: inout BaseSearch.Guesses, joins: Bool
  ) throws(BlobStorageError) -> ChunkPlan.Chunk {
    guard draft.standing == .missing else {
      return ChunkPlan.Chunk(digest: draft.digest, range: draft.range, encoded: nil)
    }
    let plain = bytes.extracting(draft.range)
    let features = draft.features ?? features(draft, bytes, hint)
    if joins, draft.bases.isEmpty, search.joins(plain, hint: hint) {
      return ChunkPlan.Chunk(
        digest: draft.digest, range: draft.range, encoded: nil, isToBeJoined: true, features: features)
    }
    let encoded = try search.encode(
      draft.digest, plain, hint: hint, features: features, draft.bases, &guesses)
    return ChunkPlan.Chunk(digest: draft.digest, range: draft.range, encoded: encoded)
  }
}

// MARK: Finding

extension ChunkPlanner {
  /// Looks the chunks up, and finds bases for those that the store lacks.
  private func find(
    _ drafts: inout Drafts, in bytes: RawSpan, _ job: Job
  ) throws(BlobStorageError) -> LeaseFile.Hold? {
    var unsynced: Set<PackName> = []
    var current: BlobDigest?
    let isDone = try catalog.read { (view) throws(BlobStorageError) -> Bool in
      for index in drafts.indices { try lookUp(&drafts[index], job, view, &unsynced) }
      guard search.triesBases(job.hint), drafts.contains(where: { $0.isUnknown }) else { return true }
      if let key = job.key { current = try currentDigest(of: key, view) }
      // Computing the features of many chunks would keep the view open for long.
      guard drafts.count == 1, job.version == nil else { return false }
      if let current {
        // A version of several chunks has a manifest, which is not read inside a view.
        guard let row = try view.chunkRow(current), !row.isSuspect else { return false }
        drafts.head.previous =
          row.plainByteCount > 0
          ? PreviousVersion.Candidate(digest: current, isAligned: true, isOnly: true) : nil
      }
      try findBases(&drafts, in: bytes, job, view, &unsynced)
      return true
    }
    if !isDone {
      var version = job.version
      if version == nil, let current { version = try PreviousVersion(blobs, current) }
      if let version {
        let entries = drafts.map { ChunkEntry(digest: $0.digest, plainByteCount: $0.range.count) }
        let candidates = try version.candidates(
          for: entries, at: job.start, isWhole: job.isOnly, from: blobs.chunks)
        for index in drafts.indices { drafts[index].previous = candidates[index] }
      }
      for index in drafts.indices where drafts[index].isUnknown {
        drafts[index].features = features(drafts[index], bytes, job.hint)
      }
      try catalog.read { (view) throws(BlobStorageError) in
        // Another process may have stored some chunks meanwhile. A chunk must not become its own base.
        for index in drafts.indices where drafts[index].isUnknown {
          try lookUp(&drafts[index], job, view, &unsynced)
        }
        try findBases(&drafts, in: bytes, job, view, &unsynced)
      }
    }
    if job.assurance == .none { return nil }
    _ = try writer.publisher.secure(unsynced, of: writer)
    return job.assurance == .leases ? try hold(&drafts) : nil
  }

  private func lookUp(
    _ draft: inout Draft, _ job: Job, _ view: ReadTransaction, _ unsynced: inout Set<PackName>
  ) throws(BlobStorageError) {
    draft.isUnknown = try view.chunkRow(draft.digest) == nil
    if !draft.isUnknown, let row = try view.chunkToShare(draft.digest),
      try canShare(row, view, &unsynced)
    {
      draft.standing = .shared
    } else if job.assurance == .leases, writer.hasPendingChunk(draft.digest) {
      (draft.standing, draft.isUnknown) = (.pending, false)
    } else {
      draft.standing = .missing
    }
  }

  private func findBases(
    _ drafts: inout Drafts, in bytes: RawSpan, _ job: Job, _ view: ReadTransaction,
    _ unsynced: inout Set<PackName>
  ) throws(BlobStorageError) {
    for index in drafts.indices where drafts[index].isUnknown {
      let draft = drafts[index]
      let features = draft.features ?? features(draft, bytes, job.hint)
      let found = try search.bases(for: draft.digest, features, previous: draft.previous, view)
      var bases: [BaseSearch.Base] = []
      for base in found where try canShare(base.row, view, &unsynced) { bases.append(base) }
      (drafts[index].features, drafts[index].bases) = (features, bases)
    }
  }

  /// Whether a record may refer to the chunk once the packs added to `unsynced` are durable.
  private func canShare(
    _ row: ChunkRow, _ view: ReadTransaction, _ unsynced: inout Set<PackName>
  ) throws(BlobStorageError) -> Bool {
    if try canRefer(to: row, view) { return true }
    var places = [row.place]
    if let base = row.base, let baseRow = try view.chunkRow(base) { places.append(baseRow.place) }
    for place in places where !(try writer.canRefer(to: place, view)) {
      // The planner does not wait for what other processes have not published.
      guard try writer.stays(at: place, view) else { return false }
      if let pack = try view.packRow(place.pack) { unsynced.insert(pack.name) }
    }
    return true
  }

  /// Leases all chunks and the bases that were found, and then looks the found ones up again. Chunks that are gone by
  /// then count as missing.
  ///
  /// Chunks that this put appends have leases, too: another process may append the same at the same time, and views
  /// find the copy in the younger pack. Without a lease, gc could remove that pack, and the row of the chunk with it.
  private func hold(_ drafts: inout Drafts) throws(BlobStorageError) -> LeaseFile.Hold? {
    var held: [LeaseSlot] = []
    for draft in drafts {
      held.append(.chunk(draft.digest))
      held += draft.bases.map { LeaseSlot.chunk($0.digest) }
    }
    guard !held.isEmpty else { return nil }
    let hold = try leases.hold(held)
    do throws(BlobStorageError) {
      try catalog.read { (view) throws(BlobStorageError) in
        for index in drafts.indices {
          if drafts[index].standing == .shared {
            let row = try view.chunkToShare(drafts[index].digest)
            if let row, try canRefer(to: row, view) { continue }
            drafts[index].standing = .missing
          }
          var bases: [BaseSearch.Base] = []
          for base in drafts[index].bases {
            if let row = try view.baseToShare(base.digest), try canRefer(to: row, view) { bases.append(base) }
          }
          drafts[index].bases = bases
        }
      }
    } catch {
      leases.release(hold)
      throw error
    }
    return hold
  }

  private func currentDigest(of key: [UInt8], _ view: ReadTransaction) throws(BlobStorageError) -> BlobDigest?
  {
    try view.currentVersion(ofKey: key)?.row.digest
  }
}

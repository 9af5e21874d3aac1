/// Finds for a new chunk what to encode it against, and decides whether that is worth it.
///
/// One hop only: a base is stored without a base, so that a read touches at most two chunks. What is compressed
/// already costs no feature work. Format.md, "Chunk".
struct BaseSearch: Sendable {
  /// A chunk that a new one may be encoded against.
  struct Base: Sendable {
    var digest: BlobDigest
    var row: ChunkRow
    /// Nothing but its place speaks for it.
    var isGuess = false
  }

  /// All that speaks for trying something with a chunk.
  struct Found: Sendable {
    /// A similar chunk.
    var base: Base?
    /// Another, for when the first is not similar enough.
    var other: Base?

    var isEmpty: Bool { base == nil && other == nil }

    /// Calls `body` with everything that the chunk's record may refer to.
    func forEach(_ body: (Base) -> Void) {
      if let base { body(base) }
      if let other { body(other) }
    }

    /// Forgets what `isKept` says no to.
    mutating func keep(
      where isKept: (Base) throws(BlobStorageError) -> Bool
    ) throws(BlobStorageError) {
      if let base, try !isKept(base) { self.base = nil }
      if let other, try !isKept(other) { self.other = nil }
    }
  }

  /// How guesses went in one batch of chunks: after four that were worth nothing, no more are tried, so that content
  /// that has nothing to do with the version before costs little.
  struct Guesses {
    private static let failureCountMax = 4
    private var failureCount = 0

    fileprivate var areWorthTrying: Bool { failureCount < Self.failureCountMax }
    fileprivate mutating func count(isWorthwhile: Bool) {
      failureCount = isWorthwhile ? 0 : failureCount + 1
    }
  }

  /// If a base shrinks the chunk to less than this share of its expected length alone, encoding it alone is not tried.
  private static let sureShare = 0.45
  /// A base is used if it leaves at most this share of the chunk encoded alone, because reading then costs two chunks.
  /// A chunk stored alone can also be a good base of later versions.
  private static let worthwhileShare = 0.5

  let codec: CodecChoice
  let codecs: CodecPool
  let chunks: ChunkSource
  /// Whether the store compresses similar chunks at all.
  let usesSimilarity: Bool

  private var isOn: Bool { usesSimilarity && codec.kind.takesBase }

  /// The same for another codec.
  func with(_ codec: CodecChoice) -> BaseSearch {
    BaseSearch(codec: codec, codecs: codecs, chunks: chunks, usesSimilarity: usesSimilarity)
  }

  /// Whether chunks of a blob that begins like this are tried against others.
  func triesBases(_ hint: CompressibilityHint) -> Bool { isOn && hint == .unknown }

  /// Whether a chunk is stored as it is, whatever the store has: it belongs to a compressed format and looks like noise.
  func storesAsIs(_ plain: RawSpan, hint: CompressibilityHint) -> Bool {
    hint == .alreadyCompressed && CompressibilityProbe.verdict(on: plain, hint: hint) == .noise
  }

  /// Whether a chunk that has no base is joined with others untried: it looks like encoding pays.
  func joins(_ plain: RawSpan, hint: CompressibilityHint) -> Bool {
    codec.kind == .zstd && !plain.isEmpty && CompressibilityProbe.verdict(on: plain, hint: hint) == .encode
  }

  /// The features of a chunk that may profit from a base; nil when it cannot.
  func features(_ plain: RawSpan, hint: CompressibilityHint) -> SIMD3<UInt32>? {
    triesBases(hint) ? SuperFeatures.of(plain) : nil
  }

  /// What to try for a chunk with these features, which the store does not know.
  ///
  /// - Parameter previous: a chunk of the version that the key has so far: tried first if it is all of it, else if
  ///   what the features find is not similar enough.
  func find(
    for chunk: ChunkEntry, _ features: SIMD3<UInt32>?, previous: PreviousVersion.Candidate?,
    _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Found {
    var found = Found()
    guard isOn, features != nil || previous != nil else { return found }
    // A chunk that others are encoded against, and that was lost, must have no base.
    if try transaction.isBase(chunk.digest) { return found }
    if let previous, previous.isOnly { try find(for: chunk, like: previous, &found, transaction) }
    if found.base == nil, let features {
      let similar = try transaction.similarChunk(features)
      if let similar, similar.digest != chunk.digest {
        found.base = Base(digest: similar.digest, row: similar.row)
      }
    }
    if let previous, !previous.isOnly, previous.isAligned || features != nil {
      var placed = Found()
      try find(for: chunk, like: previous, &placed, transaction)
      if found.base == nil {
        found.base = placed.base
      } else if found.base?.digest != placed.base?.digest {
        found.other = placed.base
      }
    }
    return found
  }

  /// A chunk of the version before, or what that is encoded against.
  private func find(
    for chunk: ChunkEntry, like previous: PreviousVersion.Candidate, _ found: inout Found,
    _ transaction: ReadTransaction
  ) throws(BlobStorageError) {
    guard previous.digest != chunk.digest, let row = try transaction.chunkToShare(previous.digest) else {
      return
    }
    let name = row.base ?? previous.digest
    guard name != chunk.digest, let base = try transaction.baseToShare(name) else { return }
    found.base = Base(digest: name, row: base, isGuess: !previous.isOnly)
  }
}

// MARK: Encoding

extension BaseSearch {
  /// Encodes a chunk in the best of the ways that were found, or alone if none is worth it.
  func encode(
    _ digest: BlobDigest, _ plain: RawSpan, hint: CompressibilityHint, features: SIMD3<UInt32>?,
    _ found: Found, _ guesses: inout Guesses
  ) throws(BlobStorageError) -> EncodedChunk {
    if found.isEmpty { return try alone(digest, plain, hint: hint, features: features) }
    var found = found
    if plain.byteCount < ChunkEncoder.plainByteCountMin { (found.base, found.other) = (nil, nil) }
    if !guesses.areWorthTrying {
      if found.base?.isGuess == true { found.base = nil }
      if found.other?.isGuess == true { found.other = nil }
    }
    let chunk = try choose(digest, plain, hint: hint, features: features, found)
    if found.base?.isGuess == true || found.other?.isGuess == true {
      let isRight = [found.base, found.other].contains {
        $0?.isGuess == true && $0?.digest == chunk.record.base
      }
      guesses.count(isWorthwhile: isRight)
    }
    return chunk
  }

  private func choose(
    _ digest: BlobDigest, _ plain: RawSpan, hint: CompressibilityHint, features: SIMD3<UInt32>?,
    _ found: Found
  ) throws(BlobStorageError) -> EncodedChunk {
    var best: EncodedChunk?
    var isSure = false
    for base in [found.base, found.other].compactMap({ $0 }) where !isSure {
      let based = try encode(digest, plain, hint: hint, against: base)
      guard let based, based.byteCountWithBase < best?.byteCountWithBase ?? .max else { continue }
      best = based
      let expected =
        Double(plain.byteCount) * Double(base.row.storedByteCount) / Double(max(base.row.plainByteCount, 1))
      isSure = !base.isGuess && Double(based.byteCountWithBase) <= expected * Self.sureShare
    }
    if let best, isSure { return best }
    let single = try alone(digest, plain, hint: hint, features: features)
    if let best, Double(best.byteCountWithBase) <= Double(single.storedByteCount) * Self.worthwhileShare {
      return best
    }
    return single
  }

  /// Encodes a chunk without a base.
  func alone(
    _ digest: BlobDigest, _ plain: RawSpan, hint: CompressibilityHint, features: SIMD3<UInt32>?
  ) throws(BlobStorageError) -> EncodedChunk {
    var encoded = try codecs.encode(digest, plain, by: codec, hint: hint)
    encoded.record.features = features
    return encoded
  }

  /// The chunk encoded against a base; nil when that makes it no smaller, or the base cannot be read.
  private func encode(
    _ digest: BlobDigest, _ plain: RawSpan, hint: CompressibilityHint, against base: Base
  ) throws(BlobStorageError) -> EncodedChunk? {
    // A base that cannot be read is none.
    let found = try unlessCorrupted(
      try chunks.bytes(base.digest, keeps: chunks.cache.isWantedAgain(base.digest)))
    guard let baseBytes = found else { return nil }
    let stored = try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain, by: codec, base: .prefix(baseBytes.span.bytes), hint: hint) {
        $0 == .none ? nil : Array($1)
      }
    }
    guard let stored else { return nil }
    let record = ChunkRecord(
      digest: digest, plainByteCount: plain.byteCount, codecNumber: codec.kind.rawValue,
      base: base.digest)
    return EncodedChunk(record: record, stored: stored)
  }
}

extension EncodedChunk {
  /// Stored bytes, and what the ref to the base takes.
  fileprivate var byteCountWithBase: Int {
    storedByteCount + (record.base == nil ? 0 : BlobDigest.byteCount)
  }
}

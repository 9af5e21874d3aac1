/// Finds bases for new chunks, and decides whether encoding against one is worth it.
///
/// A base never has a base itself, so a read touches at most two chunks. Compressed content costs no feature work.
/// Format.md, "Chunk".
struct BaseSearch: Sendable {
  /// A chunk that a new one may be encoded against.
  struct Base: Sendable {
    var digest: BlobDigest
    var row: ChunkRow
    /// Only its position in the previous version suggests this chunk.
    var isGuess = false
  }

  /// Counts failed guesses in one batch of chunks. After four in a row no more are tried, so that content unrelated to
  /// the previous version costs little.
  struct Guesses {
    private static let failureCountMax = 4
    private var failureCount = 0

    fileprivate var areWorthTrying: Bool { failureCount < Self.failureCountMax }
    fileprivate mutating func count(isWorthwhile: Bool) {
      failureCount = isWorthwhile ? 0 : failureCount + 1
    }
  }

  /// A chunk is not encoded alone if with a base it takes at most this share of what it is expected to take alone.
  private static let sureShare = 0.45
  /// A base is used if the chunk then takes at most this share of what it takes alone. Reading it costs two chunks, and
  /// only a chunk stored alone can be a base of later versions.
  private static let worthwhileShare = 0.5

  let codec: CodecChoice
  let codecs: CodecPool
  let chunks: ChunkSource
  /// Whether the store compresses similar chunks at all.
  let usesSimilarity: Bool

  private var isOn: Bool { usesSimilarity && codec.kind.takesBase }

  /// The same search for another codec.
  func with(_ codec: CodecChoice) -> BaseSearch {
    BaseSearch(codec: codec, codecs: codecs, chunks: chunks, usesSimilarity: usesSimilarity)
  }

  /// Whether chunks of a blob with this hint are tried against bases.
  func triesBases(_ hint: CompressibilityHint) -> Bool { isOn && hint == .unknown }

  /// Whether a chunk is stored unencoded in any case: its format is compressed already and its bytes look like noise.
  func storesAsIs(_ plain: RawSpan, hint: CompressibilityHint) -> Bool {
    hint == .alreadyCompressed && CompressibilityProbe.verdict(on: plain, hint: hint) == .noise
  }

  /// Whether a chunk without a base is joined with others before it is encoded alone: its bytes look compressible.
  func joins(_ plain: RawSpan, hint: CompressibilityHint) -> Bool {
    codec.kind == .zstd && !plain.isEmpty && CompressibilityProbe.verdict(on: plain, hint: hint) == .encode
  }

  /// The features of a chunk; nil if it is not tried against bases.
  func features(_ plain: RawSpan, hint: CompressibilityHint) -> SIMD3<UInt32>? {
    triesBases(hint) ? SuperFeatures.of(plain) : nil
  }

  /// Finds the bases to try for a chunk that the store does not know, the most promising first.
  ///
  /// - Parameter previous: a chunk of the key's current version. It is tried first if it is that whole version.
  ///   Otherwise it is tried if the chunk that the features find is not similar enough.
  func bases(
    for digest: BlobDigest, _ features: SIMD3<UInt32>?, previous: PreviousVersion.Candidate?,
    _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> [Base] {
    guard isOn, features != nil || previous != nil else { return [] }
    // A lost chunk that others are encoded against must have no base when it is stored again.
    if try transaction.isBase(digest) { return [] }
    var bases: [Base] = []
    if let previous, previous.isOnly, let base = try base(for: digest, like: previous, transaction) {
      bases.append(base)
    }
    if bases.isEmpty, let features, let similar = try transaction.similarChunk(features),
      similar.digest != digest
    {
      bases.append(Base(digest: similar.digest, row: similar.row))
    }
    if let previous, !previous.isOnly, previous.isAligned || features != nil,
      let placed = try base(for: digest, like: previous, transaction), placed.digest != bases.first?.digest
    {
      bases.append(placed)
    }
    return bases
  }

  /// A chunk of the previous version, or its base if it has one; nil if neither can be a base.
  private func base(
    for digest: BlobDigest, like previous: PreviousVersion.Candidate, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Base? {
    guard previous.digest != digest, let row = try transaction.chunkToShare(previous.digest) else {
      return nil
    }
    let name = row.base ?? previous.digest
    guard name != digest, let base = try transaction.baseToShare(name) else { return nil }
    return Base(digest: name, row: base, isGuess: !previous.isOnly)
  }
}

// MARK: Encoding

extension BaseSearch {
  /// Encodes a chunk against the best of its bases, or alone if none is worth it.
  func encode(
    _ digest: BlobDigest, _ plain: RawSpan, hint: CompressibilityHint, features: SIMD3<UInt32>?,
    _ bases: [Base], _ guesses: inout Guesses
  ) throws(BlobStorageError) -> EncodedChunk {
    if plain.byteCount < ChunkEncoder.plainByteCountMin {
      return try alone(digest, plain, hint: hint, features: features)
    }
    let tried = guesses.areWorthTrying ? bases : bases.filter { !$0.isGuess }
    let chunk = try choose(digest, plain, hint: hint, features: features, tried)
    let guessed = tried.filter(\.isGuess)
    if !guessed.isEmpty {
      guesses.count(isWorthwhile: guessed.contains { $0.digest == chunk.record.base })
    }
    return chunk
  }

  private func choose(
    _ digest: BlobDigest, _ plain: RawSpan, hint: CompressibilityHint, features: SIMD3<UInt32>?,
    _ bases: [Base]
  ) throws(BlobStorageError) -> EncodedChunk {
    var best: EncodedChunk?
    var isSure = false
    for base in bases where !isSure {
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

  /// Encodes the chunk against a base. Returns nil if that makes it no smaller or the base cannot be read.
  private func encode(
    _ digest: BlobDigest, _ plain: RawSpan, hint: CompressibilityHint, against base: Base
  ) throws(BlobStorageError) -> EncodedChunk? {
    // An unreadable base counts as none.
    let found = try unlessCorrupted(
      try chunks.bytes(base.digest, keeps: chunks.cache.isWantedAgain(base.digest)))
    guard let baseBytes = found else { return nil }
    let stored = try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain, by: codec, base: baseBytes, hint: hint) {
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
  /// Stored bytes, and those of the base's digest.
  fileprivate var byteCountWithBase: Int {
    storedByteCount + (record.base == nil ? 0 : BlobDigest.byteCount)
  }
}

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

  /// The bases found for a chunk.
  struct Found: Sendable {
    /// A similar chunk.
    var base: Base?
    /// Another base, tried if the first is not similar enough.
    var other: Base?

    var isEmpty: Bool { base == nil && other == nil }

    /// Calls `body` with each base.
    func forEach(_ body: (Base) -> Void) {
      if let base { body(base) }
      if let other { body(other) }
    }

    /// Removes the bases for which `isKept` returns false.
    mutating func keep(
      where isKept: (Base) throws(BlobStorageError) -> Bool
    ) throws(BlobStorageError) {
      if let base, try !isKept(base) { self.base = nil }
      if let other, try !isKept(other) { self.other = nil }
    }
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

  /// If a base leaves at most this share of the chunk's expected length alone, encoding it alone is not tried.
  private static let sureShare = 0.45
  /// A base is used if it leaves at most this share of the chunk encoded alone. Reading then costs two chunks, and a
  /// chunk stored alone can be a base of later versions.
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

  /// Finds the bases to try for a chunk that the store does not know.
  ///
  /// - Parameter previous: a chunk of the key's current version. It is tried first if it is that whole version.
  ///   Otherwise it is tried if the chunk that the features find is not similar enough.
  func find(
    for chunk: ChunkEntry, _ features: SIMD3<UInt32>?, previous: PreviousVersion.Candidate?,
    _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Found {
    var found = Found()
    guard isOn, features != nil || previous != nil else { return found }
    // A lost chunk that others are encoded against must have no base when it is stored again.
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

  /// Finds a chunk of the previous version, or its base if it has one.
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
  /// Encodes a chunk against the best of its bases, or alone if none is worth it.
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

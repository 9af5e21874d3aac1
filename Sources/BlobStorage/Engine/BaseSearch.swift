/// Finds for a new chunk a similar one to encode it against, and decides whether that is worth it.
///
/// One hop only: a base is stored without a base, so that a read touches at most two chunks. What is compressed
/// already costs no feature work. Format.md, "Bases".
struct BaseSearch: Sendable {
  /// A chunk that a new one may be encoded against.
  struct Base: Sendable {
    var digest: Digest
    var row: ChunkRow
    /// Nothing but its place speaks for it.
    var isGuess = false
  }

  /// How guesses went in one batch of chunks: after two that were worth nothing, no more are tried, so that content
  /// that has nothing to do with the version before costs little.
  struct Guesses {
    private static let failureCountMax = 2
    private var failureCount = 0

    fileprivate var areWorthTrying: Bool { failureCount < Self.failureCountMax }
    fileprivate mutating func note(_ isWorthwhile: Bool) {
      failureCount = isWorthwhile ? 0 : failureCount + 1
    }
  }

  /// Against a base that shrinks the chunk to less than this share of what it is expected to take alone, encoding it
  /// alone is not even tried.
  private static let sureShare = 0.7
  /// A base is used if it leaves at most this share of the chunk encoded alone: reading costs two chunks for one.
  private static let worthwhileShare = 0.9

  private let engine: Engine
  private let codec: CodecChoice
  private let isOn: Bool

  init(_ engine: Engine, _ codec: CodecChoice) {
    self.engine = engine
    self.codec = codec
    isOn = engine.header.flags.contains(.similarity) && codec.kind.takesBase
  }

  /// Whether chunks of a blob that begins like this are tried against others.
  func triesBases(_ hint: CompressibilityHint) -> Bool { isOn && hint == .unknown }

  /// The features of a chunk that may profit from a base; nil when it cannot.
  func features(_ plain: UnsafeRawBufferPointer, hint: CompressibilityHint) -> SIMD3<UInt32>? {
    guard isOn, hint == .unknown, plain.count >= SuperFeatures.plainByteCountMin else { return nil }
    if case .noise = CompressibilityProbe.verdict(on: plain, hint: hint) { return nil }
    return SuperFeatures.of(plain).map { SIMD3($0[0], $0[1], $0[2]) }
  }

  /// A base for a chunk with these features.
  ///
  /// - Parameter previous: a chunk of the version that the key has so far: tried first if it is aligned, else last.
  func base(
    for digest: Digest, _ features: SIMD3<UInt32>?, previous: PreviousVersion.Candidate?,
    _ transaction: Transaction
  ) throws(BlobStorageError) -> Base? {
    // A chunk that is there already, if not to be shared, may be a base of others: its new copy must have none.
    guard isOn, try transaction.chunkRow(digest) == nil else { return nil }
    if let previous, previous.isAligned, let base = try base(for: digest, like: previous, transaction) {
      return base
    }
    if let features, let found = try transaction.similarChunk(features, algorithm: digest.algorithm),
      found.digest != digest
    {
      return Base(digest: found.digest, row: found.row)
    }
    guard let previous, !previous.isAligned, features != nil else { return nil }
    return try base(for: digest, like: previous, transaction)
  }

  /// A chunk of the version before, or what that is encoded against.
  private func base(
    for digest: Digest, like previous: PreviousVersion.Candidate, _ transaction: Transaction
  ) throws(BlobStorageError) -> Base? {
    guard previous.digest != digest, let row = try transaction.chunkToShare(previous.digest),
      row.baseKind != .dictionary
    else { return nil }
    let name = row.base ?? previous.digest
    guard name != digest, let base = try transaction.baseToShare(name) else { return nil }
    return Base(digest: name, row: base, isGuess: !previous.isAligned)
  }

  /// Encodes a chunk against its base if that is worth it, else alone.
  func encode(
    _ digest: Digest, _ plain: UnsafeRawBufferPointer, hint: CompressibilityHint, features: SIMD3<UInt32>?,
    base: Base?, _ guesses: inout Guesses
  ) throws(BlobStorageError) -> Engine.EncodedChunk {
    guard let base, plain.count > ChunkEncoder.savedByteCountMin,
      !base.isGuess || guesses.areWorthTrying
    else { return try alone(digest, plain, hint: hint, features: features) }
    let encoded = try encode(digest, plain, hint: hint, features: features, base: base)
    if base.isGuess { guesses.note(encoded.record.base != nil) }
    return encoded
  }

  private func encode(
    _ digest: Digest, _ plain: UnsafeRawBufferPointer, hint: CompressibilityHint, features: SIMD3<UInt32>?,
    base: Base
  ) throws(BlobStorageError) -> Engine.EncodedChunk {
    let baseBytes: [UInt8]
    do throws(BlobStorageError) { baseBytes = try engine.chunks.bytes(base.digest, keeps: true) } catch {
      // A base that cannot be read is none.
      guard error.code == .corrupted else { throw error }
      return try alone(digest, plain, hint: hint, features: features)
    }
    let based = try bridge(baseBytes) { (raw) throws(BlobStorageError) in
      try engine.codecs.withEncoder { (encoder) throws(BlobStorageError) in
        try encoder.withEncoded(plain, by: codec, base: .prefix(raw), hint: hint) { (kind, stored) in
          kind == .none ? nil : Array(stored)
        }
      }
    }
    guard let based else { return try alone(digest, plain, hint: hint, features: features) }
    let record = ChunkRecord(
      digest: digest, plainByteCount: plain.count, codecNumber: codec.kind.rawValue, baseKind: .prefix,
      base: base.digest)
    let expected =
      Double(plain.count) * Double(base.row.storedByteCount) / Double(max(base.row.plainByteCount, 1))
    if Double(based.count) <= expected * Self.sureShare {
      return Engine.EncodedChunk(record: record, stored: based)
    }
    let single = try alone(digest, plain, hint: hint, features: features)
    let singleByteCount = single.stored?.count ?? plain.count
    return Double(based.count) <= Double(singleByteCount) * Self.worthwhileShare
      ? Engine.EncodedChunk(record: record, stored: based) : single
  }

  /// Encodes a chunk without a base.
  func alone(
    _ digest: Digest, _ plain: UnsafeRawBufferPointer, hint: CompressibilityHint, features: SIMD3<UInt32>?
  ) throws(BlobStorageError) -> Engine.EncodedChunk {
    var encoded = try engine.encode(digest, plain, by: codec, hint: hint)
    encoded.record.features = features
    return encoded
  }
}

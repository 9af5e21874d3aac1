/// A dictionary for the small chunks that compaction copies, and what it makes of them.
///
/// It uses a dictionary of the store if that suits a sample of the chunks. Otherwise it trains a new one on part of the
/// sample, and keeps it only if it shrinks the other part enough: ``DictionaryPolicy``. A new dictionary is written
/// before the first chunk that is encoded with it. From then on it is live while such a chunk is, like any base.
struct DictionaryPlan: Sendable {
  let digest: Digest
  let bytes: [UInt8]
  /// It is not in the store yet.
  let isNew: Bool
  /// What it leaves of the sample's stored bytes, incompressible chunks included.
  let share: Double
  /// Bytes of its record.
  let recordByteCount: Int64
  /// What may be encoded with it.
  var chunks: SmallChunks

  /// What it is expected to save in a pack.
  func savedByteCount(_ pack: UInt32) -> Int64 {
    Int64(Double(chunks.storedByteCount(pack)) * (1 - share))
  }

  /// Looks once more which chunks may be encoded with it, now that no writer relies on their packs.
  mutating func confirm(
    _ engine: Engine, _ marks: Marks, in packs: Set<UInt32>, leased: Set<LeaseFile.Held>
  ) throws(BlobStorageError) {
    var digests: Set<Digest> = []
    for case .chunk(let digest) in leased { digests.insert(digest) }
    // A dictionary that nothing needs yet is a small chunk, too.
    digests.insert(digest)
    chunks = try SmallChunks(engine, marks, in: packs, leased: digests)
  }

  /// The chunk encoded with the dictionary, or nil if that is not worth it.
  func encoded(
    _ record: ChunkRecord, _ stored: RawSpan, _ engine: Engine
  ) throws(BlobStorageError) -> (record: ChunkRecord, stored: [UInt8])? {
    guard record.baseKind == .none, record.digest != digest else { return nil }
    let plain: [UInt8]
    do throws(BlobStorageError) { plain = try engine.chunks.decoded(stored, record, base: nil) } catch {
      // Copied as it is, for verify to find.
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      return nil
    }
    let raw = plain.span.bytes
    guard Digest.of(raw, by: record.digest.algorithm) == record.digest,
      CompressibilityHint(beginning: raw) == .unknown,
      let with = try Self.encode(raw, with: bytes, digest, engine),
      DictionaryPolicy.pays(storedByteCount: with.count, aloneByteCount: stored.byteCount)
    else { return nil }
    var based = record
    based.codecNumber = engine.codec.kind.rawValue
    based.baseKind = .dictionary
    based.base = digest
    return (based, with)
  }

  /// The record that holds a new dictionary, and its payload.
  static func ownRecord(
    _ digest: Digest, _ bytes: [UInt8], _ engine: Engine
  ) throws(BlobStorageError) -> (record: ChunkRecord, payload: [UInt8]) {
    let encoded = try engine.codecs.encode(digest, bytes.span.bytes, by: engine.codec, hint: .unknown)
    return (encoded.record, encoded.stored ?? bytes)
  }

  private static func encode(
    _ plain: RawSpan, with dictionary: [UInt8], _ digest: Digest, _ engine: Engine
  ) throws(BlobStorageError) -> [UInt8]? {
    let identity = digest.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
    return try engine.codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(
        plain, by: engine.codec, base: .dictionary(dictionary.span.bytes, identity: identity)
      ) { (kind, stored) in kind == .none ? nil : Array(stored) }
    }
  }
}

// MARK: Making it

extension DictionaryPlan {
  /// A dictionary for the live small chunks in these packs; nil when none is worth it.
  ///
  /// Writes nothing but a note that a training brought nothing, and that not on a dry run.
  static func make(
    _ engine: Engine, _ marks: Marks, in packs: Set<UInt32>, isDryRun: Bool
  ) throws(BlobStorageError) -> DictionaryPlan? {
    guard engine.header.flags.contains(.similarity), engine.codec.kind.takesBase,
      marks.smallCount >= DictionaryPolicy.sampleCountMin
    else { return nil }
    let chunks = try SmallChunks(engine, marks, in: packs)
    guard chunks.count >= DictionaryPolicy.sampleCountMin else { return nil }
    let (known, triedCount) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var known: [Digest] = []
      for (digest, _) in try transaction.dictionaries() {
        guard let row = try transaction.baseToShare(digest), marks.contains(row.place) else { continue }
        known.append(digest)
      }
      return (known, try transaction.meta(.dictionaryTrial))
    }
    let mayTrain =
      known.count < DictionaryPolicy.countMax
      && Double(chunks.count) >= Double(triedCount) * DictionaryPolicy.retryGrowth
    guard mayTrain || !known.isEmpty else { return nil }
    let sample = try Sample(chunks, mayTrain ? .max : DictionaryPolicy.sampleCountMin * 2, engine)
    guard sample.heldOut.count * DictionaryPolicy.heldOutStride >= DictionaryPolicy.sampleCountMin else {
      return nil
    }
    for digest in known.prefix(DictionaryPolicy.countMax) {
      // Verify tells.
      guard let bytes = try unlessCorrupted(try engine.chunks.bytes(digest, keeps: true)) else { continue }
      if let plan = try plan(digest, bytes, isNew: false, sample, chunks, engine) { return plan }
    }
    guard mayTrain else { return nil }
    let byteCountMax = min(DictionaryPolicy.byteCountMax, sample.trainingByteCount / 10)
    if let bytes = DictionaryTrainer.train(samples: sample.training, byteCountMax: byteCountMax) {
      let digest = Digest.of(bytes.span.bytes, by: engine.header.digestAlgorithm)
      if let plan = try plan(digest, bytes, isNew: true, sample, chunks, engine) { return plan }
    }
    if !isDryRun { try recordTrial(chunks.count, engine) }
    return nil
  }

  /// Remembers that no dictionary was worth it for this number of chunks.
  static func recordTrial(_ count: Int, _ engine: Engine) throws(BlobStorageError) {
    try engine.folder.withReserve { () throws(BlobStorageError) in
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.setMeta(.dictionaryTrial, UInt64(count))
      }
    }
  }

  private static func plan(
    _ digest: Digest, _ bytes: [UInt8], isNew: Bool, _ sample: Sample, _ chunks: SmallChunks, _ engine: Engine
  ) throws(BlobStorageError) -> DictionaryPlan? {
    var (with, without) = (0, 0)
    for (plain, aloneByteCount) in sample.heldOut {
      let stored = try encode(plain.span.bytes, with: bytes, digest, engine)
      if let stored, DictionaryPolicy.pays(storedByteCount: stored.count, aloneByteCount: aloneByteCount) {
        with += stored.count + DictionaryPolicy.refByteCount
      } else {
        with += aloneByteCount
      }
      without += aloneByteCount
    }
    guard without > 0, Double(with) <= Double(without) * DictionaryPolicy.shareMax else { return nil }
    let (record, payload) = try ownRecord(digest, bytes, engine)
    return DictionaryPlan(
      digest: digest, bytes: bytes, isNew: isNew,
      share: Double(with + sample.heldOutNoiseByteCount) / Double(without + sample.heldOutNoiseByteCount),
      recordByteCount: Int64(record.recordByteCount(payloadByteCount: payload.count)), chunks: chunks)
  }

  /// Plain bytes of some chunks: most to train on, the others to try on.
  private struct Sample {
    private(set) var training: [[UInt8]] = []
    private(set) var trainingByteCount = 0
    /// Those that are not noise.
    private(set) var heldOut: [(plain: [UInt8], aloneByteCount: Int)] = []
    /// Stored bytes of held-out chunks that nothing makes smaller.
    private(set) var heldOutNoiseByteCount = 0

    init(_ chunks: SmallChunks, _ countMax: Int, _ engine: Engine) throws(BlobStorageError) {
      // Two counters, so that noise has the same share in both parts.
      for (index, digest) in chunks.sample.prefix(countMax).enumerated() {
        try CancellationFlag.check()
        let isHeldOut = countMax < .max || index % DictionaryPolicy.heldOutStride == 0
        // Verify tells.
        guard let plain = try unlessCorrupted(try engine.chunks.bytes(digest)) else { continue }
        guard let alone = try Self.aloneByteCount(plain, engine) else {
          if isHeldOut { heldOutNoiseByteCount += plain.count }
          continue
        }
        if isHeldOut {
          heldOut.append((plain, alone))
        } else {
          training.append(plain)
          trainingByteCount += plain.count
        }
      }
    }

    /// What the chunk takes without a dictionary; nil for what is compressed already.
    private static func aloneByteCount(_ plain: [UInt8], _ engine: Engine) throws(BlobStorageError) -> Int? {
      let raw = plain.span.bytes
      guard CompressibilityHint(beginning: raw) == .unknown else { return nil }
      if case .noise = CompressibilityProbe.verdict(on: raw, hint: .unknown) { return nil }
      return try engine.codecs.withEncoder { (encoder) throws(BlobStorageError) in
        try encoder.withEncoded(raw, by: engine.codec) { $1.count }
      }
    }
  }
}

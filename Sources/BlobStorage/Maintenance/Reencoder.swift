/// Encodes chunks once more, as hard as their codec can: what came fast becomes small later.
///
/// zstd needs 20 to 50 times as long at level 19 as at the default level. Decoding takes no longer.
struct Reencoder: Sendable {
  /// Chunks of a pack that are encoded together.
  struct Group: Sendable {
    fileprivate(set) var records: [PackRecord] = []
    fileprivate var chunks: [(record: ChunkRecord, plain: [UInt8])] = []
    fileprivate(set) var plainByteCount = 0
    /// Bytes that they take in their pack.
    fileprivate(set) var byteCount = 0
  }

  private let choice: CodecChoice
  private let codecs: CodecPool

  /// Nil for a store that encodes nothing.
  init?(_ engine: Engine) throws(BlobStorageError) {
    guard engine.codec.kind != .none else { return nil }
    choice = try CodecChoice(engine.codec.kind, level: .max)
    codecs = engine.codecs
  }

  /// Whether a record can be encoded once more: a chunk that is not encoded against another.
  static func takes(_ record: PackRecord) -> Bool {
    guard case .chunk(let chunk) = record.content else { return false }
    return chunk.base == nil
  }

  /// Calls `body` with each group, and with what to store instead: nil where that takes no fewer bytes. All threads
  /// encode.
  func encode(
    _ groups: [Group], on work: WorkPool,
    _ body: (Group, [JoinedChunks.Part]?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var rest = groups[...]
    try work.orderedMap(
      inFlightMax: work.width * 2 + 1,
      next: { rest.popFirst() },
      transform: { (group) throws(BlobStorageError) in (group, try self.parts(of: group)) },
      consume: { (pair) throws(BlobStorageError) in try body(pair.0, pair.1) })
  }

  private func parts(of group: Group) throws(BlobStorageError) -> [JoinedChunks.Part]? {
    var builder = FrameBuilder(choice, codecs, plainByteCountMax: FrameBuilder.longPlainByteCountMax)
    var joined: [JoinedChunks] = []
    for (record, plain) in group.chunks {
      if let full = try builder.add(record.digest, plain.span.bytes, features: record.features) {
        joined.append(full)
      }
    }
    if let last = try builder.end() { joined.append(last) }
    var parts: [JoinedChunks.Part] = []
    for chunks in joined { parts += try chunks.parts(by: choice, codecs) { _ in false } }
    return parts.reduce(0) { $0 + $1.recordByteCount } < group.byteCount ? parts : nil
  }

  /// Reads chunks of a pack into groups: frames and chunks that follow each other are one, until it is full.
  struct Reader {
    private let file: any File
    private let pack: PackName
    private let chunks: ChunkSource
    private var frames: FrameReader
    private let joins: Bool
    private var group = Group()

    /// - Parameter joins: whether a group may have more than one frame or chunk.
    init(_ file: any File, _ pack: PackName, _ chunks: ChunkSource, joins: Bool) {
      self.file = file
      self.pack = pack
      self.chunks = chunks
      self.joins = joins
      frames = FrameReader(file, pack, chunks)
    }

    /// Adds a chunk. Returns the group before it, if it is not of that.
    ///
    /// - Throws: `corrupted` for a chunk that does not match its digest.
    mutating func add(_ record: PackRecord) throws(BlobStorageError) -> Group? {
      guard case .chunk(let chunk) = record.content else { preconditionFailure("only chunks are encoded") }
      let plain = try plain(chunk, record)
      var full: Group?
      if !belongs(record, plain.count) { full = end() }
      group.records.append(record)
      group.chunks.append((chunk, plain))
      group.plainByteCount += plain.count
      group.byteCount += record.byteCount
      return full
    }

    /// Ends the group; nil if it is empty.
    mutating func end() -> Group? {
      defer { group = Group() }
      return group.records.isEmpty ? nil : group
    }

    private func belongs(_ record: PackRecord, _ plainByteCount: Int) -> Bool {
      guard let last = group.records.last else { return true }
      // A frame is encoded as a whole.
      if record.member != nil, record.recordRange == last.recordRange { return true }
      let added = record.member?.frameByteCount ?? plainByteCount
      return joins && group.plainByteCount + added <= FrameBuilder.longPlainByteCountMax
    }

    private mutating func plain(_ chunk: ChunkRecord, _ record: PackRecord) throws(BlobStorageError)
      -> [UInt8]
    {
      do throws(BlobStorageError) {
        if record.member != nil { return try frames.bytes(of: record) }
        let bytes = try file.bytes(at: record.offset, record.byteCount, pack: pack)
        let plain = try bridge(bytes) { (raw) throws(BlobStorageError) in
          try chunks.decoded(try record.verifiedPayload(raw, in: pack).bytes, chunk, base: nil)
        }
        guard Digest.of(plain.span.bytes, by: chunk.digest.algorithm) == chunk.digest else {
          throw BlobStorageError(.corrupted, "it does not match its digest")
        }
        return plain
      } catch {
        throw BlobStorageError(
          error.code,
          "Chunk \(chunk.digest) in pack \(pack) at \(record.offset): \(error.message): run verify.",
          digest: chunk.digest, pack: pack.description, offset: record.offset)
      }
    }
  }
}

extension JoinedChunks.Part {
  /// Bytes of the whole record.
  var recordByteCount: Int {
    switch self {
    case .frame(let frame, let stored): frame.header(payloadByteCount: stored.count).recordByteCount
    case .chunk(let chunk, let stored): chunk.recordByteCount(payloadByteCount: stored.count)
    }
  }
}

/// Recompresses chunks: puts encode fast, and this encodes again at the codec's highest level.
///
/// zstd needs 20 to 50 times as long at level 19 as at the default level. Decoding takes no longer.
///
/// A small chunk with a base joins the frame of its base, and no longer needs the base. A long chunk keeps its base: in
/// a frame, each read would decode its neighbours, too.
struct Reencoder: Sendable {
  /// Chunks of a pack that are encoded together.
  struct Group: Sendable {
    fileprivate(set) var records: [PackRecord] = []
    fileprivate var chunks: [(record: ChunkRecord, plain: [UInt8])] = []
    /// The plain bytes of the base that the only chunk keeps.
    fileprivate var base: [UInt8]?
    fileprivate(set) var plainByteCount = 0
    /// Bytes that they take in their pack.
    fileprivate(set) var byteCount = 0
  }

  /// Chunks that are ordered together: half as many as a ref can name by place.
  static let windowCount = 32_768
  /// Longer chunks keep their base. Parts of long blobs, 64 KiB on average, are seldom shorter.
  private static let joinedByteCountMax = 32 << 10
  /// The most plain bytes in one cluster of the chunks that follow the bases of one frame.
  private static let clusterByteCountMax = 4 << 20

  /// Called with the bytes that each group took in its pack, once the group is encoded.
  var didEncode: (@Sendable (Int) -> Void)?
  private let choice: CodecChoice
  private let codecs: CodecPool
  private let weaknesses: Weaknesses

  /// Nil for a store that encodes nothing.
  init?(_ codec: CodecChoice, _ codecs: CodecPool, _ weaknesses: Weaknesses) throws(BlobStorageError) {
    guard codec.kind != .none else { return nil }
    choice = try CodecChoice(codec.kind, level: .max)
    self.codecs = codecs
    self.weaknesses = weaknesses
  }

  /// Chunks of a pack that stay together.
  struct Cluster {
    fileprivate(set) var records: [PackRecord]
    fileprivate(set) var plainByteCount: Int
    /// Whether it is one chunk that keeps its base.
    fileprivate let keepsBase: Bool

    fileprivate mutating func append(_ record: PackRecord) {
      records.append(record)
      plainByteCount += record.chunk?.plainByteCount ?? 0
    }

    /// Its first chunks, until they have so many plain bytes.
    func prefix(plainByteCount count: Int) -> Cluster {
      var part = Cluster(records: [], plainByteCount: 0, keepsBase: keepsBase)
      for record in records where part.plainByteCount < count { part.append(record) }
      return part
    }
  }

  /// Orders chunks so that those with a base follow it, or each other if the base is elsewhere. Frames stay whole, and
  /// all other chunks keep their order.
  ///
  /// - Parameter joins: whether chunks leave their bases for a frame.
  static func clusters(of chunks: [PackRecord], joins: Bool) -> [Cluster] {
    var placed: [Placed] = []
    placed.reserveCapacity(chunks.count)
    var places: [BlobDigest: Placed] = [:]
    for record in chunks where record.chunk?.base == nil {
      let place = Placed(record)
      placed.append(place)
      if let digest = record.chunk?.digest { places[digest] = place }
    }
    var byteCounts: [Int64: Int] = [:]
    for record in chunks {
      guard let chunk = record.chunk, let base = chunk.base else { continue }
      var place = Placed(record)
      if joins, chunk.plainByteCount <= joinedByteCountMax {
        let basePlace = places[base] ?? place
        places[base] = basePlace
        let byteCount = byteCounts[basePlace.anchor, default: 0] + chunk.plainByteCount
        byteCounts[basePlace.anchor] = byteCount
        place.follow(basePlace, part: byteCount / clusterByteCountMax)
      } else {
        place.keepsBase = true
      }
      placed.append(place)
    }
    placed.sort { $0.key < $1.key }
    var clusters: [Cluster] = []
    var last: Placed?
    for place in placed {
      if last == nil || last?.anchor != place.anchor || last?.part != place.part {
        clusters.append(Cluster(records: [], plainByteCount: 0, keepsBase: place.keepsBase))
      }
      last = place
      clusters[clusters.count - 1].append(place.record)
    }
    return clusters
  }

  /// A chunk with its place in the order of encoding.
  private struct Placed {
    let record: PackRecord
    /// Chunks with the same anchor, the offset of a record, and the same part form a cluster.
    private(set) var anchor: Int64
    private(set) var part = 0
    /// The offset of the chunk that it follows.
    private var followed: Int64
    private var follows = false
    var keepsBase = false

    init(_ record: PackRecord) {
      self.record = record
      anchor = record.recordRange.lowerBound
      followed = record.offset
    }

    mutating func follow(_ base: Placed, part: Int) {
      (anchor, self.part, followed, follows) = (base.anchor, part, base.followed, true)
    }

    var key: (Int64, Int, Int64, Int, Int64) { (anchor, part, followed, follows ? 1 : 0, record.offset) }
  }

  /// Calls `body` with each group and the records to store instead: nil if these take no fewer bytes. All threads
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
      consume: { (pair) throws(BlobStorageError) in
        try body(pair.0, pair.1)
        didEncode?(pair.0.byteCount)
      })
  }

  private func parts(of group: Group) throws(BlobStorageError) -> [JoinedChunks.Part]? {
    if let base = group.base { return try part(of: group, against: base).map { [$0] } }
    var builder = FrameBuilder(choice, codecs, plainByteCountMax: FrameBuilder.longPlainByteCountMax)
    var joined: [JoinedChunks] = []
    var parts: [JoinedChunks.Part] = []
    for (record, plain) in group.chunks {
      // The empty chunk is no member of any frame.
      if plain.isEmpty {
        parts.append(.chunk(record, []))
        continue
      }
      if let full = try builder.add(record.digest, plain.span.bytes, features: record.features) {
        joined.append(full)
      }
    }
    if let last = try builder.end() { joined.append(last) }
    for chunks in joined { parts += try chunks.parts(by: choice, codecs) { _ in false } }
    let isSmaller = parts.reduce(0) { $0 + $1.recordByteCount } < group.byteCount
    return isSmaller || weaknesses.contains(.recompressesToMore) ? parts : nil
  }

  /// Encodes the only chunk of a group against its base again. Returns nil if that takes no fewer bytes.
  private func part(of group: Group, against base: [UInt8]) throws(BlobStorageError) -> JoinedChunks.Part? {
    guard choice.kind.takesBase, let (record, plain) = group.chunks.first else { return nil }
    let stored = try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain.span.bytes, by: choice, base: base) {
        $0 == .zstd ? Array($1) : nil
      }
    }
    guard let stored else { return nil }
    let part = JoinedChunks.Part.chunk(record, stored)
    return part.recordByteCount < group.byteCount ? part : nil
  }

  /// Reads chunks of a pack into groups. Consecutive clusters are one group until it is full.
  struct Reader {
    private let chunks: ChunkSource
    private var reader: RecordReader
    private let joins: Bool
    private var group = Group()
    private var base: (digest: BlobDigest, plain: [UInt8])?

    /// - Parameter joins: whether a group may have more than one frame or chunk.
    init(_ file: any File, _ pack: PackName, _ chunks: ChunkSource, joins: Bool) {
      self.chunks = chunks
      self.joins = joins
      reader = RecordReader(file, pack, chunks)
    }

    /// Adds a cluster. Returns the group before it if the cluster begins a new one.
    ///
    /// - Throws: `corrupted` for a chunk that does not match its digest.
    mutating func add(_ cluster: Cluster) throws(BlobStorageError) -> Group? {
      var full: Group?
      if cluster.keepsBase || group.base != nil || !joins
        || group.plainByteCount + cluster.plainByteCount > FrameBuilder.longPlainByteCountMax
      {
        full = end()
      }
      for record in cluster.records {
        guard let chunk = record.chunk else { continue }
        let plain = try plain(chunk, record)
        if cluster.keepsBase { group.base = base?.plain }
        group.records.append(record)
        group.chunks.append((chunk, plain))
        group.plainByteCount += plain.count
        group.byteCount += record.byteCount
      }
      return full
    }

    /// Ends the group; nil if it is empty.
    mutating func end() -> Group? {
      defer { group = Group() }
      return group.records.isEmpty ? nil : group
    }

    private mutating func plain(_ chunk: ChunkRecord, _ record: PackRecord) throws(BlobStorageError)
      -> [UInt8]
    {
      do throws(BlobStorageError) {
        if let digest = chunk.base, digest != base?.digest {
          base = (digest, try chunks.bytes(digest))
        }
        return try reader.plain(of: record, base: chunk.base == nil ? nil : base?.plain)
      } catch { throw reader.unreadable(record, error) }
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

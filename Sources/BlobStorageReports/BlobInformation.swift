import BlobStorage

/// How a version is stored.
public struct BlobInformation: Sendable, Hashable, Codable {
  public var version: BlobVersion
  public var chunkCount: Int
  /// The number of chunks for each codec, by the codec's name.
  public var codecs: [String: Int]
  /// How many chunks are encoded against another.
  public var basedChunkCount: Int
  /// Stored bytes of its chunks.
  public var storedByteCount: Int64
  /// Stored bytes that no other version needs: what dropping it would free. Includes the bases of its chunks, and the
  /// lists of a long blob.
  public var exclusiveByteCount: Int64
  /// Why some other blobs, which may need some of these bytes, could not be followed to their chunks. Only the first
  /// reasons.
  public var unreadable: [String] = []

  public init(
    version: BlobVersion, chunkCount: Int, codecs: [String: Int] = [:], basedChunkCount: Int = 0,
    storedByteCount: Int64 = 0, exclusiveByteCount: Int64 = 0
  ) {
    self.version = version
    self.chunkCount = chunkCount
    self.codecs = codecs
    self.basedChunkCount = basedChunkCount
    self.storedByteCount = storedByteCount
    self.exclusiveByteCount = exclusiveByteCount
  }

  private enum CodingKeys: String, CodingKey {
    case codecs, storedByteCount, exclusiveByteCount, unreadable
    case chunkCount = "chunks"
    case basedChunkCount = "basedChunks"
  }
}

extension BlobInformation {
  public init(from decoder: any Decoder) throws {
    version = try BlobVersion(from: decoder)
    let container = try decoder.container(keyedBy: CodingKeys.self)
    chunkCount = try container.decode(Int.self, forKey: .chunkCount)
    codecs = try container.decode([String: Int].self, forKey: .codecs)
    basedChunkCount = try container.decode(Int.self, forKey: .basedChunkCount)
    storedByteCount = try container.decode(Int64.self, forKey: .storedByteCount)
    exclusiveByteCount = try container.decode(Int64.self, forKey: .exclusiveByteCount)
    unreadable = try container.decode([String].self, forKey: .unreadable)
  }

  /// Encodes the fields of the version beside the others.
  public func encode(to encoder: any Encoder) throws {
    try version.encode(to: encoder)
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(chunkCount, forKey: .chunkCount)
    try container.encode(codecs, forKey: .codecs)
    try container.encode(basedChunkCount, forKey: .basedChunkCount)
    try container.encode(storedByteCount, forKey: .storedByteCount)
    try container.encode(exclusiveByteCount, forKey: .exclusiveByteCount)
    try container.encode(unreadable, forKey: .unreadable)
  }

  package static func find(
    _ engine: Engine, _ key: String, _ id: BlobVersion.ID?, progress: (Int) -> Void = { _ in }
  ) throws(BlobStorageError) -> BlobInformation? {
    var attemptCount = 0
    while let version = try engine.version(key, id) {
      do throws(BlobStorageError) {
        let (information, hasMoved) = try find(engine, version, progress: progress)
        attemptCount += 1
        if !hasMoved || attemptCount == attemptCountMax { return information }
      } catch {
        // A version that was dropped and collected meanwhile is not damaged.
        guard error.code == .corrupted, try engine.version(key, version.id) == nil else { throw error }
      }
    }
    return nil
  }

  private static let attemptCountMax = 4

  /// - Returns: also whether gc has moved chunks of the version meanwhile, so that shared ones may seem exclusive.
  private static func find(
    _ engine: Engine, _ version: BlobVersion, progress: (Int) -> Void
  ) throws(BlobStorageError) -> (BlobInformation, hasMoved: Bool) {
    let key = version.key
    guard let layout = try engine.blobs.layout(version.digest) else {
      throw BlobStorageError(
        .corrupted, "Key “\(key)”: blob \(version.digest) is missing from the store.", key: key,
        digest: version.digest)
    }
    let walk = LiveWalk(engine.blobs)
    var places = PlaceSet()
    try walk.forEachRow(of: layout) { (_, row) in if let row { places.insert(row.place) } }
    var others = Marker(engine.blobs, engine.folder)
    let keyBytes = Array(key.utf8)
    try others.markVersions(progress: progress, isLeftOut: { $0 == keyBytes && $1 == version.id.stamp })
    var information = BlobInformation(version: version, chunkCount: 0)
    var seen = PlaceSet()
    var exclusive = PlaceSet()
    var hasMoved = false
    try walk.forEachRow(of: layout) { (part, row) throws(BlobStorageError) in
      if let row, !places.contains(row.place) { hasMoved = true }
      if let row, !others.marks.contains(row.place), exclusive.insert(row.place) {
        information.exclusiveByteCount += Int64(row.storedByteCount)
      }
      guard part.kind == .chunk else { return }
      guard let row else {
        throw BlobStorageError(
          .corrupted, "Key “\(key)”: chunk \(part.digest) is missing from the store.", key: key,
          digest: part.digest)
      }
      guard seen.insert(row.place) else { return }
      information.storedByteCount += Int64(row.storedByteCount)
      if row.base != nil { information.basedChunkCount += 1 }
      information.codecs[CodecKind(rawValue: row.codecNumber)?.name ?? "\(row.codecNumber)", default: 0] += 1
    }
    information.chunkCount = max(1, Int(clamping: layout.chunkCount))
    information.unreadable = try engine.confirmed(others.notFollowed)
    return (information, hasMoved)
  }
}

/// The progress of long work.
public struct WorkProgress: Sendable, Hashable, Codable {
  /// The current step, in a word or two, such as "planning", "importing", "copying", "marking", "compacting" or
  /// "verifying".
  public var phase: String
  public var doneByteCount: Int64
  /// 0 while it is not known.
  public var totalByteCount: Int64
  public var doneCount: Int
  /// Files, keys or packs, as the phase counts them; 0 while it is not known.
  public var totalCount: Int

  public init(
    phase: String, doneByteCount: Int64 = 0, totalByteCount: Int64 = 0, doneCount: Int = 0,
    totalCount: Int = 0
  ) {
    self.phase = phase
    self.doneByteCount = doneByteCount
    self.totalByteCount = totalByteCount
    self.doneCount = doneCount
    self.totalCount = totalCount
  }
}

/// Receives the progress of long work on a thread of the store's own, perhaps many times per second: it must not block.
public typealias ProgressHandler = @Sendable (WorkProgress) -> Void

/// How garbage is collected.
public struct GarbageCollectionOptions: Sendable, Hashable {
  /// Reports what would be done, and changes nothing. Some numbers of the report are then estimates.
  public var isDryRun: Bool
  /// The number of archived versions that each key keeps beside the current one; nil keeps all.
  public var archivedVersionLimit: Int?
  /// A pack is compacted when at least this share of its record bytes is garbage: from 0 to 1.
  public var minimumGarbageShare: Double
  /// How long to wait for another process that is collecting.
  ///
  /// In a bucket, gc also waits three times as long for the machines that write. Then it fences those that gave no sign
  /// of life meanwhile. If that wait is shorter than three minutes, gc throws `busy` instead.
  public var timeout: Duration
  /// Whether to recompress chunks that take fewer bytes then, most profitable packs first. It takes 20 to 50 times as
  /// long as storing them did. No pack becomes larger.
  public var recompresses: Bool
  /// How long recompressing may take; it ends once the current packs are done. Nil for no limit. The next run goes on.
  public var timeLimit: Duration?
  /// Writers of a store in a bucket to fence before collecting, because they hang. Messages of gc give the 16 digits of
  /// each. Their durable changes stay; their other changes fail as `fenced`.
  public var fencedWriters: Set<String> = []
  /// Live bytes to copy before the old packs are removed.
  package var batchByteCountMax = BlobLimits.packByteCountTarget
  /// Whether to keep space in reserve for a collection on a full disk.
  package var keepsReserve = true

  /// Options with these values.
  public init(
    isDryRun: Bool = false, archivedVersionLimit: Int? = nil, minimumGarbageShare: Double = 0.25,
    timeout: Duration = .seconds(60), recompresses: Bool = false, timeLimit: Duration? = nil
  ) {
    self.isDryRun = isDryRun
    self.archivedVersionLimit = archivedVersionLimit
    self.minimumGarbageShare = minimumGarbageShare
    self.timeout = timeout
    self.recompresses = recompresses
    self.timeLimit = timeLimit
  }
}

/// The result of a collection or dry run.
public struct GarbageCollectionReport: Sendable, Hashable, Codable {
  public var isDryRun = false
  /// Chunks that were removed.
  public var deletedChunkCount = 0
  /// Packs removed without copying anything.
  public var deletedPackCount = 0
  /// Packs removed after their live records had been copied.
  public var compactedPackCount = 0
  /// Chunks that were stored again without their base, because the base cost more than it saved.
  public var reencodedChunkCount = 0
  /// Packs whose chunks were encoded once more. A dry run estimates this and the next number from samples: it encodes a
  /// few places of each pack, and extrapolates their gain to the whole pack.
  public var recompressedPackCount = 0
  /// Bytes that recompressing saved.
  public var recompressionSavedByteCount: Int64 = 0
  /// Bytes freed from packs. A dry run ignores that copied refs and drops may take a few bytes more or less each.
  public var freedByteCount: Int64 = 0
  /// Bytes of garbage that remains.
  public var garbageByteCount: Int64 = 0
  /// Keys of a cache that were dropped to hold its limits.
  public var evictedKeyCount = 0
  /// Bytes of live records that were copied.
  public var copiedByteCount: Int64 = 0
  public var duration = Duration.zero
  /// Why garbage was kept, such as records that could not be read. Empty after success.
  public var obstacles: [GarbageObstacle] = []

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case freedByteCount, garbageByteCount, copiedByteCount, recompressionSavedByteCount, obstacles
    case isDryRun = "dryRun"
    case deletedChunkCount = "chunksDeleted"
    case deletedPackCount = "packsDeleted"
    case compactedPackCount = "packsCompacted"
    case reencodedChunkCount = "chunksReencoded"
    case recompressedPackCount = "packsRecompressed"
    case evictedKeyCount = "keysEvicted"
    case duration = "seconds"
  }
}

/// One damaged place.
public struct Damage: Sendable, Hashable, Codable {
  /// The chunk or blob that is damaged, if its digest could be read.
  public var digest: BlobDigest?
  /// The name of the pack; empty if the place is not known.
  public var pack: String
  /// Where in the pack it lies, in bytes.
  public var offset: Int64
  /// What cannot be read because of it: keys, and the names of states and holds.
  public var keys: [String]
  public var reason: String

  public init(
    digest: BlobDigest? = nil, pack: String = "", offset: Int64 = 0, keys: [String] = [], reason: String
  ) {
    self.digest = digest
    self.pack = pack
    self.offset = offset
    self.keys = keys
    self.reason = reason
  }

  /// Encodes a digest that could not be read as null: the field is always present.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(digest, forKey: .digest)
    try container.encode(pack, forKey: .pack)
    try container.encode(offset, forKey: .offset)
    try container.encode(keys, forKey: .keys)
    try container.encode(reason, forKey: .reason)
  }

  private enum CodingKeys: String, CodingKey {
    case digest, pack, offset, keys, reason
  }
}

/// The result of a verification.
public struct VerificationReport: Sendable, Hashable, Codable {
  /// How much was read.
  public var depth = VerificationDepth.chunks
  /// The part of the store that was read; nil for all of it.
  public var share: VerificationShare?
  /// Packs of the store, or of the share.
  public var packCount = 0
  /// Packs that were due, and read; nil unless a maximum age was given.
  public var duePackCount: Int?
  /// Blobs that versions, states and holds need.
  public var blobCount = 0
  /// Chunks in the packs that were read.
  public var chunkCount = 0
  /// Plain bytes that were read and checked; 0 if only the structure was verified.
  public var byteCount: Int64 = 0
  public var damaged: [Damage] = []
  /// The losses that were not accepted.
  public var losses = StoreLosses()
  /// Damaged lines of the census, whose copies tell the same; nil without any. The next collection or repair writes the
  /// census again.
  public var damagedCensusLineCount: Int?
  /// Versions whose time is more than a day ahead of this machine's clock: one of the two clocks was set wrong. They
  /// can be read. Only the first ones are listed.
  public var versionsAhead: [VersionAhead] = []
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case depth, share, byteCount, damaged, losses, versionsAhead
    case packCount = "packs"
    case duePackCount = "duePacks"
    case damagedCensusLineCount = "damagedCensusLines"
    case blobCount = "blobs"
    case chunkCount = "chunks"
    case duration = "seconds"
  }
}

/// A version whose time lies far ahead of the present.
public struct VersionAhead: Sendable, Hashable, Codable {
  public var key: String
  public var version: BlobVersion.ID

  public init(key: String, version: BlobVersion.ID) {
    self.key = key
    self.version = version
  }
}

/// The result of a repair.
public struct RepairReport: Sendable, Hashable, Codable {
  /// The paths of damaged packs that were set aside.
  public var setAside: [String] = []
  /// The damage in those packs.
  public var damaged: [Damage] = []
  /// Versions that cannot be read until the same bytes are put again.
  public var unreadable: [UnreadableVersion] = []
  /// Names of holds whose blobs cannot be read until the same bytes are put again.
  public var unreadableHolds: [String] = []
  /// Whether packs have records that only a later build can read. Such packs stay as they are.
  public var hasLaterRecords = false
  /// Versions that could not be read, and were dropped because their loss was accepted.
  public var dropped: [UnreadableVersion] = []
  /// The losses, before the repair accepted them.
  public var losses = StoreLosses()
  public var packCount = 0
  public var keyCount = 0
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case setAside, damaged, unreadable, unreadableHolds, hasLaterRecords, dropped, losses
    case packCount = "packs"
    case keyCount = "keys"
    case duration = "seconds"
  }
}

/// A version that cannot be read.
public struct UnreadableVersion: Sendable, Hashable, Codable {
  /// Its key, or the name of a state.
  public var key: String
  public var version: BlobVersion.ID
  public var digest: BlobDigest

  public init(key: String, version: BlobVersion.ID, digest: BlobDigest) {
    self.key = key
    self.version = version
    self.digest = digest
  }
}

/// The result of `keep`.
public struct RetentionResult: Sendable, Hashable, Codable {
  /// Keys that were examined, without those that were passed over because a hold protects them.
  public var keyCount: Int
  public var droppedVersionCount: Int

  public init(keyCount: Int = 0, droppedVersionCount: Int = 0) {
    self.keyCount = keyCount
    self.droppedVersionCount = droppedVersionCount
  }

  private enum CodingKeys: String, CodingKey {
    case keyCount = "keys"
    case droppedVersionCount = "versionsDropped"
  }
}

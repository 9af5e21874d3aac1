import Logging

/// The options that `create` fixes permanently.
public struct StoreOptions: Sendable, Hashable {
  /// The digest algorithm that names blobs.
  public var digestAlgorithm: BlobDigest.Algorithm
  /// The average plain length of a chunk in bytes: a power of two from 1 KiB to 2 MiB. The shortest is a quarter of
  /// it, except at an end, and the longest four times.
  public var averageChunkByteCount: Int
  /// The codec for chunks that it makes smaller, unless a put names another.
  public var codec: CodecKind
  /// How hard the codec tries. The store keeps the number behind a named level.
  public var level: CodecLevel
  /// Whether to encode new chunks against similar ones.
  public var usesSimilarity: Bool

  /// Options of a store for any content.
  public init(
    digestAlgorithm: BlobDigest.Algorithm = .blake3, averageChunkByteCount: Int = 64 << 10,
    codec: CodecKind = .zstd,
    level: CodecLevel = .default, usesSimilarity: Bool = true
  ) {
    self.digestAlgorithm = digestAlgorithm
    self.averageChunkByteCount = averageChunkByteCount
    self.codec = codec
    self.level = level
    self.usesSimilarity = usesSimilarity
  }
}

/// How this process uses a store.
public struct StoreConfiguration: Sendable {
  /// The store's log; by default nothing is logged.
  public var logger: Logger
  /// Bytes of recently read chunks to keep in memory. Small chunks that were decoded together take up to half as much
  /// in addition.
  public var cacheByteLimit: Int
  /// Threads that hash, encode and decode; 0 for one per core.
  public var threadCount: Int
  /// Receives the operations of the store; nil to measure nothing.
  public var metrics: (any StoreMetrics)?

  /// A configuration with these values.
  public init(
    logger: Logger = Logger(label: "blob-storage", factory: { _ in SwiftLogNoOpLogHandler() }),
    cacheByteLimit: Int = 32 << 20, threadCount: Int = 0, metrics: (any StoreMetrics)? = nil
  ) {
    self.logger = logger
    self.cacheByteLimit = cacheByteLimit
    self.threadCount = threadCount
    self.metrics = metrics
  }
}

/// How safe a change is when a call returns.
public enum Durability: Sendable, Hashable {
  /// On the medium: the change survives a power cut.
  case durable
  /// With the system: the change survives the death of the process. After a power cut it is there whole or not at all.
  case relaxed
}

/// What happens to the previous version.
public enum Replacement: Sendable, Hashable {
  /// It is dropped.
  case replaceCurrent
  /// It stays in the key's history.
  case archiveCurrent
}

/// How a blob is put.
public struct PutOptions: Sendable, Hashable {
  public var durability: Durability
  public var replacement: Replacement
  /// The condition for the put. If it does not hold, the put throws `conditionFailed` and changes nothing.
  public var condition: ChangeCondition
  /// A codec other than the store's, at its default level.
  public var codec: CodecKind?
  /// Bytes of the caller's own, kept with the version: at most ``BlobLimits/maximumMetadataByteCount``, less the media
  /// type and four bytes if there is one.
  public var metadata: [UInt8]
  /// The kind of value, such as `image/jpeg`, in at most 127 ASCII characters: kept with the version. Nothing in the
  /// store depends on it.
  public var mediaType: String?
  /// Whether a file that changes while it is read is stored as it was read, which the result says. Otherwise the put
  /// throws `sourceFailed`.
  public var storesChangingFiles: Bool
  /// Set for a put without a key.
  package var heldPut: HeldPut?
  /// Whether a replaced version goes to an internal key, for the states that have it.
  package var keepsReplaced = false

  /// Options with these values.
  public init(
    durability: Durability = .durable, replacement: Replacement = .replaceCurrent,
    condition: ChangeCondition = .always, codec: CodecKind? = nil, metadata: [UInt8] = [],
    mediaType: String? = nil, storesChangingFiles: Bool = false
  ) {
    self.storesChangingFiles = storesChangingFiles
    self.durability = durability
    self.replacement = replacement
    self.condition = condition
    self.codec = codec
    self.metadata = metadata
    self.mediaType = mediaType
  }

  /// The metadata as a ref stores them.
  var storedMetadata: [UInt8] { StoredMetadata(mediaType: mediaType, own: metadata).bytes }

  /// Relaxed and replacing, for example for a cache.
  public static let relaxed = PutOptions(durability: .relaxed)
}

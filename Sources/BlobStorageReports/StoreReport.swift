import BlobStorage
import Foundation

/// Where a store's space goes: ``StoreStatistics``, and details of keys, codecs, history and packs.
public struct StoreReport: Sendable, Hashable, Codable {
  /// The live chunks that one codec encoded.
  public struct Codec: Sendable, Hashable, Codable {
    public var name: String
    public var chunkCount: Int
    public var plainByteCount: Int64
    public var storedByteCount: Int64

    public init(name: String, chunkCount: Int, plainByteCount: Int64, storedByteCount: Int64) {
      self.name = name
      self.chunkCount = chunkCount
      self.plainByteCount = plainByteCount
      self.storedByteCount = storedByteCount
    }

    private enum CodingKeys: String, CodingKey {
      case name, plainByteCount, storedByteCount
      case chunkCount = "chunks"
    }
  }

  /// A key and the space that it takes.
  public struct Key: Sendable, Hashable, Codable {
    public var key: String
    public var versionCount: Int
    /// Plain bytes of all its versions.
    public var byteCount: Int64
    /// Stored bytes of chunks that no other key needs: what deleting it would free.
    public var exclusiveByteCount: Int64

    public init(key: String, versionCount: Int, byteCount: Int64, exclusiveByteCount: Int64) {
      self.key = key
      self.versionCount = versionCount
      self.byteCount = byteCount
      self.exclusiveByteCount = exclusiveByteCount
    }

    private enum CodingKeys: String, CodingKey {
      case key, byteCount, exclusiveByteCount
      case versionCount = "versions"
    }
  }

  /// Versions that were put in a span of time and still exist.
  public struct Span: Sendable, Hashable, Codable {
    public var start: Date
    public var end: Date
    public var versionCount: Int
    /// Their plain bytes.
    public var byteCount: Int64

    public init(start: Date, end: Date, versionCount: Int, byteCount: Int64) {
      self.start = start
      self.end = end
      self.versionCount = versionCount
      self.byteCount = byteCount
    }

    private enum CodingKeys: String, CodingKey {
      case start, end, byteCount
      case versionCount = "versions"
    }
  }

  /// A pack and the share of its bytes that is live.
  public struct Pack: Sendable, Hashable, Codable {
    public var name: String
    public var created: Date
    public var isSealed: Bool
    /// Bytes of all its records.
    public var byteCount: Int64
    /// Bytes of its live records.
    public var liveByteCount: Int64

    public init(name: String, created: Date, isSealed: Bool, byteCount: Int64, liveByteCount: Int64) {
      self.name = name
      self.created = created
      self.isSealed = isSealed
      self.byteCount = byteCount
      self.liveByteCount = liveByteCount
    }

    private enum CodingKeys: String, CodingKey {
      case name, created, byteCount, liveByteCount
      case isSealed = "sealed"
    }
  }

  public var statistics: StoreStatistics
  /// Codecs, those with the most stored bytes first.
  public var codecs: [Codec] = []
  /// Keys, those with the most exclusive bytes first.
  public var largestKeys: [Key] = []
  /// Keys with several versions, those with the most first.
  public var busiestKeys: [Key] = []
  /// Equal spans from the oldest version to the newest; empty without versions.
  public var history: [Span] = []
  /// Oldest first.
  public var packs: [Pack] = []
  /// Why some blobs could not be followed to their chunks, so that these do not count. Only the first reasons.
  public var unreadable: [String] = []
  public var duration = Duration.zero

  public init(statistics: StoreStatistics) { self.statistics = statistics }

  private enum CodingKeys: String, CodingKey {
    case statistics, codecs, largestKeys, busiestKeys, history, packs, unreadable
    case duration = "seconds"
  }
}

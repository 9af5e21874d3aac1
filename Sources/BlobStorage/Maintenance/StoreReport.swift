import Foundation

/// Where a store's space is: what ``StoreStatistics`` says, and more of keys, codecs, history and packs.
public struct StoreReport: Sendable, Hashable {
  /// What a codec does for live chunks.
  public struct Codec: Sendable, Hashable {
    public var name: String
    public var chunkCount: Int
    public var plainByteCount: Int64
    public var storedByteCount: Int64
  }

  /// A key that takes much.
  public struct Key: Sendable, Hashable {
    public var key: String
    public var versionCount: Int
    /// Plain bytes of all its versions.
    public var byteCount: Int64
    /// Stored bytes of chunks that no other key needs: what deleting it would free.
    public var exclusiveByteCount: Int64
  }

  /// Versions that were put in a span of time and are still there.
  public struct Span: Sendable, Hashable {
    public var start: Date
    public var end: Date
    public var versionCount: Int
    /// Their plain bytes.
    public var byteCount: Int64
  }

  /// How full a pack is of what is needed.
  public struct Pack: Sendable, Hashable {
    public var name: String
    public var created: Date
    public var isSealed: Bool
    /// Bytes of all its records.
    public var byteCount: Int64
    /// Bytes of the records that are needed.
    public var liveByteCount: Int64
  }

  public var statistics: StoreStatistics
  /// Those that took most stored bytes first.
  public var codecs: [Codec] = []
  /// Those with the most exclusive bytes first.
  public var largestKeys: [Key] = []
  /// Those with the most versions first; keys with one version are left out.
  public var busiestKeys: [Key] = []
  /// Equal spans from the oldest version to the newest; empty without versions.
  public var history: [Span] = []
  /// By age.
  public var packs: [Pack] = []
  /// What could not be followed, some of it: the numbers leave it out.
  public var unreadable: [String] = []
  public var seconds = 0.0
}

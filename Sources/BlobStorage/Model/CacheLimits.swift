import Foundation

/// The limits of a cache.
public struct CacheLimits: Sendable, Hashable, Codable {
  /// The most bytes that all files of the store's folder may take on the medium, garbage and catalog included. While
  /// the cache empties packs, they can exceed it by less than 5 %.
  public var byteLimit: Int64
  /// The maximum number of keys; nil for no limit.
  public var keyLimit: Int?
  /// How long a value lives, unless its put says otherwise; nil for no limit. Also applies to existing values.
  public var lifetime: Duration?

  /// The smallest ``byteLimit``. Below it, the fixed files of a store would take most of the room.
  public static let smallestByteLimit: Int64 = 8 << 20

  private enum CodingKeys: String, CodingKey {
    case byteLimit, keyLimit
    case lifetime = "lifetimeSeconds"
  }

  /// Limits with these values.
  public init(byteLimit: Int64, keyLimit: Int? = nil, lifetime: Duration? = nil) {
    self.byteLimit = byteLimit
    self.keyLimit = keyLimit
    self.lifetime = lifetime
  }

  /// The length of the longest value that the cache keeps. Longer ones would evict too much at once.
  public var valueByteLimit: Int { Int(min(byteLimit / 8, 64 << 20)) }

  /// Options for a store that is only a cache with these limits: values of usual length are one chunk, and no chunk
  /// depends on another.
  public var storeOptions: StoreOptions {
    var average = 2 << 20
    while average > 64 << 10, Int64(average) > byteLimit / 128 { average /= 2 }
    return StoreOptions(averageChunkByteCount: average, usesSimilarity: false)
  }

  // Shares of the limit, from a simulation of 200,000 requests for 20,000 values of 1 to 200 KB, Zipf 0.9, 4 processes,
  // 100 MB. Packs of 0.25 %, steps that free 2 %, and a choice from the coldest 4 % lose 0.5 points of hit rate against
  // an exact LRU. They write each byte 1.06 times. Packs of 1 % lose 1.2 points. Packs of 0.5 % lose 0.7 and write 1.5
  // times. A choice from the coldest 7 % leaves more garbage and loses 1.2.

  /// Bytes of a pack.
  package var packByteCountTarget: Int64 {
    min(max(byteLimit / 400, 128 << 10), BlobLimits.packByteCountTarget)
  }
  /// Bytes that one step frees beyond what is needed.
  package var stepByteCount: Int64 { byteLimit / 50 }
  /// Live bytes that a step may copy before it has freed anything. The packs can exceed the limit by this much.
  package var copiedByteCountMax: Int64 { byteLimit / 40 }

  package func check() throws(BlobStorageError) {
    guard byteLimit >= Self.smallestByteLimit else {
      throw BlobStorageError(
        .invalidArgument, "A cache needs \(Self.smallestByteLimit) bytes or more, not \(byteLimit).")
    }
    guard keyLimit ?? 1 > 0 else {
      throw BlobStorageError(.invalidArgument, "The maximum number of keys must be 1 or more.")
    }
    guard lifetime.map({ $0 > .zero }) ?? true else {
      throw BlobStorageError(.invalidArgument, "A lifetime must be more than 0.")
    }
  }
}

import BlobStorage
import Foundation

/// Which values go first when room is needed: all of a lower priority before any of a higher one, and of one priority
/// the least recently used.
public enum CachePriority: UInt8, Sendable, Hashable, CaseIterable {
  case low = 0
  case normal = 1
  case high = 2
}

/// A value for a cache.
public struct CacheItem: Sendable, Hashable {
  public var key: String
  public var data: Data
  public var priority: CachePriority
  /// How long it is good; nil for what the cache's limits say.
  public var lifetime: Duration?

  /// An item with these values.
  public init(
    key: String, data: Data, priority: CachePriority = .normal, lifetime: Duration? = nil
  ) {
    self.key = key
    self.data = data
    self.priority = priority
    self.lifetime = lifetime
  }
}

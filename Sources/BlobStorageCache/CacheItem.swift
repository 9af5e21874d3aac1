import BlobStorage
import Foundation

/// The order of eviction: all values of a lower priority before any of a higher one, and within a priority the least
/// recently used first.
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
  /// How long it is valid; nil for the lifetime of the cache's limits.
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

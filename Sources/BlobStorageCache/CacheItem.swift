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

/// The priority and lifetime of a value, in its version's metadata, so that they come back with the version.
struct CacheMark {
  var priority: CachePriority
  /// Milliseconds from its put for which the value is valid; 0 for the lifetime of the cache's limits.
  var lifetime: UInt64

  private static let first: [UInt8] = Array("bc1".utf8)

  var metadata: [UInt8] {
    Self.first + [priority.rawValue] + withUnsafeBytes(of: lifetime.littleEndian) { Array($0) }
  }

  /// How far a clock may go back without expiring every value.
  private static let clockStep: UInt64 = 60_000

  /// Whether a value put at `created` has expired at `now`, both in milliseconds since 1970. A value dated more than a
  /// minute (or its lifetime, if shorter) in the future counts as expired.
  ///
  /// - Parameter otherwise: the lifetime if the put named none; 0 for no end.
  func isExpired(created: UInt64, now: UInt64, otherwise: UInt64) -> Bool {
    let lifetime = lifetime > 0 ? lifetime : otherwise
    guard lifetime > 0 else { return false }
    if now < created { return created - now > min(lifetime, Self.clockStep) }
    return now - created >= lifetime
  }
}

extension CacheMark {
  /// Reads the metadata; a version that no cache put has normal priority and the lifetime of the limits.
  init(metadata: [UInt8]) {
    self.init(priority: .normal, lifetime: 0)
    guard metadata.count == 12, metadata.starts(with: Self.first),
      let priority = CachePriority(rawValue: metadata[3])
    else { return }
    self.priority = priority
    lifetime = metadata[4...].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }
}

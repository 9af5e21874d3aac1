import BlobStorage
import Foundation

/// The order of eviction: all values of a lower priority before any of a higher one, and within a priority the least
/// recently used first.
public enum CachePriority: UInt8, Sendable, Hashable, CaseIterable {
  case low = 0
  case normal = 1
  case high = 2
}

/// A value of a cache, and what is kept with it.
public struct CacheItem: Sendable, Hashable {
  public var key: String
  public var data: Data
  public var priority: CachePriority
  /// How long it is valid; nil for the lifetime of the cache's limits.
  public var lifetime: Duration?
  /// The kind of value, such as `image/jpeg`, in at most 127 ASCII characters.
  public var mediaType: String?
  /// Bytes of the caller's own, such as the headers of a response: at most `BlobLimits.maximumMetadataByteCount`, less
  /// 16 and the media type.
  public var metadata: [UInt8]

  /// An item with these values.
  public init(
    key: String, data: Data, priority: CachePriority = .normal, lifetime: Duration? = nil,
    mediaType: String? = nil, metadata: [UInt8] = []
  ) {
    self.key = key
    self.data = data
    self.priority = priority
    self.lifetime = lifetime
    self.mediaType = mediaType
    self.metadata = metadata
  }

  /// The item that a version is.
  init(key: String, _ kept: MemoryTier.Kept) {
    let mark = CacheMark(metadata: kept.version.metadata)
    self.init(
      key: key, data: kept.data, priority: mark.priority,
      lifetime: mark.lifetime > 0 ? .milliseconds(Int64(clamping: mark.lifetime)) : nil,
      mediaType: kept.version.mediaType, metadata: mark.own)
  }

  var putOptions: PutOptions {
    let mark = CacheMark(priority: priority, lifetime: lifetime?.milliseconds ?? 0, own: metadata)
    return PutOptions(metadata: mark.metadata, mediaType: mediaType)
  }
}

/// The priority and lifetime of a value, in its version's metadata, so that they come back with the version. The
/// caller's own metadata follow.
struct CacheMark {
  var priority: CachePriority
  /// Milliseconds from its put for which the value is valid; 0 for the lifetime of the cache's limits.
  var lifetime: UInt64
  /// The metadata of the caller.
  var own: [UInt8]

  private static let byteCount = 12
  private static let first: [UInt8] = Array("bc1".utf8)

  var metadata: [UInt8] {
    Self.first + [priority.rawValue] + withUnsafeBytes(of: lifetime.littleEndian) { Array($0) } + own
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
    self.init(priority: .normal, lifetime: 0, own: metadata)
    guard metadata.count >= Self.byteCount, metadata.starts(with: Self.first),
      let priority = CachePriority(rawValue: metadata[3])
    else { return }
    self.priority = priority
    lifetime = metadata[4..<Self.byteCount].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    own = Array(metadata[Self.byteCount...])
  }

  /// The options of a put, with metadata that no reader mistakes for a mark.
  static func unmistakable(_ options: PutOptions) -> PutOptions {
    guard options.metadata.starts(with: first) else { return options }
    var options = options
    options.metadata = CacheMark(priority: .normal, lifetime: 0, own: options.metadata).metadata
    return options
  }
}

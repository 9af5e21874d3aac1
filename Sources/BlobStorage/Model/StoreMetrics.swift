/// Receives what a store does, for a metrics system: see ``StoreConfiguration/metrics``.
///
/// It is called on the thread that did the work, at the end of it, from many threads at once. So it should only count and
/// return. Without one, nothing is measured.
public protocol StoreMetrics: Sendable {
  func record(_ event: StoreEvent)
}

/// Something that a store has done. More cases can be added: switch over them with a default.
public enum StoreEvent: Sendable, Hashable {
  /// Put a blob, or all of a batch. The duration includes the sync of a durable put.
  case put(byteCount: Int64, newByteCount: Int64, storedByteCount: Int64, duration: Duration)
  /// Read a whole blob.
  case read(byteCount: Int64, duration: Duration)
  /// Made changes durable.
  case synchronized(duration: Duration)
  /// Collected garbage, or found out what it would collect.
  case collected(GarbageCollectionReport)
  /// A cache had a value, or did not have it.
  case cacheHit, cacheMiss
  /// A cache evicted keys.
  case evicted(keyCount: Int)
}

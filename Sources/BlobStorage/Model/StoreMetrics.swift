/// Receives the operations of a store, for a metrics system: see ``StoreConfiguration/metrics``.
///
/// The store calls it at the end of an operation that succeeded, from many threads at once, before the caller gets the
/// result. So it should only count and return. Without it, the store measures nothing.
public protocol StoreMetrics: Sendable {
  func record(_ event: StoreEvent)
}

/// An operation that a store has done. Later builds may add cases: switch over them with a default.
public enum StoreEvent: Sendable, Hashable {
  /// Put a blob, or all of a batch. The duration includes the sync of a durable put.
  case put(byteCount: Int64, newByteCount: Int64, storedByteCount: Int64, duration: Duration)
  /// Read a whole blob by `data`. Values and readers are not measured.
  case read(byteCount: Int64, duration: Duration)
  /// Made changes durable.
  case synchronized(duration: Duration)
  /// Collected garbage, or estimated that in a dry run.
  case collected(GarbageCollectionReport)
  /// A cache had a value, or did not have it.
  case cacheHit, cacheMiss
  /// A cache evicted keys.
  case evicted(keyCount: Int)
}

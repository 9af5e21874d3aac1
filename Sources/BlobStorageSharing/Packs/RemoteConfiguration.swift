import BlobStorage

/// Configures this machine's use of a store whose packs are objects.
public struct RemoteConfiguration: Sendable, Hashable {
  /// The limit of cached packs on this machine's disk, in bytes. At least 64 MiB, which sequential reads need.
  ///
  /// Footers are kept in addition: those of all packs, or, if this machine uses an index, of packs that came after it.
  public var cacheByteLimit: Int64
  /// The limit of this machine's catalog in bytes, once the store has an index. One half is for its own rows. The other
  /// half, at least 16 MiB, is for cached parts of the index. A collection puts an index once its own catalog is longer
  /// than half of this.
  public var catalogByteLimit: Int64
  /// The time between runs of the periodic work, which publishes relaxed puts, applies packs of other machines and
  /// acknowledges condemnations. Zero for never.
  ///
  /// gc on any machine waits, by default for three minutes, until each process that has written acknowledges or closes
  /// the store. With zero or a longer time, gc can end as `busy`.
  public var interval: Duration
  /// The number of full packs that may wait to be published before a put must wait. Negative values count as 0.
  public var waitingPackLimit: Int

  /// A configuration with these values.
  public init(
    cacheByteLimit: Int64 = 4 << 30, catalogByteLimit: Int64 = 1 << 30, interval: Duration = .seconds(60),
    waitingPackLimit: Int = 2
  ) {
    self.catalogByteLimit = catalogByteLimit
    self.cacheByteLimit = cacheByteLimit
    self.interval = interval
    self.waitingPackLimit = waitingPackLimit
  }
}

import BlobStorage

/// How this machine uses a store whose packs are objects.
public struct RemoteConfiguration: Sendable, Hashable {
  /// The limit of cached packs on this machine's disk, in bytes. At least 64 MiB, which reading in order needs.
  ///
  /// It also keeps the footers of all packs.
  public var cacheByteLimit: Int64
  /// The limit of what this machine keeps of the store's catalog, in bytes: one half for the rows that it has itself, the
  /// other, of at least 16 MiB, for parts of the store's index. A collection puts an index once its own catalog is longer
  /// than half of this.
  public var catalogByteLimit: Int64
  /// The time between runs of the periodic work: publish relaxed puts, look for packs of other machines. Zero for never.
  public var interval: Duration
  /// Full packs that may wait to be published before a put has to wait; less than 0 counts as 0.
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

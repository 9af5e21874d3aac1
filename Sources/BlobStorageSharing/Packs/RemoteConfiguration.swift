import BlobStorage

/// How this machine uses a store whose packs are objects.
public struct RemoteConfiguration: Sendable, Hashable {
  /// The limit of cached packs on this machine's disk, in bytes. At least 64 MiB, which reading in order needs.
  ///
  /// It also keeps the footers of all packs.
  public var cacheByteLimit: Int64
  /// The time between runs of the periodic work: publish relaxed puts, look for packs of other machines. Zero for never.
  public var interval: Duration
  /// Full packs that may wait to be published before a put has to wait; less than 0 counts as 0.
  public var waitingPackLimit: Int

  /// A configuration with these values.
  public init(
    cacheByteLimit: Int64 = 4 << 30, interval: Duration = .seconds(60), waitingPackLimit: Int = 2
  ) {
    self.cacheByteLimit = cacheByteLimit
    self.interval = interval
    self.waitingPackLimit = waitingPackLimit
  }
}

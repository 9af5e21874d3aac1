import BlobStorage

/// How this machine uses a store whose packs are objects.
public struct RemoteConfiguration: Sendable, Hashable {
  /// The limit of cached packs on this machine's disk, in bytes. At least 64 MiB, which reading in order needs.
  ///
  /// It also keeps the footers of all packs.
  public var cacheByteCountMax: Int64
  /// Seconds between runs of the periodic work: publish relaxed puts, look for packs of other machines. 0 for never.
  public var intervalSeconds: Double
  /// Full packs that may wait to be published before a put has to wait; less than 0 counts as 0.
  public var waitingPackCountMax: Int

  /// A configuration with these values.
  public init(
    cacheByteCountMax: Int64 = 4 << 30, intervalSeconds: Double = 60, waitingPackCountMax: Int = 2
  ) {
    self.cacheByteCountMax = cacheByteCountMax
    self.intervalSeconds = intervalSeconds
    self.waitingPackCountMax = waitingPackCountMax
  }
}

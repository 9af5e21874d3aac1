import BlobStorage

/// How this machine uses a store whose packs are objects.
public struct RemoteConfiguration: Sendable, Hashable {
  /// Bytes of packs that are kept on this machine's disk, so that they are not fetched again; less than 64 MiB counts
  /// as 64 MiB, which reading in order needs. The packs' footers are kept beside them, and all of them.
  public var cacheByteCountMax: Int64
  /// Seconds after which packs of other machines are looked for, and relaxed puts of this one published; 0 for never.
  public var intervalSeconds: Double
  /// Full packs that may wait to be published before a put waits for them; less than 0 counts as 0.
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

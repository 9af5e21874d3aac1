/// The lengths of chunks in plain bytes. A store fixes them in its header at creation.
public struct ChunkSizes: Sendable, Hashable {
  /// The shortest chunk, except the last of a blob and of a container's part.
  public let minimum: Int
  /// The intended average, a power of two. The actual average is about a seventh longer.
  public let average: Int
  /// The longest chunk.
  public let maximum: Int

  /// 16, 64 and 256 KiB. El-Shimi et al. (USENIX ATC 2012) found 64 KiB best for deduplication and compression
  /// together.
  public static let standard = ChunkSizes(checkedAverage: 64 << 10)

  /// Sizes from a quarter of `average` to four times as much.
  ///
  /// - Throws: `invalidArgument` unless the average is a power of two from
  ///   ``BlobLimits/minimumAverageChunkByteCount`` to ``BlobLimits/maximumAverageChunkByteCount``.
  public init(average: Int) throws(BlobStorageError) {
    let range = BlobLimits.minimumAverageChunkByteCount...BlobLimits.maximumAverageChunkByteCount
    guard range.contains(average), average.nonzeroBitCount == 1 else {
      throw BlobStorageError(
        .invalidArgument,
        "the average chunk size must be a power of two from \(range.lowerBound) to \(range.upperBound) bytes, "
          + "not \(average)")
    }
    self.init(checkedAverage: average)
  }

  private init(checkedAverage average: Int) {
    minimum = average / 4
    self.average = average
    maximum = average * 4
  }
}

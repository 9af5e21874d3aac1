/// The last chunks and manifests of the commit under way, in the order of the pack.
struct CommitTargets {
  /// As many may be named by their places.
  static let countMax = 1 << 16

  private var targets: [CommitRecord.Target] = []

  mutating func append(_ target: CommitRecord.Target) {
    if targets.count == 2 * Self.countMax { targets.removeFirst(Self.countMax) }
    targets.append(target)
  }

  mutating func removeAll() { targets.removeAll(keepingCapacity: true) }

  /// The one that ends there.
  func ending(at end: Int64) -> CommitRecord.Target? {
    if let last = targets.last, last.end == end { last } else { nil }
  }

  /// The one that begins there.
  func beginning(at offset: Int64) -> CommitRecord.Target? {
    var (low, high) = (0, targets.count)
    while low < high {
      let middle = (low + high) / 2
      if targets[middle].offset < offset { low = middle + 1 } else { high = middle }
    }
    return low < targets.count && targets[low].offset == offset ? targets[low] : nil
  }

  /// The last one with that digest, looked for one by one.
  func last(_ digest: BlobDigest) -> CommitRecord.Target? {
    targets.suffix(Self.countMax).last { $0.digest == digest }
  }

  /// All by their digests.
  func byDigest() -> [BlobDigest: CommitRecord.Target] {
    Dictionary(targets.suffix(Self.countMax).map { ($0.digest, $0) }, uniquingKeysWith: { $1 })
  }
}

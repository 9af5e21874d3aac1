/// The last chunks and manifests of the current commit, in pack order.
struct CommitTargets {
  /// The number of chunks and manifests that refs may name by place.
  static let countMax = 1 << 16

  private var targets: [CommitRecord.Target] = []

  mutating func append(_ target: CommitRecord.Target) {
    if targets.count == 2 * Self.countMax { targets.removeFirst(Self.countMax) }
    targets.append(target)
  }

  mutating func removeAll() { targets.removeAll(keepingCapacity: true) }

  /// The target that ends at `end`, if it is the last.
  func ending(at end: Int64) -> CommitRecord.Target? {
    if let last = targets.last, last.end == end { last } else { nil }
  }

  /// The target that begins at `offset`.
  func beginning(at offset: Int64) -> CommitRecord.Target? {
    var (low, high) = (0, targets.count)
    while low < high {
      let middle = (low + high) / 2
      if targets[middle].offset < offset { low = middle + 1 } else { high = middle }
    }
    return low < targets.count && targets[low].offset == offset ? targets[low] : nil
  }

  /// The last target with this digest. A linear search.
  func last(_ digest: BlobDigest) -> CommitRecord.Target? {
    targets.suffix(Self.countMax).last { $0.digest == digest }
  }

  /// All targets by digest.
  func byDigest() -> [BlobDigest: CommitRecord.Target] {
    Dictionary(targets.suffix(Self.countMax).map { ($0.digest, $0) }, uniquingKeysWith: { $1 })
  }
}

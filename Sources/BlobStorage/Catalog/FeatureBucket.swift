/// A bucket of the youngest chunks without a base, which may be similar to a new chunk.
///
/// Each chunk has an entry of 6 bytes for each of its three features: 16 bits of the feature and the first 32 bits of
/// the digest. The youngest entries come first and fill at most half a page. So the table takes at most 25 MB, enough
/// for the 1.3 million youngest chunks. More buckets would reach further back and cost every store more: each bucket
/// takes 16 bytes beyond its entries. A chance match costs a try, and a stale entry finds nothing; both are harmless.
struct FeatureBucket {
  private static let bitCount = 12
  private static let entryCountMax = 330
  private static let entryByteCount = 6
  private static let prefixByteCount = 4

  private(set) var bytes: [UInt8]

  init(_ bytes: UnsafeRawBufferPointer?) {
    self.bytes = bytes.map { Array($0.prefix($0.count / Self.entryByteCount * Self.entryByteCount)) } ?? []
  }

  /// The bucket that a feature belongs to, as a key of the table.
  static func key(_ index: Int, _ feature: UInt32) -> [UInt8] {
    let bucket = feature >> (32 - UInt32(bitCount))
    return [UInt8(index), UInt8(bucket >> 8), UInt8(bucket & 0xff)]
  }

  /// Calls `body` with the digest prefixes that a bucket has for a feature, youngest first, until it returns false.
  static func forEachPrefix(
    of feature: UInt32, in bucket: UnsafeRawBufferPointer,
    _ body: (_ prefix: [UInt8]) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let tag = UInt16(truncatingIfNeeded: feature)
    for start in stride(from: 0, to: bucket.count - entryByteCount + 1, by: entryByteCount)
    where bucket.loadUnaligned(fromByteOffset: start, as: UInt16.self).littleEndian == tag {
      guard try body(Array(bucket[start + 2..<start + entryByteCount])) else { return }
    }
  }

  /// Inserts the entry first, and drops the oldest entry of a full bucket. Returns false if the entry exists.
  mutating func insert(_ feature: UInt32, _ digest: BlobDigest) -> Bool {
    let entry = Self.entry(feature, digest)
    if offset(of: entry) != nil { return false }
    if bytes.count >= Self.entryCountMax * Self.entryByteCount { bytes.removeLast(Self.entryByteCount) }
    bytes = entry + bytes
    return true
  }

  /// Removes the entry; false if there is none.
  mutating func remove(_ feature: UInt32, _ digest: BlobDigest) -> Bool {
    guard let start = offset(of: Self.entry(feature, digest)) else { return false }
    bytes.removeSubrange(start..<start + Self.entryByteCount)
    return true
  }

  private func offset(of entry: [UInt8]) -> Int? {
    stride(from: 0, to: bytes.count, by: Self.entryByteCount).first { start in
      bytes[start..<start + Self.entryByteCount].elementsEqual(entry)
    }
  }

  private static func entry(_ feature: UInt32, _ digest: BlobDigest) -> [UInt8] {
    [UInt8(feature & 0xff), UInt8(feature >> 8 & 0xff)]
      + digest.withUnsafeBytes { Array($0.prefix(prefixByteCount)) }
  }
}

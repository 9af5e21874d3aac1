/// Features of chunks that are stored without a similar one: which chunks might be similar to a new one.
///
/// For each of a chunk's three keys there is an entry of 6 bytes in a bucket: 16 bits of the key and the first 32 of
/// the digest. A bucket holds the youngest ``bucketCountMax`` entries, which fill half a page. So the table is bounded: at
/// most 25 MB, enough for the 1.3 million youngest chunks. More buckets would reach further, and cost each store more:
/// each bucket takes 13 bytes more than its entries. A chance match costs a try, and a stale entry finds nothing: both are harmless.
extension ReadTransaction {
  fileprivate static let bucketBitCount = 12
  fileprivate static let bucketCountMax = 330
  fileprivate static let entryByteCount = 6
  fileprivate static let prefixByteCount = 4

  /// The youngest chunk that shares a key with these features and can be a base.
  package func similarChunk(
    _ features: SIMD3<UInt32>
  ) throws(BlobStorageError) -> (digest: Digest, row: ChunkRow)? {
    for index in 0..<3 {
      guard let bucket = try value(.features, Self.bucketKey(index, features[index])) else { continue }
      let tag = UInt16(truncatingIfNeeded: features[index])
      for start in stride(from: 0, to: bucket.count - Self.entryByteCount + 1, by: Self.entryByteCount)
      where bucket.loadUnaligned(fromByteOffset: start, as: UInt16.self).littleEndian == tag {
        let prefix = Array(bucket[start + 2..<start + Self.entryByteCount])
        if let (digest, row) = try chunk(prefix), row.base == nil, row.plainByteCount > 0 {
          return (digest, row)
        }
      }
    }
    return nil
  }

  /// The chunk if it can be a base: there to be shared, and without a base itself.
  package func baseToShare(_ digest: Digest) throws(BlobStorageError) -> ChunkRow? {
    guard let row = try chunkToShare(digest), row.base == nil, row.plainByteCount > 0 else { return nil }
    return row
  }

  /// The chunk whose digest begins so, if it is there to be shared.
  private func chunk(_ prefix: [UInt8]) throws(BlobStorageError) -> (digest: Digest, row: ChunkRow)? {
    var digest: Digest?
    try scan(.chunks, from: prefix) { (key, _) throws(BlobStorageError) in
      if key.count == Digest.byteCount, key.starts(with: prefix) {
        digest = Digest(algorithm: algorithm, bytes: key)
      }
      return false
    }
    guard let digest, let row = try chunkToShare(digest) else { return nil }
    return (digest, row)
  }

  fileprivate static func bucketKey(_ index: Int, _ feature: UInt32) -> [UInt8] {
    let bucket = feature >> (32 - UInt32(bucketBitCount))
    return [UInt8(index), UInt8(bucket >> 8), UInt8(bucket & 0xff)]
  }

  fileprivate static func entry(_ feature: UInt32, _ digest: Digest) -> [UInt8] {
    [UInt8(feature & 0xff), UInt8(feature >> 8 & 0xff)]
      + digest.withUnsafeBytes { Array($0.prefix(prefixByteCount)) }
  }

  fileprivate static func contains(_ bucket: [UInt8], _ entry: [UInt8]) -> Bool {
    stride(from: 0, to: bucket.count, by: entryByteCount).contains { start in
      bucket[start..<start + entryByteCount].elementsEqual(entry)
    }
  }
}

extension WriteTransaction {
  func insert(_ features: SIMD3<UInt32>, of digest: Digest) throws(BlobStorageError) {
    for index in 0..<3 {
      let key = Self.bucketKey(index, features[index])
      let entry = Self.entry(features[index], digest)
      var bucket = try value(.features, key).map { Array($0) } ?? []
      if Self.contains(bucket, entry) { continue }
      if bucket.count >= Self.bucketCountMax * Self.entryByteCount { bucket.removeLast(Self.entryByteCount) }
      try put(.features, key, entry + bucket)
    }
  }

  func remove(_ features: SIMD3<UInt32>, of digest: Digest) throws(BlobStorageError) {
    for index in 0..<3 {
      let key = Self.bucketKey(index, features[index])
      guard let bucket = try value(.features, key).map({ Array($0) }) else { continue }
      let entry = Self.entry(features[index], digest)
      var kept: [UInt8] = []
      for start in stride(from: 0, to: bucket.count, by: Self.entryByteCount)
      where !bucket[start..<start + Self.entryByteCount].elementsEqual(entry) {
        kept += bucket[start..<start + Self.entryByteCount]
      }
      if kept.isEmpty {
        try remove(.features, key)
      } else if kept.count < bucket.count {
        try put(.features, key, kept)
      }
    }
  }
}

/// Bases: how many chunk records are encoded against each chunk.
///
/// The counts follow all records, whether or not they are current and their bases exist. So any order of packs gives
/// the same.
extension ReadTransaction {
  /// Whether any record is encoded against the chunk: then it must not have a base itself.
  package func isBase(_ digest: Digest) throws(BlobStorageError) -> Bool {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in try value(.bases, key) != nil }
  }
}

extension WriteTransaction {
  func countBase(_ digest: Digest, by change: Int64) throws(BlobStorageError) {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      let count = change + (try number(.bases, key) ?? 0)
      try setNumber(.bases, key, count > 0 ? count : nil)
    }
  }
}

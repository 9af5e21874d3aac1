/// Bases: how many chunk records are encoded against each chunk, and with each dictionary.
///
/// The counts follow all records, whether or not they are current and their bases exist. So any order of packs gives
/// the same.
extension ReadTransaction {
  /// More dictionaries are in no store that is in order; a look-up is not to take for ever in one that is not.
  fileprivate static let dictionaryCountMax = 64

  /// Whether any record is encoded against the chunk, or with it: then it must not have a base itself.
  package func isBase(_ digest: Digest) throws(BlobStorageError) -> Bool {
    if try value(.bases, Self.key(digest, .prefix)) != nil { return true }
    return try value(.bases, Self.key(digest, .dictionary)) != nil
  }

  /// Dictionaries with the number of records that need them, most needed first.
  package func dictionaries() throws(BlobStorageError) -> [(digest: Digest, recordCount: Int64)] {
    var found: [(digest: Digest, recordCount: Int64)] = []
    let kind = ChunkRecord.BaseKind.dictionary.rawValue
    try scan(.bases, from: [kind]) { (key, value) throws(BlobStorageError) in
      guard key.first == kind else { return false }
      guard key.count == 1 + Digest.byteCount else {
        throw BlobStorageError(.catalogDamaged, "The catalog has a dictionary without a digest.")
      }
      var reader = ByteReader(value)
      let digest = Digest(algorithm: algorithm, bytes: UnsafeRawBufferPointer(rebasing: key[1...]))
      found.append((digest, try reader.integer()))
      return found.count < Self.dictionaryCountMax
    }
    // The sort is stable and the scan in the order of digests: every process finds the same.
    return found.sorted { $0.recordCount > $1.recordCount }
  }

  /// The dictionary that a writer tries: the most needed one that is there to be relied on.
  package func currentDictionary() throws(BlobStorageError) -> (digest: Digest, row: ChunkRow)? {
    for (digest, _) in try dictionaries() {
      if let row = try baseToShare(digest) { return (digest, row) }
    }
    return nil
  }

  fileprivate static func key(_ digest: Digest, _ kind: ChunkRecord.BaseKind) -> [UInt8] {
    [kind.rawValue] + digest.withUnsafeBytes { Array($0) }
  }
}

extension WriteTransaction {
  func countBase(_ digest: Digest, _ kind: ChunkRecord.BaseKind, by change: Int64) throws(BlobStorageError) {
    let key = Self.key(digest, kind)
    var count = change
    if let value = try value(.bases, key) {
      var reader = ByteReader(value)
      count += try reader.integer(Int64.self)
    }
    guard count > 0 else {
      try remove(.bases, key)
      return
    }
    var writer = ByteWriter(capacity: 8)
    writer.integer(count)
    try put(.bases, key, writer.bytes)
  }
}

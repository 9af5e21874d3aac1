import Foundation

/// Putting what is in memory: prepared without a lock, checked and made visible in one transaction.
extension Engine {
  /// Longer content goes through the pipeline.
  static let inMemoryByteCountMax = 1 << 20

  package func put(
    _ key: String, _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> PutResult {
    try checkOpen()
    let keyBytes = try Self.keyBytes(key)
    try Self.check(options.metadata)
    try check(options.condition, on: keyBytes)
    if case .data(let data) = content, data.count <= Self.inMemoryByteCountMax {
      let prepared = try bridge(data) { (bytes) throws(BlobStorageError) in
        try prepare(bytes, key: keyBytes, options)
      }
      let item = CommitItem(key: keyBytes, blob: prepared, data: data, options)
      let (results, watermark) = try commit([item], promising: options.durability)
      try makeDurable(options.durability, watermark)
      return results[0]
    }
    var put = try StreamPut(self, options)
    if let progress {
      let total = content.knownByteCount()
      put.progress = { done in
        progress(
          WorkProgress(
            phase: "storing", doneByteCount: done, totalByteCount: total > 0 ? max(done, total) : 0))
      }
      // A stream may keep silent for long before its first byte.
      put.progress(0)
    }
    return try put.run(keyBytes, content)
  }

  package func put(_ items: [PutItem], _ options: PutOptions) throws(BlobStorageError) -> [PutResult] {
    try checkOpen()
    var prepared: [CommitItem] = []
    prepared.reserveCapacity(items.count)
    var seen: Set<[UInt8]> = []
    for item in items {
      let key = try Self.keyBytes(item.key)
      try check(options.condition, on: key)
      guard options.condition == .always || seen.insert(key).inserted else {
        throw BlobStorageError(
          .invalidArgument,
          "Two of the items are for the key “\(item.key)”: under a condition a key is put once.",
          key: item.key)
      }
      prepared.append(try prepare(item, options))
    }
    let (results, watermark) = try commit(prepared, promising: options.durability)
    try makeDurable(options.durability, watermark)
    return results
  }

  /// What is put for one item of several; its metadata stands in for that of the options.
  func prepare(_ item: PutItem, _ options: PutOptions) throws(BlobStorageError) -> CommitItem {
    let key = try Self.keyBytes(item.key)
    try Self.check(item.metadata)
    guard item.data.count <= Self.inMemoryByteCountMax * 16 else {
      throw BlobStorageError(
        .limitExceeded,
        "An item of several put together has at most \(Self.inMemoryByteCountMax * 16) bytes: put it alone.",
        key: item.key)
    }
    let blob = try bridge(item.data) { (bytes) throws(BlobStorageError) in
      try prepare(bytes, key: key, options)
    }
    var options = options
    options.metadata = item.metadata
    return CommitItem(key: key, blob: blob, data: item.data, options)
  }

  static func check(_ metadata: [UInt8]) throws(BlobStorageError) {
    guard metadata.count <= Limits.metadataByteCountMax else {
      throw BlobStorageError(
        .limitExceeded,
        "The metadata has \(metadata.count) bytes, at most \(Limits.metadataByteCountMax) can be kept.")
    }
  }

  /// What a put's options say of the ref.
  struct RefOptions: Sendable {
    var replacement: Replacement
    var condition: ChangeCondition
    var metadata: [UInt8]

    init(_ options: PutOptions) {
      replacement = options.replacement
      condition = options.condition
      metadata = options.metadata
    }
  }

  package struct CommitItem: Sendable {
    package var key: [UInt8]
    package var blob: PreparedBlob
    var data: Data
    var ref: RefOptions

    package init(key: [UInt8], blob: PreparedBlob, data: Data, _ options: PutOptions) {
      self.key = key
      self.blob = blob
      self.data = data
      ref = RefOptions(options)
    }

    /// The most that its records can add to a pack, and to the pack's footer.
    package var packByteCountMax: Int {
      func ofChunk(_ storedByteCount: Int) -> Int {
        RecordHeader.packByteCountMax(
          metaByteCount: ChunkRecord.metaByteCountMax, payloadByteCount: storedByteCount)
      }
      let chunks = blob.chunks.reduce(0) { sum, chunk in
        guard let encoded = chunk.encoded, let stored = encoded.stored else {
          return sum + ofChunk(chunk.range.count)
        }
        // One whose base is gone by then is encoded anew.
        let own = encoded.record.base == nil ? stored.count : max(stored.count, chunk.range.count)
        return sum + ofChunk(own) + (encoded.companion.map { ofChunk($0.stored.count) } ?? 0)
      }
      let manifest = RecordHeader.packByteCountMax(
        metaByteCount: ManifestRecord.metaByteCount,
        payloadByteCount: blob.chunks.count * ChunkEntry.byteCount)
      let refMeta = RefRecord.metaByteCount(
        keyByteCount: key.count, metadataByteCount: ref.metadata.count)
      return chunks + manifest + RecordHeader.packByteCountMax(metaByteCount: refMeta)
    }
  }

  /// Makes prepared blobs visible under their keys, all or none; durability is left to the caller.
  ///
  /// What was there before is looked up again inside the transaction, so that nothing gc took away in between is
  /// counted on: H2 needs no lease here.
  ///
  /// - Parameters:
  ///   - durability: what the caller makes of it.
  ///   - keys: further keys that `alongside` reads or changes.
  ///   - settles: whether `alongside` changes the catalog itself.
  ///   - alongside: what else the commit does, before the blobs; what it throws undoes all.
  package func commit(
    _ items: [CommitItem], promising durability: Durability = .relaxed, on keys: [[UInt8]] = [],
    settles: Bool = false,
    alongside: (inout WriterSession.Commit) throws(BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> ([PutResult], WriterSession.Watermark?) {
    let (results, watermark) = try writer.commit(on: items.map(\.key) + keys, settles: settles) {
      (commit) throws(BlobStorageError) in
      commit.isPromised = durability == .durable
      try alongside(&commit)
      var results: [PutResult] = []
      for item in items {
        var newByteCount: Int64 = 0
        var added = 0
        try bridge(item.data) { (bytes) throws(BlobStorageError) in
          for chunk in item.blob.chunks {
            if commit.hasPendingChunk(chunk.digest) { continue }
            if try commit.chunkToShare(chunk.digest) != nil { continue }
            let plain = UnsafeRawBufferPointer(rebasing: bytes[chunk.range])
            let encoded: EncodedChunk
            if let ready = chunk.encoded, try isUsable(ready.record, commit) {
              encoded = ready
            } else {
              encoded = try encode(chunk.digest, plain, by: item.blob.codec, hint: item.blob.hint)
            }
            if let stored = encoded.stored {
              added += try bridge(stored) { (raw) throws(BlobStorageError) in
                try commit.append(.chunk(encoded.record), payload: raw)
              }
            } else {
              added += try commit.append(.chunk(encoded.record), payload: plain)
            }
            if let companion = encoded.companion { added += try append(companion, &commit) }
            newByteCount += Int64(plain.count)
          }
        }
        if item.blob.chunks.count > 1 {
          added += try appendManifest(
            item.blob.digest,
            item.blob.chunks.map { ChunkEntry(digest: $0.digest, plainByteCount: $0.range.count) },
            &commit)
        }
        let (version, refByteCount) = try appendRef(
          item.key, item.blob.digest, Int64(item.blob.byteCount), item.ref, &commit)
        results.append(
          PutResult(
            version: version, newByteCount: newByteCount, storedByteCount: Int64(added + refByteCount)))
      }
      return results
    }
    return (results, watermark)
  }

  /// Appends a companion right behind its base, if it still helps.
  private func append(
    _ companion: Companion, _ commit: inout WriterSession.Commit
  ) throws(BlobStorageError) -> Int {
    guard let row = try commit.transaction.chunkToShare(companion.record.digest),
      row.baseKind == .dictionary
    else { return 0 }
    return try bridge(companion.stored) { (raw) throws(BlobStorageError) in
      try commit.append(.chunk(companion.record), payload: raw)
    }
  }

  /// Whether the base of an encoded chunk, if it has one, is still there to be counted on.
  private func isUsable(
    _ record: ChunkRecord, _ commit: WriterSession.Commit
  ) throws(BlobStorageError) -> Bool {
    guard let base = record.base else { return true }
    guard try commit.transaction.chunkRow(record.digest) == nil,
      try !commit.transaction.isBase(record.digest)
    else { return false }
    guard let row = try commit.transaction.baseToShare(base) else { return false }
    return try commit.canRefer(to: row.place)
  }

  /// Appends the ref that makes a blob the current version of a key.
  ///
  /// - Throws: `conditionFailed` when the options' condition does not hold.
  func appendRef(
    _ key: [UInt8], _ digest: Digest, _ byteCount: Int64, _ options: RefOptions,
    _ commit: inout WriterSession.Commit
  ) throws(BlobStorageError) -> (BlobVersion, Int) {
    try commit.transaction.check(options.condition, on: key, algorithm: header.digestAlgorithm)
    // The newest versions of the key: the new one has to be newer than those that stay.
    var newest: [Stamp] = []
    if let name = try commit.transaction.nameRow(key) {
      try commit.transaction.forEachVersion(key: name.key, algorithm: header.digestAlgorithm) { version in
        newest.append(version.stamp)
        return newest.count < 2
      }
    }
    // Of several puts of one key in one commit, each replaces the one before.
    if let earlier = commit.lastVersion(of: key) { newest.insert(earlier, at: 0) }
    let replaced = options.replacement == .replaceCurrent && !newest.isEmpty ? newest.removeFirst() : .none
    let stamp = try commit.stamp(after: newest.first ?? .none)
    let ref = RefRecord(
      key: key, version: stamp, replaced: replaced, digest: digest, byteCount: byteCount,
      created: commit.wallTime, metadata: options.metadata)
    let added = try commit.append(.ref(ref))
    let row = VersionRow(place: Place(pack: 0, offset: 0, ordinal: 0), record: ref)
    return (BlobVersion(key: String(decoding: key, as: UTF8.self), stamp: stamp, row: row), added)
  }

  /// The packs that have to be forced to the medium before a chunk can be shared.
  func unsyncedPacks(_ row: ChunkRow, _ transaction: Transaction) throws(BlobStorageError) -> Set<PackName> {
    var places = [row.place]
    if let base = row.base, let baseRow = try transaction.chunkRow(base) { places.append(baseRow.place) }
    var names: Set<PackName> = []
    for place in places where !(try writer.canRefer(to: place, transaction)) {
      if let pack = try transaction.packRow(place.pack) { names.insert(pack.name) }
    }
    return names
  }

  func makeDurable(
    _ durability: Durability, _ watermark: WriterSession.Watermark?
  ) throws(BlobStorageError) {
    if durability == .durable, let watermark { try writer.synchronize(watermark) }
  }

  /// For a change that has found nothing to do: what it found was perhaps made by an attempt that could not publish it,
  /// or by a relaxed change of this process or another.
  func makeDurableWhatIsThere(_ durability: Durability) throws(BlobStorageError) {
    guard durability == .durable else { return }
    if writer.publishes { return try writer.rollOver() }
    let open = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packRows().filter { !$0.row.isSealed && !$0.row.isPoisoned }.map(\.row.name)
    }
    for name in open where try !writer.synchronizeOther(name) {
      throw BlobStorageError(
        .poisoned, "A sync of pack \(name) has failed: close the store wherever it is open, and try again.",
        pack: name.description)
    }
  }
}

extension WriterSession.Commit {
  /// The chunk, if this commit may refer to it: found, trusted, and on the medium or before it in its own pack.
  func chunkToShare(_ digest: Digest) throws(BlobStorageError) -> ChunkRow? {
    if trustsCondemnedPacks { return try transaction.chunkRow(digest) }
    guard let row = try transaction.chunkToShare(digest), try canRefer(to: row.place) else { return nil }
    if let base = row.base, let baseRow = try transaction.chunkRow(base), !(try canRefer(to: baseRow.place)) {
      return nil
    }
    return row
  }
}

import Foundation

/// Puts blobs that are in memory: plans them without a lock, then checks them and makes them visible in one commit. The
/// caller makes them durable.
package struct MemoryPut: Sendable {
  /// Longer content is streamed.
  package static let byteCountMax = 1 << 20

  let planner: ChunkPlanner
  let writer: WriterSession

  /// A blob that is ready to be committed.
  package struct Item: Sendable {
    package let key: [UInt8]
    package let plan: ChunkPlan
    package let data: Data
    package let ref: RefOptions

    /// The most bytes that its records can add to a pack and to the pack's footer.
    package var packByteCountMax: Int {
      plan.packByteCountMax
        + RefRecord.packByteCountMax(keyByteCount: key.count, metadataByteCount: ref.metadata.count)
    }
  }

  // MARK: Planning

  /// Plans one item of a batch. Its metadata and media type replace those of the options.
  func prepare(_ key: [UInt8], _ item: PutItem, _ options: PutOptions) throws(BlobStorageError) -> Item {
    guard item.data.count <= Self.byteCountMax * 16 else {
      throw BlobStorageError(
        .limitExceeded,
        "An item of a batch has at most \(Self.byteCountMax * 16) bytes: put it alone.",
        key: item.key)
    }
    var options = options
    (options.metadata, options.mediaType) = (item.metadata, item.mediaType)
    return try prepare(key, item.data, options)
  }

  /// Plans a put, without a lock.
  ///
  /// - Throws: `invalidArgument` for a bad media type, `limitExceeded` for metadata that are too long.
  package func prepare(
    _ key: [UInt8], _ data: Data, _ options: PutOptions, looksUp: Bool = true, joins: Bool = false
  ) throws(BlobStorageError) -> Item {
    try Self.check(options)
    let plan = try planner(options.codec).plan(data.bytes, key: key, looksUp: looksUp, joins: joins)
    return Item(key: key, plan: plan, data: data, ref: RefOptions(options))
  }

  /// The planner for a codec at its default level, or for the store's codec.
  package func planner(_ kind: CodecKind?) throws(BlobStorageError) -> ChunkPlanner {
    guard let kind, kind != planner.codec.kind else { return planner }
    return planner.with(try CodecChoice(kind))
  }

  /// - Throws: `invalidArgument` for a bad media type, `limitExceeded` for metadata that are too long.
  static func check(_ options: PutOptions) throws(BlobStorageError) {
    if let type = options.mediaType, !StoredMetadata.isMediaType(type) {
      throw BlobStorageError(
        .invalidArgument,
        "“\(type.prefix(40))” is no media type: it is like text/plain, with at most"
          + " \(StoredMetadata.mediaTypeByteCountMax) ASCII characters.")
    }
    let metadata = options.storedMetadata
    guard metadata.count <= BlobLimits.maximumMetadataByteCount else {
      throw BlobStorageError(
        .limitExceeded,
        "The metadata has \(metadata.count) bytes; the maximum is \(BlobLimits.maximumMetadataByteCount).")
    }
  }

  /// Joins the new chunks of blobs, ordered by the file extensions of their keys. Includes each chunk once.
  ///
  /// - Parameter kind: the codec; nil for the store's.
  package func joined(_ items: [Item], by kind: CodecKind?) throws(BlobStorageError) -> [JoinedChunks] {
    let codec = try planner(kind).codec
    guard codec.kind == .zstd else { return [] }
    var seen: Set<BlobDigest> = []
    var order = items.indices.map { (suffix: Self.suffix(of: items[$0].key), index: $0) }
    order.sort { one, other in
      one.suffix.elementsEqual(other.suffix)
        ? one.index < other.index : one.suffix.lexicographicallyPrecedes(other.suffix)
    }
    var builder = FrameBuilder(codec, writer.codecs)
    var groups: [JoinedChunks] = []
    for (_, index) in order {
      let item = items[index]
      for chunk in item.plan.chunks where FrameBuilder.canJoin(chunk) && seen.insert(chunk.digest).inserted {
        let full = try builder.add(
          chunk.digest, item.data.bytes.extracting(chunk.range),
          features: chunk.encoded?.record.features ?? chunk.features, alone: chunk.encoded)
        if let full { groups.append(full) }
      }
    }
    if let last = try builder.end() { groups.append(last) }
    return groups
  }

  /// The file extension of a key, without the dot; empty if it has none.
  private static func suffix(of key: [UInt8]) -> ArraySlice<UInt8> {
    guard let end = key.lastIndex(where: { $0 == UInt8(ascii: ".") || $0 == UInt8(ascii: "/") }),
      key[end] == UInt8(ascii: ".")
    else { return [] }
    return key[(end + 1)...]
  }

  // MARK: Committing

  /// Makes prepared blobs visible under their keys, all or none.
  ///
  /// - Parameters:
  ///   - durability: the durability that the caller provides afterwards.
  ///   - joined: chunks of the blobs that are stored in groups, encoded by `codec`.
  ///   - keys: further keys that `alongside` reads or changes.
  ///   - alongside: further changes of the commit, made before the blobs. An error that it throws undoes the commit.
  package func commit(
    _ items: [Item], joined: [JoinedChunks] = [], by codec: CodecKind? = nil,
    promising durability: Durability = .relaxed, on keys: [[UInt8]] = [],
    alongside: (inout Commit) throws(BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> ([PutResult], WriterSession.Watermark?) {
    try KeptVersions(writer).keepingReplaced(of: items.filter(\.ref.keepsReplaced).map(\.key)) {
      (check) throws(BlobStorageError) in
      try writer.commit(on: items.map(\.key) + keys) { (commit) throws(BlobStorageError) in
        try check(commit)
        commit.isPromised = durability == .durable
        try alongside(&commit)
        var added: [BlobDigest: Int] = [:]
        for group in joined {
          added.merge(try commit.append(group, by: try planner(codec).codec, writer.codecs)) { $1 }
        }
        return try items.map { (item) throws(BlobStorageError) in try append(item, to: &commit, &added) }
      }
    }
  }

  /// Plans one blob and commits it.
  func commit(
    _ key: [UInt8], _ data: Data, _ options: PutOptions
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    do throws(BlobStorageError) {
      return try commit(try prepare(key, data, options, looksUp: false), options.durability)
    } catch {
      guard error.code == .needsLookup else { throw error }
    }
    return try commit(try prepare(key, data, options), options.durability)
  }

  /// Commits one prepared blob.
  func commit(
    _ item: Item, _ durability: Durability
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    // Before the commit takes a lock.
    try item.ref.heldPut?.hold(item.plan.digest, Int64(item.plan.byteCount))
    let (results, watermark) = try commit([item], promising: durability)
    return (results[0], watermark)
  }

  private func append(
    _ item: Item, to commit: inout Commit, _ joined: inout [BlobDigest: Int]
  ) throws(BlobStorageError) -> PutResult {
    let added = try commit.append(item.plan, item.data.bytes, by: writer.codecs, joined: &joined)
    let (version, refByteCount) = try commit.appendRef(
      item.key, item.plan.digest, Int64(item.plan.byteCount), item.ref)
    return PutResult(
      version: version, newByteCount: added.newByteCount,
      storedByteCount: Int64(added.storedByteCount + refByteCount))
  }
}

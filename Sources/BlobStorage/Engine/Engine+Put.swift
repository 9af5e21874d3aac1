import Foundation
import SystemPackage

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
      let (result, watermark) = try commit(keyBytes, data, options)
      try makeDurable(options.durability, watermark)
      return result
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
          "Two items are for the key “\(item.key)”: under a condition each key is put once.",
          key: item.key)
      }
      prepared.append(try prepare(item, options))
    }
    let joined = environment.joinsItems ? try joined(prepared, by: options.codec) : []
    let (results, watermark) = try commit(
      prepared, joined: joined, by: options.codec, promising: options.durability)
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
        "An item of a batch has at most \(Self.inMemoryByteCountMax * 16) bytes: put it alone.",
        key: item.key)
    }
    var options = options
    options.metadata = item.metadata
    return try prepare(key, item.data, options)
  }

  /// Plans what is put, without a lock.
  package func prepare(
    _ key: [UInt8], _ data: Data, _ options: PutOptions, looksUp: Bool = true, joins: Bool = false
  ) throws(BlobStorageError) -> CommitItem {
    let planner = try planner(codec: options.codec)
    let plan = try planner.plan(
      data.bytes, key: key, looksUp: looksUp, joins: joins)
    return CommitItem(key: key, plan: plan, data: data, ref: RefOptions(options))
  }

  /// The planner for a codec at its default level, or for the store's codec.
  package func planner(codec kind: CodecKind?) throws(BlobStorageError) -> ChunkPlanner {
    guard let kind, kind != codec.kind else { return planner }
    return planner.with(try codec(kind))
  }

  /// A codec at its default level, or the store's.
  package func codec(_ kind: CodecKind?) throws(BlobStorageError) -> CodecChoice {
    guard let kind, kind != codec.kind else { return codec }
    return try CodecChoice(kind)
  }

  static func check(_ metadata: [UInt8]) throws(BlobStorageError) {
    guard metadata.count <= Limits.metadataByteCountMax else {
      throw BlobStorageError(
        .limitExceeded,
        "The metadata has \(metadata.count) bytes; the maximum is \(Limits.metadataByteCountMax).")
    }
  }

  /// What a put's options say of the ref.
  package struct RefOptions: Sendable {
    package var replacement: Replacement
    var condition: ChangeCondition
    package var metadata: [UInt8]

    init(_ options: PutOptions) {
      replacement = options.replacement
      condition = options.condition
      metadata = options.metadata
    }
  }

  /// A blob that is ready to be committed.
  package struct CommitItem: Sendable {
    package let key: [UInt8]
    package let plan: ChunkPlan
    let data: Data
    package let ref: RefOptions

    /// The most that its records can add to a pack, and to the pack's footer.
    package var packByteCountMax: Int {
      plan.packByteCountMax
        + RefRecord.packByteCountMax(keyByteCount: key.count, metadataByteCount: ref.metadata.count)
    }
  }

  /// Makes prepared blobs visible under their keys, all or none; durability is left to the caller.
  ///
  /// - Parameters:
  ///   - durability: what the caller makes of it.
  ///   - joined: chunks of the blobs that are to be stored together, encoded by `codec`.
  ///   - keys: further keys that `alongside` reads or changes.
  ///   - alongside: what else the commit does, before the blobs; what it throws undoes all.
  package func commit(
    _ items: [CommitItem], joined: [JoinedChunks] = [], by codec: CodecKind? = nil,
    promising durability: Durability = .relaxed, on keys: [[UInt8]] = [],
    alongside: (inout WriterSession.Commit) throws(BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> ([PutResult], WriterSession.Watermark?) {
    let (results, watermark) = try writer.commit(on: items.map(\.key) + keys) {
      (commit) throws(BlobStorageError) in
      commit.isPromised = durability == .durable
      try alongside(&commit)
      var added: [Digest: Int] = [:]
      for group in joined {
        added.merge(try commit.append(group, by: try self.codec(codec), codecs)) { $1 }
      }
      return try append(items, to: &commit, &added)
    }
    return (results, watermark)
  }

  /// Plans one blob in memory and commits it.
  private func commit(
    _ key: [UInt8], _ data: Data, _ options: PutOptions
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    do throws(BlobStorageError) {
      return try commit(try prepare(key, data, options, looksUp: false), options.durability)
    } catch {
      guard error.code == .needsLookup else { throw error }
    }
    return try commit(try prepare(key, data, options), options.durability)
  }

  /// The same for one blob.
  func commit(
    _ item: CommitItem, _ durability: Durability
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    let (result, watermark) = try writer.commit(on: [item.key]) { (commit) throws(BlobStorageError) in
      commit.isPromised = durability == .durable
      var joined: [Digest: Int] = [:]
      return try append(item, to: &commit, &joined)
    }
    return (result, watermark)
  }

  private func append(
    _ items: [CommitItem], to commit: inout WriterSession.Commit, _ joined: inout [Digest: Int]
  ) throws(BlobStorageError) -> [PutResult] {
    var results: [PutResult] = []
    results.reserveCapacity(items.count)
    for item in items { results.append(try append(item, to: &commit, &joined)) }
    return results
  }

  private func append(
    _ item: CommitItem, to commit: inout WriterSession.Commit, _ joined: inout [Digest: Int]
  ) throws(BlobStorageError) -> PutResult {
    let added = try item.plan.append(item.data.bytes, to: &commit, by: codecs, joined: &joined)
    let (version, refByteCount) = try commit.appendRef(
      item.key, item.plan.digest, Int64(item.plan.byteCount), item.ref)
    return PutResult(
      version: version, newByteCount: added.newByteCount,
      storedByteCount: Int64(added.storedByteCount + refByteCount))
  }

  package func makeDurable(
    _ durability: Durability, _ watermark: WriterSession.Watermark?
  ) throws(BlobStorageError) {
    if durability == .durable, let watermark { try writer.synchronize(watermark) }
  }

  /// For a change that has found nothing to do.
  package func makeDurableWhatIsThere(_ durability: Durability) throws(BlobStorageError) {
    if durability == .durable { try sharing.synchronizeFound(writer) }
  }
}

extension WriterSession.Commit {
  /// Appends the ref that makes a blob the current version of a key.
  ///
  /// - Throws: `conditionFailed` when the options' condition does not hold.
  mutating func appendRef(
    _ key: [UInt8], _ digest: Digest, _ byteCount: Int64, _ options: Engine.RefOptions
  ) throws(BlobStorageError) -> (BlobVersion, Int) {
    try transaction.check(options.condition, on: key)
    // The two newest versions of the key: the new one has to be newer than those that stay.
    var (newest, second) = (Stamp.none, Stamp.none)
    if let name = try transaction.nameRow(key) {
      try transaction.forEachVersion(of: name) { version in
        if newest == .none {
          newest = version.stamp
          return true
        }
        second = version.stamp
        return false
      }
    }
    // Of several puts of one key in one commit, each replaces the one before.
    if let earlier = lastVersion(of: key) { (newest, second) = (earlier, newest) }
    let isReplacing = options.replacement == .replaceCurrent
    let stamp = try stamp(after: isReplacing ? second : newest)
    let ref = RefRecord(
      key: key, version: stamp, replaced: isReplacing ? newest : .none, digest: digest, byteCount: byteCount,
      created: wallTime, metadata: options.metadata)
    let added = try append(.ref(ref))
    let row = VersionRow(
      place: Place(pack: 0, offset: 0, ordinal: 0), record: ref, recordByteCount: added)
    return (BlobVersion(key: String(decoding: key, as: UTF8.self), stamp: stamp, row: row), added)
  }
}

extension BlobContent {
  /// Its length if it is known beforehand; else 0.
  func knownByteCount() -> Int64 {
    switch self {
    case .data(let data): return Int64(data.count)
    case .file(let path):
      // Opening it reports errors.
      do { return try SystemFiles().status(of: FilePath(path))?.byteCount ?? 0 } catch { return 0 }
    case .descriptor, .stream: return 0
    }
  }
}

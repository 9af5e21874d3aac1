import Foundation
import Logging
import SystemPackage

extension BlobStore {
  // MARK: Reading

  /// The bytes of a key's current or named version; nil when there is none. A named version can be one that only
  /// snapshots of imports have.
  ///
  /// A blob of one chunk and at most 64 KiB is read on the caller's thread if it is in the page cache.
  ///
  /// - Throws: `corrupted` when the bytes are damaged or missing. See ``Verification``.
  public func data(
    forKey key: String, version: BlobVersion.ID? = nil, verification: Verification = .digest
  ) async throws(BlobStorageError) -> Data? {
    let start = engine.metrics == nil ? nil : ContinuousClock.now
    var data = engine.dataAtOnce(key, version, verification)
    if data == nil {
      data = try await read { (engine) throws(BlobStorageError) in try engine.data(key, version, verification)
      }
    }
    if let start { engine.record(data ?? nil, since: start) }
    return data ?? nil
  }

  /// The bytes of a version; nil when it was dropped. It can be one that only snapshots of imports have.
  ///
  /// - Throws: `corrupted` when the bytes are damaged or missing.
  public func data(
    of version: BlobVersion, verification: Verification = .digest
  ) async throws(BlobStorageError) -> Data? {
    try await data(forKey: version.key, version: version.id, verification: verification)
  }

  /// The bytes with that digest; nil when the store has no such blob.
  ///
  /// - Throws: `corrupted` when the bytes are damaged.
  public func data(
    for digest: BlobDigest, verification: Verification = .digest
  ) async throws(BlobStorageError) -> Data? {
    let start = engine.metrics == nil ? nil : ContinuousClock.now
    var data = engine.dataAtOnce(digest, verification)
    if data == nil {
      data = try await read { (engine) throws(BlobStorageError) in try engine.data(digest, verification) }
    }
    if let start { engine.record(data ?? nil, since: start) }
    return data ?? nil
  }

  /// Opens a key's current or named version for random access; nil when there is none.
  ///
  /// The version stays readable until the reader is closed, even if it is dropped meanwhile: ``BlobReader`` says when
  /// not.
  ///
  /// - Throws: `corrupted` when its manifest is damaged or missing; `busy` when the key changes faster than it can be
  ///   opened.
  /// - Complexity: writes a lease of 40 bytes. Reads the manifest of a blob of several chunks.
  public func reader(
    forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> BlobReader? {
    try await read { [reads, longWork] (engine) throws(BlobStorageError) in
      try engine.openBlob(key, version).map { BlobReader(blob: $0, reads: reads, longWork: longWork) }
    }
  }

  /// Opens a version for random access, as ``reader(forKey:version:)`` does; nil when it was dropped.
  public func reader(of version: BlobVersion) async throws(BlobStorageError) -> BlobReader? {
    try await reader(forKey: version.key, version: version.id)
  }

  /// Opens the blob with that digest; nil when the store does not have it. Unless a version or a hold needs the blob,
  /// gc may have begun to remove it: then reads throw `corrupted`.
  ///
  /// - Throws: `corrupted` when its manifest is damaged.
  public func reader(for digest: BlobDigest) async throws(BlobStorageError) -> BlobReader? {
    try await read { [reads, longWork] (engine) throws(BlobStorageError) in
      try engine.openBlob(digest).map { BlobReader(blob: $0, reads: reads, longWork: longWork) }
    }
  }

  /// Whether the store has a blob with that digest; true also for a chunk of a longer blob. Unless a version or a hold
  /// needs it, gc may remove it at any time.
  ///
  /// - Throws: `corrupted` when its manifest is damaged.
  /// - Complexity: a lookup; a blob of several chunks takes one read.
  public func contains(_ digest: BlobDigest) async throws(BlobStorageError) -> Bool {
    try await read { (engine) throws(BlobStorageError) in try engine.contains(digest) }
  }

  /// The current version of a key, or nil.
  public func currentVersion(of key: String) async throws(BlobStorageError) -> BlobVersion? {
    try await read { (engine) throws(BlobStorageError) in try engine.version(key, nil) }
  }

  /// A version by its ID, or nil.
  public func version(
    _ id: BlobVersion.ID, of key: String
  ) async throws(BlobStorageError) -> BlobVersion? {
    try await read { (engine) throws(BlobStorageError) in try engine.version(key, id) }
  }

  /// All versions of a key, newest first; empty when there is no such key.
  ///
  /// - Complexity: memory for each version.
  public func versions(of key: String) async throws(BlobStorageError) -> [BlobVersion] {
    try await read { (engine) throws(BlobStorageError) in try engine.versions(key) }
  }

  /// The versions that a key has now. They stay readable until the history is closed, as a reader's blob does.
  ///
  /// - Throws: `busy` when the key changes faster than they can be held.
  /// - Complexity: memory and a lease of 40 bytes for each version.
  public func history(of key: String) async throws(BlobStorageError) -> VersionHistory {
    try await read { [reads] (engine) throws(BlobStorageError) in
      VersionHistory(try engine.holdVersions(key), pool: reads)
    }
  }

  /// Up to `limit` keys of a prefix that come after `after`, in byte order.
  public func keys(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, after: String? = nil, limit: Int
  ) async throws(BlobStorageError) -> [KeyEntry] {
    let prefix = prefix.keyPrefix
    return try await read { (engine) throws(BlobStorageError) in
      try engine.keys(prefix, after: after, limit: limit)
    }
  }

  /// All keys of a prefix, in byte order, fetched a page at a time. Text means the key of that name and the keys below
  /// it: see ``KeyPrefix``.
  ///
  /// Keys that are put or dropped meanwhile may be missing. Every other key appears once. The sequence's iterator
  /// throws the errors of ``keys(prefix:after:limit:)``, and `cancelled` once the task is cancelled and the page ends.
  public func keys(prefix: some KeyPrefixConvertible = KeyPrefix.all) -> KeySequence {
    KeySequence(store: self, prefix: prefix.keyPrefix)
  }

  // MARK: Changing

  /// Stores bytes as the current version of a key.
  ///
  /// - Parameters:
  ///   - content: the bytes, a file, an open descriptor or a closure.
  ///   - key: 1 to 4,096 bytes of UTF-8 without NUL; compared byte by byte.
  ///   - options: durability, condition, codec, metadata, and what happens to the previous version.
  ///   - progress: receives the bytes of long content that were read, and the total if it is known.
  /// - Throws: `invalidArgument`, `limitExceeded`, `conditionFailed`, `sourceFailed`, `noSpace`, `busy`, `io`,
  ///   `cancelled`; the key is then unchanged. `poisoned` if a sync has failed. If it was the sync of this put, the key
  ///   has the new version, which a power cut may take. In a bucket, a durable put also throws if publishing fails, and
  ///   `cancelled` while it waits. Then this machine keeps the new version and publishes it later.
  /// - Durability: as `options` says, including every chunk that the blob shares with others.
  /// - Complexity: memory is bounded for any length. A small blob takes one append and, if durable, one sync.
  @discardableResult
  public func put(
    _ content: BlobContent, forKey key: String, options: PutOptions = PutOptions(),
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> PutResult {
    guard case .data = content else {
      return try await work { (engine) throws(BlobStorageError) in
        try Self.put(engine, key, content, options, progress)
      }
    }
    return try await change([key]) { (engine) throws(BlobStorageError) in
      try engine.put(key, content, options, progress)
    }
  }

  static func put(
    _ engine: Engine, _ key: String, _ content: BlobContent, _ options: PutOptions,
    _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> PutResult {
    if case .data = content { return try engine.put(key, content, options, progress) }
    return try engine.watched("put", on: key, byteCountMin: 16 << 20, progress) {
      (progress) throws(BlobStorageError) in try engine.put(key, content, options, progress)
    }
  }

  /// Stores bytes as the current version of a key.
  ///
  /// - Parameters:
  ///   - key: 1 to 4,096 bytes of UTF-8 without NUL; compared byte by byte.
  ///   - data: the bytes.
  ///   - archivingCurrent: whether the previous version stays in the key's history. By default it is dropped.
  ///   - durability: how safe the change is on return.
  /// - Throws: what ``put(_:forKey:options:progress:)`` throws.
  @discardableResult
  public func set(
    _ key: String, to data: Data, archivingCurrent: Bool = false, durability: Durability = .durable
  ) async throws(BlobStorageError) -> PutResult {
    let options = PutOptions(
      durability: durability, replacement: archivingCurrent ? .archiveCurrent : .replaceCurrent)
    return try await put(.data(data), forKey: key, options: options)
  }

  /// Stores bytes as the current version of a key, with any options.
  @discardableResult
  public func set(
    _ key: String, to data: Data, options: PutOptions
  ) async throws(BlobStorageError) -> PutResult {
    try await put(.data(data), forKey: key, options: options)
  }

  /// Stores several blobs in one commit: all of them or none. Meant for many small ones.
  ///
  /// Ignores the metadata and media type of `options`, because each item has its own.
  ///
  /// - Returns: one result per item, in their order.
  /// - Throws: `limitExceeded` for an item of more than 16 MiB, or a batch that is too long for one commit;
  ///   `invalidArgument` for a condition in a store in a bucket, and for two items with one key under a condition;
  ///   `conditionFailed`. Nothing was changed.
  /// - Complexity: the items are in memory. They take one append and, if durable, one sync together.
  @discardableResult
  public func put(
    _ items: [PutItem], options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> [PutResult] {
    try await change(items.map(\.key)) { (engine) throws(BlobStorageError) in try engine.put(items, options) }
  }

  /// Makes several changes in one commit: all of them or none. On a full disk, a batch that only deletes may use the
  /// store's reserve.
  ///
  /// - Parameters:
  ///   - changes: at most one for each key.
  ///   - durability: how safe the changes are on return.
  /// - Returns: for each change, in their order, what a put stored, and nil for a deletion.
  /// - Throws: `conditionFailed` when a condition does not hold; `invalidArgument` for two changes of one key, and for
  ///   conditions in a store in a bucket; `limitExceeded` for an item of more than 16 MiB, or a batch that is too long
  ///   for one commit. Nothing was changed.
  /// - Complexity: the items are in memory. They take one append and, if durable, one sync together.
  @discardableResult
  public func apply(
    _ changes: [BlobChange], durability: Durability = .durable
  ) async throws(BlobStorageError) -> [PutResult?] {
    try await change(changes.map(\.key)) { (engine) throws(BlobStorageError) in
      try engine.change(changes, durability)
    }
  }

  /// Drops keys with all their versions, in one commit. On a full disk it may use the store's reserve.
  ///
  /// - Returns: the number of keys that existed.
  /// - Throws: `limitExceeded` for more than one commit can drop; nothing was changed.
  @discardableResult
  public func delete(
    _ keys: [String], durability: Durability = .durable
  ) async throws(BlobStorageError) -> Int {
    try await change(keys) { (engine) throws(BlobStorageError) in try engine.delete(keys, durability) }
  }

  /// Drops a key with all its versions; false when it did not exist.
  ///
  /// - Throws: `conditionFailed` when `condition` does not hold, `invalidArgument` for a condition in a store in a
  ///   bucket. Nothing was changed.
  @discardableResult
  public func delete(
    _ key: String, if condition: ChangeCondition = .always, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Bool {
    try await change([key]) { (engine) throws(BlobStorageError) in
      try engine.delete([key], durability, if: condition) > 0
    }
  }

  /// Drops every key of a prefix, a thousand in each commit. After a failure some may be gone.
  ///
  /// - Returns: the number of keys that existed.
  /// - Throws: `invalidArgument` for the empty prefix, which is most often a mistake: ``deleteAllKeys(durability:)``
  ///   drops every key. `held` if a hold protects one of the keys when the call begins; nothing was changed.
  @discardableResult
  public func delete(
    prefix: some KeyPrefixConvertible, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Int {
    let prefix = prefix.keyPrefix
    return try await work { (engine) throws(BlobStorageError) in
      try engine.delete(prefix: Engine.nonempty(prefix, elseSay: "deleteAllKeys()"), durability)
    }
  }

  /// Drops every key, a thousand in each commit, and then every state that is not held. After a failure some may be
  /// gone.
  ///
  /// - Returns: the number of keys that existed.
  /// - Throws: `held` if a hold protects a key when the call begins; nothing was changed.
  @discardableResult
  public func deleteAllKeys(durability: Durability = .durable) async throws(BlobStorageError) -> Int {
    try await work { (engine) throws(BlobStorageError) in try engine.delete(prefix: .all, durability) }
  }

  /// Drops one version of a key. Returns false if there is none. If it was current, the version before it becomes
  /// current. On a full disk it may use the store's reserve.
  @discardableResult
  public func delete(
    version id: BlobVersion.ID, of key: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Bool {
    try await change([key]) { (engine) throws(BlobStorageError) in
      try VersionChanges(engine).delete(version: id, of: key, durability)
    }
  }

  // MARK: Versions of other keys

  /// Makes an existing blob the current version of a key.
  ///
  /// - Returns: nil if the store has no blob with that digest; then nothing was changed.
  /// - Throws: what ``put(_:forKey:options:progress:)`` throws, and `corrupted` for a blob that is damaged.
  /// - Durability: as `options` says.
  /// - Complexity: reads and verifies the blob. Stores a ref, and the bytes that lie in packs that gc is about to
  ///   remove.
  @discardableResult
  public func link(
    _ key: String, to digest: BlobDigest, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult? {
    try await work { (engine) throws(BlobStorageError) in
      try VersionChanges(engine).link(key, to: digest, options)
    }
  }

  /// Makes an earlier version of a key its current one, as a new version with the same bytes and metadata. The version
  /// that was current stays in the history by default.
  ///
  /// - Returns: nil if the key has no such version; then nothing was changed.
  /// - Throws: `corrupted` if the version's blob is unknown, `io` if the version's pack cannot be made durable. Nothing
  ///   was changed.
  /// - Complexity: stores a ref and no bytes; in a bucket also the bytes that lie in packs that gc is about to remove.
  @discardableResult
  public func restore(
    _ id: BlobVersion.ID, of key: String, replacement: Replacement = .archiveCurrent,
    durability: Durability = .durable
  ) async throws(BlobStorageError) -> PutResult? {
    let options = PutOptions(durability: durability, replacement: replacement)
    return try await change([key]) { (engine) throws(BlobStorageError) in
      try VersionChanges(engine).put(id, of: key, as: key, options)
    }
  }

  /// Makes the current or named version of a key the current version of another key, with the same bytes and metadata.
  ///
  /// The options say how durable it is, its condition, and what happens to the previous version of `target`. Their
  /// codec and metadata are ignored.
  ///
  /// - Returns: nil if there is no such version; then nothing was changed.
  /// - Throws: `conditionFailed`; `busy` while gc is moving what the version needs; `invalidArgument` for a condition
  ///   in a store in a bucket; what `restore` throws. Then nothing was changed.
  /// - Complexity: stores a ref and no bytes; in a bucket also the bytes that lie in packs that gc is about to remove.
  @discardableResult
  public func duplicate(
    _ key: String, version: BlobVersion.ID? = nil, as target: String, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult? {
    try await change([target]) { (engine) throws(BlobStorageError) in
      try VersionChanges(engine).put(version, of: key, as: target, options)
    }
  }

  /// Gives a key another name in one commit. Its versions keep bytes, dates, metadata and order, and get new IDs.
  ///
  /// - Returns: false if there is no such key.
  /// - Throws: `conditionFailed` if `target` exists; `busy` while gc is moving what a version needs; `invalidArgument`
  ///   if both names are equal, and for a store in a bucket, where another machine could create `target` at the same
  ///   time. Then nothing was changed.
  @discardableResult
  public func rename(
    _ key: String, to target: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Bool {
    try await change([key, target]) { (engine) throws(BlobStorageError) in
      try VersionChanges(engine).rename(key, to: target, durability)
    }
  }

  // MARK: Retention

  /// Keeps the current version of a key and its youngest `archivedCount` archived ones, and drops the others.
  ///
  /// A version that may still be lost does not count, so more may stay: one that a power cut may take, or that another
  /// process of a bucket has not published.
  ///
  /// - Throws: `invalidArgument` for a negative count; nothing was changed.
  @discardableResult
  public func keep(
    upTo archivedCount: Int, of key: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> RetentionResult {
    try await change([key]) { (engine) throws(BlobStorageError) in
      try engine.keep(upTo: archivedCount, keys: [key], durability)
    }
  }

  /// Keeps the youngest `archivedCount` archived versions of every key of a scope and the current ones, and drops the
  /// others.
  ///
  /// Passes over keys that a hold protects, unless the scope is one key: then it throws `held`. After a failure some
  /// versions may be gone.
  ///
  /// - Throws: `invalidArgument` for a negative count and for the empty prefix, which is most often a mistake:
  ///   ``KeyScope/all`` means every key. Nothing was changed.
  /// - Complexity: examines each key of the scope, a thousand in each commit.
  @discardableResult
  public func trimHistory(
    of scope: KeyScope, toArchived archivedCount: Int, durability: Durability = .durable
  ) async throws(BlobStorageError) -> RetentionResult {
    try await work { (engine) throws(BlobStorageError) in
      try engine.trimHistory(of: scope, toArchived: archivedCount, durability)
    }
  }

  // MARK: Values

  /// Stores a value as the current version of a key. A value that cannot be converted changes nothing.
  ///
  /// - Throws: `sourceFailed` when the conversion fails, and what ``put(_:forKey:options:progress:)`` throws.
  @discardableResult
  public func set<Value: Sendable>(
    _ key: String, to value: Value, as format: BlobFormat<Value>, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult {
    try await change([key]) { (engine) throws(BlobStorageError) in
      try engine.put(key, .data(try format.data(of: value, key: key)), options)
    }
  }

  /// Stores a value in JSON as the current version of a key.
  @discardableResult
  public func set<Value: Codable & Sendable>(
    _ key: String, to value: Value, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult {
    try await set(key, to: value, as: .json, options: options)
  }

  /// The value of a key's current or named version; nil when there is none.
  ///
  /// - Throws: `sourceFailed` if undamaged bytes cannot be converted, `corrupted` if the bytes are damaged.
  public func value<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, version: BlobVersion.ID? = nil,
    as format: BlobFormat<Value>
  ) async throws(BlobStorageError) -> Value? {
    try await read { (engine) throws(BlobStorageError) in
      guard let data = try engine.data(key, version) else { return nil }
      return try format.value(of: data, key: key)
    }
  }

  /// The bytes of a key's current or named version, as ``data(forKey:version:verification:)`` returns them.
  public func value(
    _ type: Data.Type = Data.self, forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> Data? {
    try await data(forKey: key, version: version)
  }

  /// The value of a key's current or named version from JSON; nil when there is none.
  public func value<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> Value? {
    try await value(type, forKey: key, version: version, as: .json)
  }

  /// Stores what a sequence delivers, part by part, as the current version of a key.
  ///
  /// The store requests the next part after it has taken the one before, so memory is bounded for any length. While the
  /// sequence waits, it occupies no thread that other operations need. The parts may have any length. Nothing is
  /// visible before the sequence has ended. If the put fails meanwhile, the call throws once the sequence delivers its
  /// next part or ends.
  ///
  /// - Parameters:
  ///   - source: the bytes in order. Once the put has failed, the store requests no more.
  ///   - key: as for ``put(_:forKey:options:progress:)``.
  ///   - options: durability, condition, codec, metadata, and what happens to the previous version.
  ///   - progress: receives the bytes that were read.
  /// - Throws: `sourceFailed` if the sequence throws, `cancelled` if the task is cancelled, and what
  ///   ``put(_:forKey:options:progress:)`` throws.
  /// - Durability: as `options` says.
  /// - Complexity: each call has a thread of its own until it returns.
  @discardableResult
  public func put<Source: AsyncSequence>(
    from source: Source, forKey key: String, options: PutOptions = PutOptions(),
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> PutResult where Source.Element: Sequence<UInt8> {
    // Before the store requests anything from the source.
    try await read { (engine) throws(BlobStorageError) in
      try engine.checkOpen()
      try engine.check(options.condition, on: try Engine.keyBytes(key))
    }
    let (engine, handover) = (engine, Handover())
    async let outcome = Self.result { () throws(BlobStorageError) in
      defer { handover.stop() }
      return try await OperationPool.onOwnThread { () throws(BlobStorageError) in
        try Self.put(engine, key, .stream { try handover.next() }, options, progress)
      }
    }
    do {
      for try await part in source {
        let data = Data(part)
        // An empty part would count as the end.
        if !data.isEmpty, await !handover.give(data) { break }
      }
      // The sequence may end because the task was cancelled: then its end is not the end of the content.
      try Task.checkCancellation()
      handover.end()
    } catch { handover.end(error) }
    return try await outcome.get()
  }

  /// The bytes of a range of a key's current or named version, clamped at the blob's end; nil when there is no version.
  ///
  /// - Throws: `invalidArgument` for a range that begins past the end or below 0, `corrupted`.
  /// - Complexity: writes a lease, and reads only the chunks that the range touches. For several ranges of one blob, a
  ///   reader is faster.
  public func data(
    forKey key: String, version: BlobVersion.ID? = nil, in range: Range<Int64>
  ) async throws(BlobStorageError) -> Data? {
    try await read { (engine) throws(BlobStorageError) in
      guard let blob = try engine.openBlob(key, version) else { return nil }
      defer { blob.close() }
      return Data(try blob.read(range))
    }
  }

  /// Opens a key's current or named version, passes it to `body`, and closes it; nil when there is no version.
  ///
  /// - Throws: what `reader` throws, and the errors of `body`.
  public func withReader<Result>(
    forKey key: String, version: BlobVersion.ID? = nil, isolation: isolated (any Actor)? = #isolation,
    _ body: (BlobReader) async throws -> Result
  ) async throws -> Result? {
    guard let reader = try await reader(forKey: key, version: version) else { return nil }
    defer { reader.close() }
    return try await body(reader)
  }

  private static func result<T>(
    _ body: () async throws(BlobStorageError) -> T
  ) async -> Result<T, BlobStorageError> {
    do throws(BlobStorageError) { return .success(try await body()) } catch { return .failure(error) }
  }
}

/// Hands parts of content from a task to a thread, one at a time.
private final class Handover: Sendable {
  private struct State: Sendable {
    var part: Data?
    /// Resumed once the part was taken, with whether more is wanted.
    var giver: CheckedContinuation<Bool, Never>?
    var hasEnded = false
    var failure: (any Error)?
    var isWanted = true
  }

  private let state = Monitor(State())

  /// Waits until the part was taken. Returns false if no more is wanted.
  func give(_ part: Data) async -> Bool {
    await withCheckedContinuation { giver in
      let isWanted = state.withLock { state in
        if state.isWanted { (state.part, state.giver) = (part, giver) }
        return state.isWanted
      }
      if isWanted { state.wakeOne() } else { giver.resume(returning: false) }
    }
  }

  /// Ends the parts, with an error if something failed.
  func end(_ failure: (any Error)? = nil) {
    state.withLock { ($0.hasEnded, $0.failure) = (true, failure) }
    state.wakeOne()
  }

  /// Waits for the next part. Returns nil at the end.
  func next() throws -> Data? {
    let (part, giver, failure) = try state.withLockUnlessCancelled(when: { $0.part != nil || $0.hasEnded }) {
      ($0.part.take(), $0.giver.take(), $0.failure)
    }
    giver?.resume(returning: true)
    if let failure { throw failure }
    return part
  }

  /// Tells the giver that no more is wanted.
  func stop() {
    let giver = state.withLock { state in
      (state.isWanted, state.part) = (false, nil)
      return state.giver.take()
    }
    giver?.resume(returning: false)
  }
}

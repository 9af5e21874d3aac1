import Foundation

// MARK: Reading

extension Engine {
  package func data(
    _ key: String, _ id: BlobVersion.ID?, _ verification: Verification = .digest
  ) throws(BlobStorageError) -> Data? {
    if let data = try smallData(key, id, verification) { return data }
    // The version can be dropped and collected between its lookup and the read of its chunks. Then it is looked up
    // again. If the same version still exists, its chunks are missing.
    for attempt in 0..<3 {
      guard let version = try version(key, id) else { return nil }
      do throws(BlobStorageError) {
        if let data = try data(version.digest, verification) { return data }
      } catch {
        guard error.code == .corrupted, attempt < 2, try self.version(key, id)?.digest != version.digest
        else {
          throw named(error, key)
        }
        continue
      }
      guard try self.version(key, id)?.digest == version.digest else { continue }
      throw named(Self.missing(version.digest), key)
    }
    return nil
  }

  /// Reads a version's blob in one view, if it is a single chunk; nil if ``data(_:_:_:)`` must read it the general way.
  private func smallData(
    _ key: String, _ id: BlobVersion.ID?, _ verification: Verification
  ) throws(BlobStorageError) -> Data? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    let look = try unlessCorrupted(
      try chunks.look(verification) { (view) throws(BlobStorageError) in
        try view.digest(ofKey: bytes, id?.stamp)
      })
    // The general way finds out whether the version was dropped and collected meanwhile.
    guard case .bytes(let data)? = look else { return nil }
    return data
  }

  /// Returns the result of ``data(_:_:_:)`` if a small blob can be read without waiting; otherwise nil.
  ///
  /// For threads that run tasks: it takes about as long as waking another thread. It waits for no other process, and
  /// reads the blob's bytes only from the page cache.
  package func dataAtOnce(
    _ key: String, _ id: BlobVersion.ID?, _ verification: Verification
  ) -> Data?? {
    // The general way reports the error, or repairs its cause.
    do throws(BlobStorageError) {
      try checkOpen()
      let bytes = try Self.keyBytes(key)
      return Self.answer(
        try chunks.lookAtOnce(verification) { (view) throws(BlobStorageError) in
          try view.digest(ofKey: bytes, id?.stamp)
        })
    } catch { return nil }
  }

  /// The same for a digest. Returns nil for a missing blob, because a reader may have to extend the catalog first.
  package func dataAtOnce(_ digest: BlobDigest, _ verification: Verification) -> Data?? {
    do throws(BlobStorageError) {
      try checkOpen()
      try check(digest)
      return Self.answer(try chunks.lookAtOnce(verification) { _ in digest })
    } catch { return nil }
  }

  private static func answer(_ look: ChunkSource.Look) -> Data?? {
    switch look {
    case .bytes(let data): .some(data)
    case .noDigest: .some(nil)
    case .unknown: nil
    }
  }

  package func data(
    _ digest: BlobDigest, _ verification: Verification = .digest
  ) throws(BlobStorageError) -> Data? {
    try checkOpen()
    try check(digest)
    guard let layout = try blobs.layout(digest) else { return nil }
    if layout.byteCount == 0 { return Data() }
    guard layout.byteCount <= Int.max / 2 else {
      throw BlobStorageError(
        .limitExceeded, "Blob \(digest) is too long for memory: use a reader.", digest: digest)
    }
    if layout.chunkCount == 1 { return try chunks.data(digest, verification) }
    // A manifest may claim any length, so only a limited part is allocated in advance.
    var data = Data(capacity: Int(min(layout.byteCount, 64 << 20)))
    try blobs.streamWhole(layout, verification) { data.append(contentsOf: $0) }
    return data
  }

  /// The same for a blob of at most so many bytes. Returns nil for a longer one: what a version or an attribute says of
  /// its length may be forged.
  package func data(_ digest: BlobDigest, atMost byteCountMax: Int) throws(BlobStorageError) -> Data? {
    try checkOpen()
    guard let layout = try blobs.layout(digest), layout.byteCount <= byteCountMax else { return nil }
    return try data(digest)
  }

  /// Whether the store has a blob or chunk with that digest.
  package func contains(_ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    try checkOpen()
    try check(digest)
    return try blobs.layout(digest) != nil
  }

  package func openBlob(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> OpenBlob? {
    for _ in 0..<8 {
      guard let version = try version(key, id) else { return nil }
      let hold = try leases.holdWhereThereIsRoom([.blob(version.digest)])
      // Only a version that still exists after the lease was written is sure to stay readable.
      guard try self.version(key, id)?.id == version.id else {
        leases.release(hold)
        continue
      }
      do throws(BlobStorageError) {
        guard let layout = try blobs.layout(version.digest) else {
          throw Self.missing(version.digest)
        }
        return OpenBlob(engine: self, layout: layout, hold: hold)
      } catch {
        leases.release(hold)
        throw named(error, key)
      }
    }
    throw BlobStorageError(.busy, "Key “\(key)” changes faster than it can be opened: try again.", key: key)
  }

  package func openBlob(_ digest: BlobDigest) throws(BlobStorageError) -> OpenBlob? {
    try checkOpen()
    try check(digest)
    let hold = try leases.holdWhereThereIsRoom([.blob(digest)])
    do throws(BlobStorageError) {
      if let layout = try blobs.layout(digest) { return OpenBlob(engine: self, layout: layout, hold: hold) }
    } catch {
      leases.release(hold)
      throw error
    }
    leases.release(hold)
    return nil
  }

  package func holdVersions(_ key: String) throws(BlobStorageError) -> HeldVersions {
    for _ in 0..<8 {
      let versions = try versions(key)
      let hold = try leases.holdWhereThereIsRoom(versions.map { .blob($0.digest) })
      if try self.versions(key) == versions {
        return HeldVersions(engine: self, versions: versions, hold: hold)
      }
      leases.release(hold)
    }
    throw BlobStorageError(
      .busy, "Key “\(key)” changes faster than its history can be opened: try again.", key: key)
  }

  private func check(_ digest: BlobDigest) throws(BlobStorageError) {
    guard digest.algorithm == header.digestAlgorithm else {
      throw BlobStorageError(
        .invalidArgument,
        "The store names blobs by \(header.digestAlgorithm.name): \(digest) cannot be in it.",
        digest: digest)
    }
  }

  static func missing(_ digest: BlobDigest) -> BlobStorageError {
    BlobStorageError(
      .corrupted, "Blob \(digest) is missing from the store: put the same bytes again to heal it.",
      digest: digest)
  }

  /// The error for a version that cannot be read. If another machine has fenced this one, the error says so first:
  /// relaxed puts may refer to chunks that are gone.
  private func named(_ error: BlobStorageError, _ key: String) -> BlobStorageError {
    guard error.key == nil, error.code == .corrupted else { return error }
    let cause = sharing.fencing ?? error
    return BlobStorageError(
      cause.code, "Key “\(key)”: \(cause.message)", key: key, digest: error.digest, pack: error.pack,
      offset: error.offset, path: error.path, errno: error.errno)
  }

  // MARK: Keys

  /// Keys that one commit of a change to a prefix drops.
  private static let keyCountOfCommit = 1_000

  package func version(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> BlobVersion? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    return try catalog.read { (transaction) throws(BlobStorageError) -> BlobVersion? in
      try Self.found(id, of: bytes, transaction).map { BlobVersion(key: key, stamp: $0.stamp, row: $0.row) }
    }
  }

  /// The version of that ID, or the current one.
  private static func found(
    _ id: BlobVersion.ID?, of key: [UInt8], _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> StampedVersion? {
    guard let name = try transaction.nameRow(key) else { return nil }
    guard let id else { return name.current }
    return try transaction.versionRow(of: name, id.stamp).map { StampedVersion(stamp: id.stamp, row: $0) }
  }

  package func versions(_ key: String) throws(BlobStorageError) -> [BlobVersion] {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    return try catalog.read { (transaction) throws(BlobStorageError) in
      guard let name = try transaction.nameRow(bytes) else { return [] }
      return try transaction.versions(of: name).map {
        BlobVersion(key: key, stamp: $0.stamp, row: $0.row)
      }
    }
  }

  package func keys(_ prefix: String, after: String?, limit: Int) throws(BlobStorageError) -> [KeyEntry] {
    try keys(Array(prefix.utf8), after: after.map { Array($0.utf8) }, limit: limit)
  }

  /// The same for bytes that need not be UTF-8: `after` can lie behind all keys of a prefix.
  package func keys(
    _ prefix: [UInt8], after: [UInt8]?, limit: Int
  ) throws(BlobStorageError) -> [KeyEntry] {
    try checkOpen()
    guard limit > 0 else { return [] }
    return try catalog.read { (transaction) throws(BlobStorageError) in
      var entries: [KeyEntry] = []
      try transaction.forEachKey(prefix: prefix, after: after) {
        (key, name) throws(BlobStorageError) in
        if let found = try KeyPages.entry(key, name, transaction) { entries.append(found.entry) }
        return entries.count < limit
      }
      return entries
    }
  }

  /// Calls `body` with pages of the keys that begin with `prefix`, each key with its current version.
  package func forEachPage(
    prefix: String = "", countMax: Int = 1_000, _ body: ([KeyEntry]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var pages = KeyPages(catalog, prefix: prefix, countMax: countMax)
    while true {
      try checkOpen()
      guard let page = try pages.next(KeyPages.entry) else { return }
      try body(page)
    }
  }

  package func delete(
    _ keys: [String], _ durability: Durability, if condition: ChangeCondition = .always
  ) throws(BlobStorageError) -> Int {
    try checkOpen()
    let bytes = try Self.distinctBytes(keys)
    for key in bytes { try check(condition, on: key) }
    return try drop(bytes, keeping: nil, durability, if: condition, held: .refused).keyCount
  }

  /// Removes duplicate keys. A commit looks up the versions before it, so it would count a repeated key twice.
  private static func distinctBytes(_ keys: [String]) throws(BlobStorageError) -> [[UInt8]] {
    var distinct: [[UInt8]] = []
    var seen: Set<[UInt8]> = []
    for key in keys {
      let bytes = try keyBytes(key)
      if seen.insert(bytes).inserted { distinct.append(bytes) }
    }
    return distinct
  }

  /// Returns the prefix, or throws `invalidArgument` if it is empty: a change to all keys needs an explicit call.
  package static func nonempty(
    _ prefix: String, elseSay explicit: String
  ) throws(BlobStorageError) -> String {
    if !prefix.isEmpty { return prefix }
    throw BlobStorageError(
      .invalidArgument, "An empty prefix would mean every key: use \(explicit) for that.")
  }

  package func delete(prefix: String, _ durability: Durability) throws(BlobStorageError) -> Int {
    try checkOpen()
    try checkHolds(onPrefix: Array(prefix.utf8))
    var pages = KeyPages(catalog, prefix: prefix, countMax: Self.keyCountOfCommit)
    var count = 0
    while let keys = try pages.next({ key, _, _ in (key, 1) }) {
      count += try drop(keys, keeping: nil, durability, held: .refused).keyCount
    }
    // The pages lack keys that were gone already.
    try makeFoundDurable(durability, hasDropped: false)
    // With all keys gone, the states are void.
    if prefix.isEmpty { try dropStates() }
    return count
  }

  package func trimHistory(
    of scope: KeyScope, toArchived count: Int, _ durability: Durability
  ) throws(BlobStorageError) -> RetentionResult {
    switch scope {
    case .all: try keep(upTo: count, prefix: "", durability)
    case .prefix(let prefix):
      try keep(
        upTo: count, prefix: Self.nonempty(prefix, elseSay: "trimHistory(of: .all, toArchived:)"), durability)
    case .key(let key): try keep(upTo: count, keys: [key], durability)
    }
  }

  package func keep(
    upTo count: Int, keys: [String], _ durability: Durability
  ) throws(BlobStorageError) -> RetentionResult {
    try checkOpen()
    try Self.checkRetention(count)
    return try drop(try Self.distinctBytes(keys), keeping: count, durability, held: .refused)
  }

  package func keep(
    upTo count: Int, prefix: String, _ durability: Durability
  ) throws(BlobStorageError) -> RetentionResult {
    try Self.checkRetention(count)
    try checkOpen()
    var pages = KeyPages(catalog, prefix: prefix, countMax: Self.keyCountOfCommit)
    var result = RetentionResult(keyCount: 0, droppedVersionCount: 0)
    while let keys = try pages.next({ key, _, _ in (key, 1) }) {
      let page = try drop(keys, keeping: count, durability, held: .skipped)
      result.keyCount += page.keyCount
      result.droppedVersionCount += page.droppedVersionCount
    }
    try makeFoundDurable(durability, hasDropped: false)
    return result
  }

  private static func checkRetention(_ count: Int) throws(BlobStorageError) {
    guard count >= 0 else {
      throw BlobStorageError(
        .invalidArgument, "The number of archived versions to keep must be 0 or more, not \(count).")
    }
  }

  /// What a drop does with keys that a hold protects.
  package enum HeldKeys { case refused, skipped }

  /// Drops all versions of keys, or all but the current one and the youngest `count` archived ones, in one commit.
  ///
  /// - Throws: `conditionFailed` when the condition does not hold for a key, `held` for a held key that is refused;
  ///   nothing was changed.
  func drop(
    _ keys: [[UInt8]], keeping count: Int?, _ durability: Durability, if condition: ChangeCondition = .always,
    held: HeldKeys
  ) throws(BlobStorageError) -> RetentionResult {
    // More versions than `Int.max` do not fit into memory, so `Int.max` keeps all.
    let kept = count.map { $0 == Int.max ? $0 : $0 + 1 } ?? 0
    // A caller that drops wants to free space, so dropping must not need space.
    let (result, watermark) = try folder.withReserve { () throws(BlobStorageError) in
      try writer.keepingNewest(kept, of: keys) { (needsSync) throws(BlobStorageError) in
        try writer.commit(on: keys) { (commit) throws(BlobStorageError) -> RetentionResult in
          var result = RetentionResult(keyCount: 0, droppedVersionCount: 0)
          for key in keys {
            try commit.transaction.check(condition, on: key)
            if let hold = try commit.hold(on: key) {
              if held == .refused { throw hold.refusal(of: key) }
              continue
            }
            let droppedCount = try commit.dropVersions(of: key, keeping: kept, needsSync: needsSync)
            guard let droppedCount else { continue }
            result.keyCount += 1
            result.droppedVersionCount += droppedCount
          }
          commit.isPromised = durability == .durable && result.droppedVersionCount > 0
          return result
        }
      }
    }
    try makeDropDurable(durability, watermark, hasDropped: result.droppedVersionCount > 0)
    return result
  }
}

/// Changes to versions that store no bytes: new versions refer to existing blobs.
///
/// While a version exists, everything that it needs exists. The commit that reads the version publishes the new one
/// before any other commit can drop the old one. A version of another key needs more, because gc may already have
/// passed that key: see ``FoundBlobs``.
extension Engine {
  /// Makes a version of `source` the current one of `target`, with its metadata; nil if it does not exist.
  ///
  /// - Parameter id: nil for the current version.
  package func putVersion(
    _ id: BlobVersion.ID?, of source: String, as target: String, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try putVersion(id, of: try Self.keyBytes(source), as: try Self.keyBytes(target), options)
  }

  /// The same for keys in bytes, such as internal ones.
  package func putVersion(
    _ id: BlobVersion.ID?, of from: [UInt8], as to: [UInt8], _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try checkOpen()
    try check(options.condition, on: to)
    if !sharing.collectsBesideCommits, let row = try row(id, of: from),
      try writer.lacksPack(of: [row], blobs)
    {
      return try putAgain(id, of: from, as: to, options)
    }
    return try commitVersions(on: [from, to], options.durability) {
      (commit, found) throws(BlobStorageError) -> PutResult? in
      guard let row = try Self.found(id, of: from, commit.transaction)?.row,
        try found.mayReferTo([row], commit)
      else { return nil }
      var ref = RefOptions(options)
      ref.metadata = row.metadata
      let (version, byteCount) = try commit.appendRef(to, row.digest, row.byteCount, ref)
      return PutResult(version: version, newByteCount: 0, storedByteCount: Int64(byteCount))
    } orInBucket: { [self] () throws(BlobStorageError) -> PutResult? in
      try putAgain(id, of: from, as: to, options)
    }
  }

  private func row(_ id: BlobVersion.ID?, of key: [UInt8]) throws(BlobStorageError) -> VersionRow? {
    try catalog.read { (transaction) throws(BlobStorageError) in
      try Self.found(id, of: key, transaction)?.row
    }
  }

  /// Puts the content and the metadata of a version like any others: what lies in condemned or cut packs is stored
  /// again.
  private func putAgain(
    _ id: BlobVersion.ID?, of from: [UInt8], as to: [UInt8], _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    guard let row = try row(id, of: from) else { return nil }
    guard let blob = try openBlob(row.digest) else { throw Self.missing(row.digest) }
    defer { blob.close() }
    let metadata = StoredMetadata(row.metadata)
    var options = options
    (options.mediaType, options.metadata, options.codec) = (metadata.mediaType, metadata.own, nil)
    return try Self.puttingBlob { () throws(BlobStorageError) in
      try store(to, Self.content(of: blob), options)
    }
  }

  /// Puts a blob that is there under a key; nil if it is not there.
  ///
  /// If no version needs the blob, gc may be about to remove it. So its bytes are put like any others, which
  /// deduplicates them. A lease protects the blob meanwhile.
  package func link(
    _ key: String, to digest: BlobDigest, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try check(options.condition, on: try Self.keyBytes(key))
    guard let blob = try openBlob(digest) else { return nil }
    defer { blob.close() }
    return try Self.puttingBlob { () throws(BlobStorageError) in
      try put(key, Self.content(of: blob), options)
    }
  }

  /// Moves all versions of a key to a key that does not exist; false if `source` does not exist.
  package func rename(
    _ source: String, to target: String, _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    let (from, to) = (try Self.keyBytes(source), try Self.keyBytes(target))
    guard from != to else {
      throw BlobStorageError(.invalidArgument, "The key “\(source)” has that name already.", key: source)
    }
    try checkOpen()
    try check(.absent, on: to)
    return try rename(from, to: to, durability)
  }

  /// The same for internal keys. Also works in a bucket, whose commit sees only what this machine knows of the target.
  package func rename(
    _ from: [UInt8], to: [UInt8], _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    try checkOpen()
    return try commitVersions(on: [from, to], durability) {
      (commit, found) throws(BlobStorageError) in
      guard let name = try commit.transaction.nameRow(from), name.versionCount > 0 else { return nil }
      try commit.checkHold(on: from)
      let versions = try commit.transaction.versions(of: name)
      guard try found.mayReferTo(versions.map(\.row), commit) else { return nil }
      // Made here, because the commit can be tried more than once.
      var ref = RefOptions(PutOptions(replacement: .archiveCurrent, condition: .absent))
      for version in versions.reversed() {
        ref.metadata = version.row.metadata
        _ = try commit.appendRef(
          to, version.row.digest, version.row.byteCount, ref, created: version.row.created)
        // The next version follows this one.
        ref.condition = .always
      }
      _ = try commit.dropVersions(of: from, keeping: 0)
      return true
    } ?? false
  }

  /// Drops one version of a key; false if it does not exist.
  package func delete(
    version id: BlobVersion.ID, of key: String, _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    try checkOpen()
    let key = try Self.keyBytes(key)
    // A caller that drops wants to free space, so dropping must not need space.
    let done = try folder.withReserve { () throws(BlobStorageError) in
      try committedVersions(on: [key], durability) { (commit, _) throws(BlobStorageError) -> Bool? in
        guard let name = try commit.transaction.nameRow(key),
          try commit.transaction.versionRow(of: name, id.stamp) != nil
        else { return nil }
        try commit.checkHold(on: key)
        try commit.drop([id.stamp], of: key)
        return true
      }
    }
    try makeDropDurable(durability, done?.watermark, hasDropped: done != nil)
    return done != nil
  }

  /// Makes a drop durable, and what it has found gone. Apart from its commit: if that ran once more, it would find
  /// nothing to drop.
  func makeDropDurable(
    _ durability: Durability, _ watermark: WriterSession.Watermark?, hasDropped: Bool
  ) throws(BlobStorageError) {
    if hasDropped {
      try folder.withReserve { () throws(BlobStorageError) in try makeDurable(durability, watermark) }
    }
    try folder.withReserve { () throws(BlobStorageError) in
      try makeFoundDurable(durability, hasDropped: hasDropped)
    }
  }

  /// Commits what `body` appends, and makes it durable if that is asked for.
  private func commitVersions<T>(
    on keys: [[UInt8]], _ durability: Durability,
    _ body: (inout WriterSession.Commit, inout FoundBlobs) throws(BlobStorageError) -> T?,
    orInBucket putAgain: (() throws(BlobStorageError) -> T?)? = nil
  ) throws(BlobStorageError) -> T? {
    guard let done = try committedVersions(on: keys, durability, body, orInBucket: putAgain) else {
      return nil
    }
    try makeDurable(durability, done.watermark)
    return done.result
  }

  /// Commits what `body` appends. While `body` returns nil because it may not refer to something yet, does the missing
  /// work and calls it again.
  ///
  /// - Parameter putAgain: does it another way in a bucket, where the commit may not refer to something for long. Packs
  ///   stay condemned for long there, and what another program has cut stays so.
  private func committedVersions<T>(
    on keys: [[UInt8]], _ durability: Durability,
    _ body: (inout WriterSession.Commit, inout FoundBlobs) throws(BlobStorageError) -> T?,
    orInBucket putAgain: (() throws(BlobStorageError) -> T?)? = nil
  ) throws(BlobStorageError) -> (result: T, watermark: WriterSession.Watermark?)? {
    let isShared = !sharing.collectsBesideCommits
    var found = FoundBlobs(checksCondemned: isShared || keys.first != keys.last)
    for _ in 0..<8 {
      found.begin()
      let (result, watermark) = try writer.commit(on: keys) { (commit) throws(BlobStorageError) in
        commit.isPromised = durability == .durable
        return try body(&commit, &found)
      }
      if found.isComplete { return result.map { ($0, watermark) } }
      var refusal = found.refusal
      if refusal == nil, let lost = try writer.publisher.secure(found.unsynced, of: writer) {
        refusal = BlobStorageError(
          .io, "Pack \(lost), which the version is in, cannot be made durable: run verify.", pack: "\(lost)")
      }
      if let refusal {
        // A collection that was killed has left packs condemned.
        if found.refusal != nil, try sharing.finishLastCollection(self) { continue }
        guard let putAgain, isShared else { throw refusal }
        // It has made its result durable.
        return try putAgain().map { ($0, nil) }
      }
      for digest in found.unknown {
        guard let layout = try blobs.layout(digest) else { throw Self.missing(digest) }
        found.add(digest, try chunks(of: layout), hasManifest: layout.chunkCount > 1)
      }
    }
    throw BlobStorageError(.busy, "Other processes change the key again and again: try again.")
  }

  /// The chunks of a blob, including its lists: each once, because a hostile manifest can name a chunk more often than
  /// memory can hold. The empty blob is a chunk, too.
  private func chunks(of layout: BlobLayout) throws(BlobStorageError) -> Set<BlobDigest> {
    var digests: Set<BlobDigest> = []
    try LiveWalk(blobs).forEachPart(of: layout) { part in
      digests.insert(part.digest)
      return true
    }
    return digests
  }
}

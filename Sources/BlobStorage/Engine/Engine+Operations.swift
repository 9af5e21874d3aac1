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
        return OpenBlob(engine: self, layout: layout, hold: hold, version: version)
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
      if let id {
        return try transaction.readableVersion(ofKey: bytes, id.stamp).map {
          BlobVersion(key: key, stamp: id.stamp, row: $0)
        }
      }
      return try transaction.currentVersion(ofKey: bytes).map {
        BlobVersion(key: key, stamp: $0.stamp, row: $0.row)
      }
    }
  }

  /// The version of that ID in the key's history, or the current one.
  static func found(
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

  package func keys(
    _ prefix: KeyPrefix, after: String?, limit: Int
  ) throws(BlobStorageError) -> [KeyEntry] {
    let place = after.map { Array($0.utf8) }
    var entries: [KeyEntry] = []
    if let own = prefix.own, place.map({ $0.lexicographicallyPrecedes(own.utf8) }) ?? true {
      entries = try keys(Array(own.utf8), after: nil, limit: min(limit, 1)).filter {
        $0.key.utf8.elementsEqual(own.utf8)
      }
    }
    return try entries + keys(Array(prefix.start.utf8), after: place, limit: limit - entries.count)
  }

  /// The keys that begin with bytes, which need not be UTF-8: `after` can lie behind all keys of a prefix.
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

  /// Calls `body` with pages of the keys of a prefix, each key with its current version.
  package func forEachPage(
    prefix: KeyPrefix = .all, countMax: Int = 1_000, _ body: ([KeyEntry]) throws(BlobStorageError) -> Void
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
    _ prefix: KeyPrefix, elseSay explicit: String
  ) throws(BlobStorageError) -> KeyPrefix {
    if !prefix.isAll { return prefix }
    throw BlobStorageError(
      .invalidArgument, "An empty prefix would mean every key: use \(explicit) for that.")
  }

  package func delete(prefix: KeyPrefix, _ durability: Durability) throws(BlobStorageError) -> Int {
    try checkOpen()
    try checkHolds(on: prefix)
    var pages = KeyPages(catalog, prefix: prefix, countMax: Self.keyCountOfCommit)
    var count = 0
    while let keys = try pages.next({ key, _, _ in (key, 1) }) {
      count += try drop(keys, keeping: nil, durability, held: .refused).keyCount
    }
    // The pages lack keys that were gone already.
    try makeFoundDurable(durability, hasDropped: false)
    // With all keys gone, the states are void.
    if prefix.isAll { try dropStates() }
    return count
  }

  package func trimHistory(
    of scope: KeyScope, toArchived count: Int, _ durability: Durability
  ) throws(BlobStorageError) -> RetentionResult {
    switch scope {
    case .all: try keep(upTo: count, prefix: .all, durability)
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
    upTo count: Int, prefix: KeyPrefix, _ durability: Durability
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
      try KeptVersions(writer).keepingNewest(kept, of: keys) { (needsSync) throws(BlobStorageError) in
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

  // MARK: Puts and changes

  package func put(
    _ key: String, _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> PutResult {
    try measured { () throws(BlobStorageError) in
      try putUnmeasured(key, content, options, progress)
    } _: {
      .put([$0], $1)
    }
  }

  private func putUnmeasured(
    _ key: String, _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> PutResult {
    try checkOpen()
    let keyBytes = try Self.keyBytes(key)
    try MemoryPut.check(options)
    try check(options.condition, on: keyBytes)
    return try store(keyBytes, content, options, progress)
  }

  /// Puts content under any key: short content from memory, other content as a stream.
  func store(
    _ key: [UInt8], _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> PutResult {
    let done: (result: PutResult, watermark: WriterSession.Watermark?)
    if case .data(let data) = content, data.count <= MemoryPut.byteCountMax {
      done = try memoryPut.commit(key, data, options)
    } else {
      var put = try streamPut(options)
      if let progress {
        let total = content.knownByteCount()
        put.progress = { done in
          progress(
            WorkProgress(
              phase: "storing", doneByteCount: done, totalByteCount: total > 0 ? max(done, total) : 0))
        }
        // A stream may take long to deliver its first byte.
        put.progress(0)
      }
      done = try put.run(key, content)
    }
    try makeDurable(options.durability, done.watermark)
    return done.result
  }

  package func put(_ items: [PutItem], _ options: PutOptions) throws(BlobStorageError) -> [PutResult] {
    try measured { () throws(BlobStorageError) in
      try putUnmeasured(items, options)
    } _: {
      .put($0, $1)
    }
  }

  private func putUnmeasured(
    _ items: [PutItem], _ options: PutOptions
  ) throws(BlobStorageError) -> [PutResult] {
    try checkOpen()
    var prepared: [MemoryPut.Item] = []
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
      prepared.append(try memoryPut.prepare(key, item, options))
    }
    let joined = environment.joinsItems ? try memoryPut.joined(prepared, by: options.codec) : []
    let (results, watermark) = try memoryPut.commit(
      prepared, joined: joined, by: options.codec, promising: options.durability)
    try makeDurable(options.durability, watermark)
    return results
  }

  /// Creates a put of content of any length.
  package func streamPut(_ options: PutOptions) throws(BlobStorageError) -> StreamPut {
    try StreamPut(
      memoryPut, options,
      StreamPut.Batching(
        headByteCount: environment.streamHeadByteCount, batchByteCount: environment.streamBatchByteCount))
  }

  /// Throws the error that the commit would throw if the condition does not hold, before any content is read or stored.
  ///
  /// - Throws: `conditionFailed`; `invalidArgument` for a condition in a store in a bucket.
  package func check(_ condition: ChangeCondition, on key: [UInt8]) throws(BlobStorageError) {
    if condition == .always { return }
    try sharing.requireOwnPacks(
      "A store in a bucket does not support conditions: another machine may change the key at the same time."
    )
    try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.check(condition, on: key)
    }
  }

  /// Makes several changes in one commit: all of them or none.
  package func change(
    _ changes: [BlobChange], _ durability: Durability
  ) throws(BlobStorageError) -> [PutResult?] {
    try checkOpen()
    var items: [MemoryPut.Item] = []
    var deleted: [(key: [UInt8], condition: ChangeCondition)] = []
    var seen: Set<[UInt8]> = []
    for change in changes {
      let key = try Self.keyBytes(change.key)
      guard seen.insert(key).inserted else {
        throw BlobStorageError(
          .invalidArgument,
          "Two changes are for the key “\(change.key)”: a commit changes each key once.",
          key: change.key)
      }
      try check(change.condition, on: key)
      switch change {
      case .put(let item, let replacement, let condition):
        let options = PutOptions(durability: durability, replacement: replacement, condition: condition)
        items.append(try memoryPut.prepare(key, item, options))
      case .delete(_, let condition): deleted.append((key, condition))
      }
    }
    func commitOnce() throws(BlobStorageError) -> ([PutResult], WriterSession.Watermark?) {
      try memoryPut.commit(items, promising: durability, on: deleted.map(\.key)) {
        (commit) throws(BlobStorageError) in
        for (key, condition) in deleted {
          try commit.transaction.check(condition, on: key)
          try commit.checkHold(on: key)
          _ = try commit.dropVersions(of: key, keeping: 0)
        }
      }
    }
    // A caller that only drops wants to free space, so dropping must not need space.
    let (stored, watermark) =
      try items.isEmpty
      ? folder.withReserve { () throws(BlobStorageError) in try commitOnce() } : commitOnce()
    if items.isEmpty, !deleted.isEmpty {
      try makeDropDurable(durability, watermark, hasDropped: watermark != nil)
    } else {
      try makeDurable(durability, watermark)
      if !deleted.isEmpty { try makeFoundDurable(durability, hasDropped: watermark != nil) }
    }
    var results = stored.makeIterator()
    return changes.map { change in
      if case .put = change { results.next() } else { nil }
    }
  }

  package func makeDurable(
    _ durability: Durability, _ watermark: WriterSession.Watermark?
  ) throws(BlobStorageError) {
    guard durability == .durable, let watermark else { return }
    try measured { () throws(BlobStorageError) in
      try writer.synchronize(watermark)
    } _: {
      .synchronized(duration: $1)
    }
  }

  /// Makes durable what a drop has found gone already. Another change may have dropped or replaced it, and a power cut
  /// must not bring it back.
  ///
  /// - Parameter hasDropped: whether this process has made all durable that it has committed up to the drop. Then only
  ///   the packs of others remain, and in a bucket nothing.
  package func makeFoundDurable(_ durability: Durability, hasDropped: Bool) throws(BlobStorageError) {
    guard durability == .durable else { return }
    if hasDropped { return try writer.synchronizeOpenPacks(exceptFailed: [], isOfOthers: true) }
    try sharing.synchronizeFound(writer, exceptFailed: [])
  }
}

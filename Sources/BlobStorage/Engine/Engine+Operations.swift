import Foundation

// MARK: Reading

extension Engine {
  package func data(
    _ key: String, _ id: BlobVersion.ID?, _ verification: Verification = .digest
  ) throws(BlobStorageError) -> Data? {
    if let data = try smallData(key, id, verification) { return data }
    // Between looking up the version and reading its chunks, it can be dropped and collected: then it is looked up
    // again, and what is missing then is missing.
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

  /// The blob of a version if it is a single chunk that can be read at once: looked up in one view.
  private func smallData(
    _ key: String, _ id: BlobVersion.ID?, _ verification: Verification
  ) throws(BlobStorageError) -> Data? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    let look = try unlessCorrupted(
      try chunks.look(verification) { (view) throws(BlobStorageError) in
        try view.digest(ofKey: bytes, id?.stamp)
      })
    // It may have been dropped and collected meanwhile: the long way finds out.
    guard case .bytes(let data)? = look else { return nil }
    return data
  }

  /// What ``data(_:_:_:)`` returns, if a small blob can be read without waiting; otherwise nil.
  ///
  /// For the threads that run tasks: it takes about as long as to wake another thread. It waits for no other process.
  /// Bytes of the blob are read from the page cache only.
  package func dataAtOnce(
    _ key: String, _ id: BlobVersion.ID?, _ verification: Verification
  ) -> Data?? {
    // An error is told by the long way, which also mends what can be mended.
    do throws(BlobStorageError) {
      try checkOpen()
      let bytes = try Self.keyBytes(key)
      return Self.answer(
        try chunks.lookAtOnce(verification) { (view) throws(BlobStorageError) in
          try view.digest(ofKey: bytes, id?.stamp)
        })
    } catch { return nil }
  }

  /// The same for a digest. That of a missing blob is always looked up the long way: a reader may have to extend the
  /// catalog.
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
    // A manifest may claim any length: what is not there yet is not paid for in advance.
    var data = Data(capacity: Int(min(layout.byteCount, 64 << 20)))
    try blobs.streamWhole(layout, verification) { data.append(contentsOf: $0) }
    return data
  }

  /// Whether there is a blob or chunk with that digest.
  package func contains(_ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    try checkOpen()
    try check(digest)
    return try blobs.layout(digest) != nil
  }

  package func openBlob(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> OpenBlob? {
    for _ in 0..<8 {
      guard let version = try version(key, id) else { return nil }
      let hold = try leases.holdWhereThereIsRoom([.blob(version.digest)])
      // Only a version that is still there after the lease was written is sure to stay readable.
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
        return HeldVersions(versions: versions, hold: hold, leases: leases)
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
}

// MARK: Keys

extension Engine {
  /// Keys of a prefix that are dropped in one commit.
  private static let keyCountOfCommit = 1_000

  package func version(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> BlobVersion? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    return try catalog.read { (transaction) throws(BlobStorageError) -> BlobVersion? in
      guard let name = try transaction.nameRow(bytes) else { return nil }
      if let id {
        return try transaction.versionRow(of: name, id.stamp).map {
          BlobVersion(key: key, stamp: id.stamp, row: $0)
        }
      }
      return name.current.map {
        BlobVersion(key: key, stamp: $0.stamp, row: $0.row)
      }
    }
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
    try checkHolds(on: bytes)
    return try drop(bytes, keeping: nil, durability, if: condition).keyCount
  }

  /// Each key once: a commit looks up the versions before it, and would count a key twice that is named twice.
  private static func distinctBytes(_ keys: [String]) throws(BlobStorageError) -> [[UInt8]] {
    var distinct: [[UInt8]] = []
    var seen: Set<[UInt8]> = []
    for key in keys {
      let bytes = try keyBytes(key)
      if seen.insert(bytes).inserted { distinct.append(bytes) }
    }
    return distinct
  }

  /// A prefix that is not empty: all keys are meant by saying so.
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
      count += try drop(keys, keeping: nil, durability).keyCount
    }
    // States of nothing.
    if prefix.isEmpty {
      let holds = InternalKey.Purpose.hold.prefix
      try dropInternal(try internalVersions().map(\.key).filter { !$0.starts(with: holds) })
    }
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
    let keys = try Self.distinctBytes(keys)
    try checkHolds(on: keys)
    return try drop(keys, keeping: count, durability)
  }

  package func keep(
    upTo count: Int, prefix: String, _ durability: Durability
  ) throws(BlobStorageError) -> RetentionResult {
    try Self.checkRetention(count)
    try checkOpen()
    var pages = KeyPages(catalog, prefix: prefix, countMax: Self.keyCountOfCommit)
    var result = RetentionResult(keyCount: 0, droppedVersionCount: 0)
    while let keys = try pages.next({ key, _, _ in (key, 1) }) {
      let page = try drop(withoutHeld(keys), keeping: count, durability)
      result.keyCount += page.keyCount
      result.droppedVersionCount += page.droppedVersionCount
    }
    return result
  }

  private static func checkRetention(_ count: Int) throws(BlobStorageError) {
    guard count >= 0 else {
      throw BlobStorageError(
        .invalidArgument, "The number of archived versions to keep must be 0 or more, not \(count).")
    }
  }

  /// Drops all versions of keys, or all but the current one and the youngest `count` archived ones, in one commit.
  ///
  /// - Throws: `conditionFailed` when the condition does not hold for a key; nothing was changed.
  func drop(
    _ keys: [[UInt8]], keeping count: Int?, _ durability: Durability, if condition: ChangeCondition = .always
  ) throws(BlobStorageError) -> RetentionResult {
    // Beyond any count that memory could hold, saturation is exact enough.
    let kept = count.map { $0 == Int.max ? $0 : $0 + 1 } ?? 0
    // A caller that drops wants to free room, so dropping must not need room.
    return try folder.withReserve { () throws(BlobStorageError) in
      let (result, watermark) = try writer.commit(on: keys) { (commit) throws(BlobStorageError) in
        var result = RetentionResult(keyCount: 0, droppedVersionCount: 0)
        for key in keys {
          try commit.transaction.check(condition, on: key)
          guard let droppedCount = try commit.dropVersions(of: key, keeping: kept) else { continue }
          result.keyCount += 1
          result.droppedVersionCount += droppedCount
        }
        commit.isPromised = durability == .durable && result.droppedVersionCount > 0
        return result
      }
      if result.droppedVersionCount > 0 {
        try makeDurable(durability, watermark)
      } else if durability == .durable {
        // Another change has dropped them, and may not have made that durable.
        try sharing.synchronizeFound(writer)
      }
      return result
    }
  }
}

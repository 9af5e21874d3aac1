import Foundation

/// Keys and versions: looking them up, and dropping them.
extension Engine {
  /// Keys of a prefix that are dropped in one commit.
  private static let keyCountOfCommit = 1_000

  package func version(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> BlobVersion? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    let found = try catalog.read { (transaction) throws(BlobStorageError) -> BlobVersion? in
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
    if id == nil { try checkCertain(bytes, found?.id.stamp) }
    return found
  }

  /// - Throws: `corrupted` for a key whose newest state is not known, unless `current` was put since.
  func checkCertain(_ key: [UInt8], _ current: Stamp?) throws(BlobStorageError) {
    guard let time = uncertain.time(of: key), current.map({ $0.time <= time }) ?? true else { return }
    let text = String(decoding: key, as: UTF8.self)
    throw BlobStorageError(
      .corrupted,
      "The newest state of key “\(text)” is lost: put or delete the key, or accept the loss with repair.",
      key: text)
  }

  /// Notes that these keys were deleted whatever their state was, and says how many of them were uncertain.
  func makeCertain(_ keys: [[UInt8]]) throws(BlobStorageError) -> Int {
    let times = keys.compactMap { key in uncertain.time(of: key).map { (key: key, time: $0) } }
    guard !times.isEmpty else { return 0 }
    try backend.census?.append(times.map { .certain(key: $0.key, time: $0.time) }, durably: true)
    uncertain.remove(times.map(\.key))
    return times.count
  }

  /// The key's current version, if it is stored for good as soon as what this process has stored is.
  package func versionToCountOn(_ key: String) throws(BlobStorageError) -> BlobVersion? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    return try catalog.read { (transaction) throws(BlobStorageError) in
      guard let current = try transaction.currentVersion(ofKey: bytes),
        try writer.stays(at: current.row.place, transaction)
      else { return nil }
      // A later sync does not report what a failed sync lost.
      if let pack = try transaction.packRow(current.row.place.pack), pack.isPoisoned,
        pack.durableByteCount <= current.row.place.offset
      {
        return nil
      }
      if let time = uncertain.time(of: bytes), current.stamp.time <= time { return nil }
      return BlobVersion(key: key, stamp: current.stamp, row: current.row)
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
    try checkOpen()
    guard limit > 0 else { return [] }
    return try catalog.read { (transaction) throws(BlobStorageError) in
      var entries: [KeyEntry] = []
      try transaction.forEachKey(prefix: Array(prefix.utf8), after: after.map { Array($0.utf8) }) {
        (key, name) throws(BlobStorageError) in
        if let found = try entry(key, name, transaction) { entries.append(found.entry) }
        return entries.count < limit
      }
      return entries
    }
  }

  /// What ``KeyPages`` reads to list keys with their current versions.
  package func entry(
    _ key: [UInt8], _ name: NameRow, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> (entry: KeyEntry, count: Int)? {
    name.current.map { current in
      let text = String(decoding: key, as: UTF8.self)
      let version = BlobVersion(key: text, stamp: current.stamp, row: current.row)
      return (KeyEntry(current: version, versionCount: name.versionCount), 1)
    }
  }

  /// Calls `body` with pages of the keys that begin with `prefix`, each key with its current version.
  package func forEachPage(
    prefix: String = "", countMax: Int = 1_000, _ body: ([KeyEntry]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var pages = KeyPages(catalog, prefix: prefix, countMax: countMax)
    while true {
      try checkOpen()
      guard let page = try pages.next(entry) else { return }
      try body(page)
    }
  }

  /// A key with the versions it has, newest first.
  package typealias KeyVersions = (key: [UInt8], versions: [StampedVersion])

  /// Calls `body` with every key and its versions, in byte order.
  package func forEachKey(_ body: (KeyVersions) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    var pages = KeyPages(catalog, countMax: 4_096)
    while let page = try pages.next({ (key, name, transaction) throws(BlobStorageError) in
      let versions = try transaction.versions(of: name)
      return versions.isEmpty ? nil : ((key, versions), versions.count)
    }) {
      for entry in page { try body(entry) }
    }
  }

  /// How many keys there are at most: long ones count several times, and so do some that are gone.
  func keyCountMax() throws(BlobStorageError) -> Int {
    try catalog.read { (transaction) throws(BlobStorageError) in try transaction.count(.names) }
  }

  package func delete(
    _ keys: [String], _ durability: Durability, if condition: ChangeCondition = .always
  ) throws(BlobStorageError) -> Int {
    try checkOpen()
    let bytes = try Self.distinctBytes(keys)
    for key in bytes { try check(condition, on: key) }
    let count = try drop(bytes, keeping: nil, durability, if: condition).keyCount
    return max(count, try makeCertain(bytes))
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
    var pages = KeyPages(catalog, prefix: prefix, countMax: Self.keyCountOfCommit)
    var count = 0
    while let keys = try pages.next({ key, _, _ in (key, 1) }) {
      count += try drop(keys, keeping: nil, durability).keyCount
    }
    let bytes = Array(prefix.utf8)
    return max(count, try makeCertain(uncertain.keys.filter { $0.starts(with: bytes) }))
  }

  package func keep(
    upTo count: Int, keys: [String], _ durability: Durability
  ) throws(BlobStorageError) -> RetentionResult {
    try checkOpen()
    try Self.checkRetention(count)
    return try drop(Self.distinctBytes(keys), keeping: count, durability)
  }

  package func keep(
    upTo count: Int, prefix: String, _ durability: Durability
  ) throws(BlobStorageError) -> RetentionResult {
    try Self.checkRetention(count)
    try checkOpen()
    var pages = KeyPages(catalog, prefix: prefix, countMax: Self.keyCountOfCommit)
    var result = RetentionResult(keyCount: 0, droppedVersionCount: 0)
    while let keys = try pages.next({ key, _, _ in (key, 1) }) {
      let page = try drop(keys, keeping: count, durability)
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
  private func drop(
    _ keys: [[UInt8]], keeping count: Int?, _ durability: Durability, if condition: ChangeCondition = .always
  ) throws(BlobStorageError) -> RetentionResult {
    // A caller that drops wants to free room, so dropping must not need room.
    try folder.withReserve { () throws(BlobStorageError) in
      try dropOnce(keys, keeping: count, durability, condition)
    }
  }

  private func dropOnce(
    _ keys: [[UInt8]], keeping count: Int?, _ durability: Durability, _ condition: ChangeCondition
  ) throws(BlobStorageError) -> RetentionResult {
    // Beyond any count that memory could hold, saturation is exact enough.
    let kept = count.map { $0 == Int.max ? $0 : $0 + 1 } ?? 0
    let (result, watermark) = try writer.commit(on: keys) { (commit) throws(BlobStorageError) in
      var result = RetentionResult(keyCount: 0, droppedVersionCount: 0)
      for key in keys {
        try commit.transaction.check(condition, on: key)
        guard let droppedCount = try drop(key, keeping: kept, &commit) else { continue }
        result.keyCount += 1
        result.droppedVersionCount += droppedCount
      }
      commit.isPromised = durability == .durable && result.droppedVersionCount > 0
      return result
    }
    if result.droppedVersionCount > 0 {
      try makeDurable(durability, watermark)
    } else {
      try makeDurableWhatIsThere(durability)
    }
    return result
  }

  /// Drops all versions of a key but the youngest `count`.
  ///
  /// - Returns: how many; nil when the key has none.
  func drop(
    _ key: [UInt8], keeping count: Int, _ commit: inout WriterSession.Commit
  ) throws(BlobStorageError) -> Int? {
    guard let name = try commit.transaction.nameRow(key), name.versionCount > 0 else { return nil }
    guard name.versionCount > count else { return 0 }
    var dropped: [Stamp] = []
    var index = 0
    try commit.transaction.forEachVersion(of: name) { version in
      if index >= count { dropped.append(version.stamp) }
      index += 1
      return true
    }
    try commit.drop(dropped, of: key)
    return dropped.count
  }
}

extension BlobVersion {
  package init(key: String, stamp: Stamp, row: VersionRow) {
    self.key = key
    id = ID(stamp)
    digest = row.digest
    byteCount = row.byteCount
    created = Date(timeIntervalSince1970: Double(row.created) / 1_000)
    metadata = row.metadata
  }
}

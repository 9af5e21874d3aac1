import Foundation
import Logging
import Synchronization

/// Putting values: prepared without a lock, stored if there is room, noted in the same commit.
extension CacheCore {
  /// A value that is ready to be stored.
  struct Value {
    var item: Engine.CommitItem
    var mark: CacheMark
  }

  /// Values that are put together: as many as fit into a pack, or one that does not.
  struct Group {
    var values: [Value] = []
    private var byteCount = 0

    /// Adds a value, unless the group is full with it.
    mutating func add(_ value: Value, _ limits: CacheLimits) -> Bool {
      let added = value.item.packByteCountMax
      if byteCount + added > limits.packByteCountTarget, !values.isEmpty { return false }
      values.append(value)
      byteCount += added
      return true
    }

    /// The most that a pack needs for them.
    var needByteCount: Int64 { Int64(byteCount + CacheCore.extraByteCount(values.count)) }
  }

  /// What storing a group came to, and what has to be on the medium for it to be durable.
  typealias Stored = (results: [PutResult], watermark: WriterSession.Watermark?)

  /// Stores values under their keys, those that are put together in one commit where they fit.
  ///
  /// - Returns: for each whether it was stored. One that was not has no value afterwards, not an older one.
  package func put(_ items: [CacheItem]) throws(BlobStorageError) -> [Bool] {
    try engine.checkOpen()
    var stored = [Bool](repeating: false, count: items.count)
    let limits = limits
    var group = Group()
    var indices: [Int] = []
    func end() throws(BlobStorageError) {
      if let (_, watermark) = try store(group) {
        for index in indices { stored[index] = true }
        try engine.makeDurable(durability, watermark)
      }
      (group, indices) = (Group(), [])
    }
    for (index, item) in items.enumerated() {
      let key = try Engine.keyBytes(prefix + item.key)
      guard item.data.count <= limits.valueByteCountMax else { continue }
      let mark = CacheMark(priority: item.priority, lifetime: item.lifetime?.milliseconds ?? 0)
      let value = Value(
        item: try engine.prepare(key, item.data, PutOptions(metadata: mark.metadata)), mark: mark)
      if !group.add(value, limits) {
        try end()
        _ = group.add(value, limits)
      }
      indices.append(index)
    }
    if !indices.isEmpty { try end() }
    let refused = items.indices.filter { !stored[$0] }
    if !refused.isEmpty {
      state.withLock { $0.counts.refusedCount += refused.count }
      // The caller must not find the key's earlier value. A value that was stored after the refused one stays.
      var last: [[UInt8]: Int] = [:]
      for (index, item) in items.enumerated() { last[Array(item.key.utf8)] = index }
      let dropped = refused.map { items[$0].key }.filter { key in
        last[Array(key.utf8)].map { !stored[$0] } ?? true
      }
      if !dropped.isEmpty { _ = try remove(dropped) }
    }
    return stored
  }

  /// Stores a value, or changes nothing.
  ///
  /// - Throws: `limitExceeded` when it is too long for the cache or no room can be made.
  package func put(
    _ key: String, _ data: Data, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult {
    try engine.checkOpen()
    let bytes = try Engine.keyBytes(prefix + key)
    try engine.check(options.condition, on: bytes)
    let limits = limits
    guard data.count <= limits.valueByteCountMax else {
      throw BlobStorageError(
        .limitExceeded,
        "The value of “\(key)” has more than \(limits.valueByteCountMax) bytes, the most that the cache keeps "
          + "of one value: raise its limit.", key: key)
    }
    let item = try engine.prepare(bytes, data, options)
    var group = Group()
    _ = group.add(Value(item: item, mark: CacheMark(metadata: options.metadata)), limits)
    guard let (results, watermark) = try store(group), let result = results.first else {
      throw BlobStorageError(
        .limitExceeded, "The cache has no room for the value of “\(key)”: raise its limit.", key: key)
    }
    try engine.makeDurable(options.durability, watermark)
    return result
  }

  /// Stores values in one commit, in room that is made for them.
  ///
  /// - Returns: nil when no room can be made.
  func store(_ group: Group) throws(BlobStorageError) -> Stored? {
    // A cache that was ended must not evict any more.
    if limits.countMax != nil { try adoptLimits() }
    let values = group.values
    let need = group.needByteCount
    // Of what the keys have, and of what is put: it may be there and be garbage.
    let digests = values.filter { $0.item.plan.chunks.count > 1 }.map(\.item.plan.digest)
    let long = try longBlobs(values.map(\.item.key)).merging(longBlobs(digests)) { known, _ in known }
    for attempt in 0..<Self.attemptCount {
      let roomCount = state.withLock { $0.roomCount }
      let touched = removeTouched()
      do throws(BlobStorageError) {
        var evictedCount = 0
        let stored = try engine.commitSettling(values.map(\.item)) {
          (commit, transaction) throws(BlobStorageError) in
          guard commit.roomByteCount >= need else { throw Self.roomNeeded }
          var dropping = CacheDropping(engine, long: long)
          try recordUses(touched, transaction)
          for value in values { try account(value, &dropping, transaction) }
          try evictBeyondCount(&dropping, &commit, transaction, keeping: Set(values.map(\.item.key)))
          evictedCount = dropping.droppedKeyCount
        }
        state.withLock { $0.counts.evictedCount += evictedCount }
        return stored
      } catch {
        restore(touched)
        switch error.code {
        case .cacheNeedsRoom: break
        case .noSpace where attempt < Self.attemptCount - 1: break
        case .noSpace, .limitExceeded, .busy:
          refuse(error)
          return nil
        default: throw error
        }
        do throws(BlobStorageError) {
          try makeRoom(need, since: roomCount, mediumIsFull: error.code == .noSpace)
        } catch {
          guard Self.isNoRoom(error.code) else { throw error }
          refuse(error)
          return nil
        }
      }
    }
    return nil
  }

  private static let attemptCount = 8
  private static let roomNeeded = BlobStorageError(.cacheNeedsRoom, "The pack has no room.")

  /// The other bytes of a pack with that many values, an upper estimate: drops of the keys evicted for them, and the
  /// end of the footer.
  fileprivate static func extraByteCount(_ count: Int) -> Int { 4_096 + count * 256 }

  static func isNoRoom(_ code: BlobStorageError.Code) -> Bool {
    code == .noSpace || code == .limitExceeded || code == .busy
  }

  private func refuse(_ reason: BlobStorageError) {
    engine.logger.notice("A value is not stored.", metadata: ["reason": "\(reason.message)"])
  }

  private func restore(_ touched: [CachedKeyRow.ID]) {
    state.withLock { state in
      for id in touched where state.touched[id] == nil {
        state.touchCount += 1
        state.touched[id] = state.touchCount
      }
      if !state.touched.isEmpty, state.touchedSince == nil { state.touchedSince = .now }
    }
  }

  /// Accounts for a value that is about to be put: as most recently used, and what it replaces as garbage.
  private func account(
    _ value: Value, _ dropping: inout CacheDropping, _ transaction: WriteTransaction
  ) throws(BlobStorageError) {
    let key = value.item.key
    let digest = value.item.plan.digest
    if value.item.ref.replacement == .replaceCurrent,
      let current = try transaction.currentVersion(ofKey: key)
    {
      try dropping.account(key, current.row, transaction)
    }
    try dropping.reuse(digest, transaction)
    let id = CachedKeyRow.id(of: key)
    try transaction.setCachedKey(
      id,
      CachedKeyRow(
        priority: value.mark.priority.rawValue, tick: try transaction.nextCacheTick(),
        byteCount: Int64(value.item.plan.byteCount), digest: digest, key: key))
  }

  /// Drops the least recently used keys while there are more than the limits say.
  private func evictBeyondCount(
    _ dropping: inout CacheDropping, _ commit: inout WriterSession.Commit, _ transaction: WriteTransaction,
    keeping kept: Set<[UInt8]>
  ) throws(BlobStorageError) {
    guard let countMax = limits.countMax else { return }
    let excess = try transaction.cachedKeyCount() - countMax
    guard excess > 0 else { return }
    var victims: [(CachedKeyRow.ID, CachedKeyRow)] = []
    try transaction.forEachCachedKey { id, row in
      if !kept.contains(row.key) { victims.append((id, row)) }
      return victims.count < excess
    }
    for (id, row) in victims { try dropping.drop(row.key, id, &commit, transaction) }
  }

  // MARK: Removing

  /// Drops keys; says how many were there.
  package func remove(_ keys: [String]) throws(BlobStorageError) -> Int {
    var bytes: [[UInt8]] = []
    for key in keys { bytes.append(try Engine.keyBytes(prefix + key)) }
    let long = try longBlobs(bytes)
    return try engine.writer.commitSettling(on: bytes) { (commit, transaction) throws(BlobStorageError) in
      var dropping = CacheDropping(engine, long: long)
      for key in bytes { try dropping.drop(key, CachedKeyRow.id(of: key), &commit, transaction) }
      return dropping.droppedKeyCount
    }.result
  }

  /// Drops all keys of the cache, a page at a time.
  package func removeAll() throws(BlobStorageError) -> Int {
    var count = 0
    while true {
      let page = try engine.keys(prefix, after: nil, limit: 1_000)
      if page.isEmpty { return count }
      let removed = try remove(page.map { key(of: $0.key) })
      count += removed
      // Another process removes them too.
      if removed == 0 { return count }
    }
  }
}

extension BlobStorageError.Code {
  /// The pack under way has no room for a value. Never leaves the library.
  static let cacheNeedsRoom = Self("cacheNeedsRoom")
}

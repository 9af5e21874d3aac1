import Foundation
import Logging
import Synchronization

/// Putting values: prepared without a lock, stored if there is room, noted in memory.
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
      if let (_, watermark) = try store(group, durability) {
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
    guard let (results, watermark) = try store(group, options.durability), let result = results.first else {
      throw BlobStorageError(
        .limitExceeded, "The cache has no room for the value of “\(key)”: raise its limit.", key: key)
    }
    try engine.makeDurable(options.durability, watermark)
    return result
  }

  /// Stores values in one commit, in room that is made for them.
  ///
  /// - Returns: nil when no room can be made.
  func store(_ group: Group, _ durability: Durability) throws(BlobStorageError) -> Stored? {
    // A cache that was ended must not evict any more.
    if limits.countMax != nil { try adoptLimits() }
    let values = group.values
    let need = group.needByteCount
    for attempt in 0..<Self.attemptCount {
      let roomCount = state.withLock { $0.roomCount }
      do throws(BlobStorageError) {
        var notes = CacheNotes()
        let stored = try engine.commit(values.map(\.item), promising: durability) {
          (commit) throws(BlobStorageError) in
          guard commit.roomByteCount >= need else { throw Self.roomNeeded }
          // A commit can be tried more than once.
          notes = try replaced(by: values, commit.transaction)
        }
        for (value, result) in zip(values, stored.0) {
          notes.put(value.item.key)
          notes.addVersion(of: value.item.plan.digest, isNew: result.newByteCount > 0)
        }
        add(notes, makesRoom: true)
        tryToHoldCount(keeping: values)
        return stored
      } catch {
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

  /// Holds the limit of keys. The values are stored: if it cannot be held now, the next put does it.
  private func tryToHoldCount(keeping values: [Value]) {
    do throws(BlobStorageError) { try holdCount(keeping: Set(values.map(\.item.key))) } catch {
      engine.logger.warning(
        "The cache has more keys than its limit.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Notes the versions that putting the values replaces.
  private func replaced(
    by values: [Value], _ view: ReadTransaction
  ) throws(BlobStorageError) -> CacheNotes {
    var notes = CacheNotes()
    var seen: Set<[UInt8]> = []
    for value in values
    where value.item.ref.replacement == .replaceCurrent && seen.insert(value.item.key).inserted {
      if let current = try view.currentVersion(ofKey: value.item.key) {
        try notes.removeVersion(of: value.item.key, current.row, view)
      }
    }
    return notes
  }

  // MARK: Removing

  /// Drops keys; says how many were there.
  package func remove(_ keys: [String]) throws(BlobStorageError) -> Int {
    var bytes: [[UInt8]] = []
    for key in keys { bytes.append(try Engine.keyBytes(prefix + key)) }
    return try drop(bytes) { _, _ in true }
  }

  /// Drops all versions of keys in one commit; says how many had any.
  ///
  /// - Parameter isToGo: says of a key, by its index, whether it is dropped.
  func drop(
    _ keys: [[UInt8]], where isToGo: (Int, ReadTransaction) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Int {
    var notes = CacheNotes()
    let count = try engine.writer.commit(on: keys) { (commit) throws(BlobStorageError) in
      // A commit can be tried more than once.
      notes = CacheNotes()
      var count = 0
      let view = commit.transaction
      for (index, key) in keys.enumerated() where try isToGo(index, view) {
        let id = CachedKeyRow.id(of: key)
        guard notes.keys[id] == nil else { continue }
        notes.drop(id)
        guard let name = try view.nameRow(key), name.versionCount > 0 else { continue }
        let versions = try view.versions(key: name.key)
        for version in versions { try notes.removeVersion(of: key, version.row, view) }
        try commit.drop(versions.map(\.stamp), of: key)
        count += 1
      }
      return count
    }.result
    add(notes, makesRoom: false)
    return count
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

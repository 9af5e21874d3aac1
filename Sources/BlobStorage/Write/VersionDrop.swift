/// Drops versions of keys.
extension WriterSession.Commit {
  /// Drops all versions of a key but the youngest `count`.
  ///
  /// - Returns: how many; nil when the key has none.
  mutating func dropVersions(of key: [UInt8], keeping count: Int) throws(BlobStorageError) -> Int? {
    guard let name = try transaction.nameRow(key), name.versionCount > 0 else { return nil }
    guard name.versionCount > count else { return 0 }
    var dropped: [Stamp] = []
    var index = 0
    try transaction.forEachVersion(of: name) { version in
      if index >= count { dropped.append(version.stamp) }
      index += 1
      return true
    }
    try drop(dropped, of: key)
    return dropped.count
  }
}

extension WriterSession {
  /// Drops all versions of keys, or all but the current one and the youngest `count` archived ones, in one commit.
  ///
  /// - Throws: `conditionFailed` when the condition does not hold for a key; nothing was changed.
  func drop(
    _ keys: [[UInt8]], keeping count: Int?, _ durability: Durability, if condition: ChangeCondition
  ) throws(BlobStorageError) -> (result: RetentionResult, watermark: Watermark?) {
    // Beyond any count that memory could hold, saturation is exact enough.
    let kept = count.map { $0 == Int.max ? $0 : $0 + 1 } ?? 0
    return try commit(on: keys) { (commit) throws(BlobStorageError) in
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
  }
}

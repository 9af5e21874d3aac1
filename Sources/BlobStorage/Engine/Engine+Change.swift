extension ReadTransaction {
  /// - Throws: `conditionFailed` when the condition does not hold for the key.
  func check(_ condition: ChangeCondition, on key: [UInt8]) throws(BlobStorageError) {
    let wanted: Stamp?
    switch condition {
    case .always: return
    case .current(let id): wanted = id.stamp
    case .absent: wanted = nil
    }
    let current = try currentVersion(ofKey: key)?.stamp
    guard current != wanted else { return }
    let text = String(decoding: key, as: UTF8.self)
    let found = current.map { "its current version is \(BlobVersion.ID($0))" } ?? "it has no version"
    var error = BlobStorageError(
      .conditionFailed, "The key “\(text)” is not as the change expects: \(found). Nothing was changed.",
      key: text)
    error.currentVersionText = current.map { BlobVersion.ID($0).description }
    throw error
  }
}

extension Engine {
  /// Throws at once what the commit would throw, before any content is read or stored.
  package func check(_ condition: ChangeCondition, on key: [UInt8]) throws(BlobStorageError) {
    if condition == .always { return }
    try requireOwnPacks(
      "A store in a bucket does not support conditions: another machine may change the key at the same time."
    )
    // Throws for a key whose newest state is not known.
    _ = try version(String(decoding: key, as: UTF8.self), nil)
    try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.check(condition, on: key)
    }
  }

  /// Makes several changes in one commit: all of them or none.
  package func change(
    _ changes: [BlobChange], _ durability: Durability
  ) throws(BlobStorageError) -> [PutResult?] {
    try checkOpen()
    var items: [CommitItem] = []
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
        items.append(try prepare(item, options))
      case .delete(_, let condition): deleted.append((key, condition))
      }
    }
    func commitOnce() throws(BlobStorageError) -> ([PutResult], WriterSession.Watermark?) {
      try commit(items, promising: durability, on: deleted.map(\.key)) { (commit) throws(BlobStorageError) in
        for (key, condition) in deleted {
          try commit.transaction.check(condition, on: key)
          _ = try drop(key, keeping: 0, &commit)
        }
      }
    }
    // A caller that only drops wants to free room, so dropping must not need room.
    let (stored, watermark) =
      try items.isEmpty
      ? folder.withReserve { () throws(BlobStorageError) in try commitOnce() } : commitOnce()
    try makeDurable(durability, watermark)
    _ = try makeCertain(deleted.map(\.key))
    var results = stored.makeIterator()
    return changes.map { change in
      if case .put = change { results.next() } else { nil }
    }
  }
}

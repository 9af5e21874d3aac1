extension Engine {
  /// All holds on keys and states.
  package func keyHolds() throws(BlobStorageError) -> [KeyHold] {
    try checkOpen()
    return try catalog.read { (transaction) throws(BlobStorageError) in try transaction.keyHolds() }
  }

  /// - Throws: `held` if a hold protects one of the keys.
  func checkHolds(on keys: [[UInt8]]) throws(BlobStorageError) {
    for (key, hold) in zip(keys, try holds(on: keys)) { if let hold { throw hold.refusal(of: key) } }
  }

  /// The hold that protects each of some keys; nil where none does.
  package func holds(on keys: [[UInt8]]) throws(BlobStorageError) -> [KeyHold?] {
    try checkOpen()
    return try catalog.read { (transaction) throws(BlobStorageError) in
      let holds = try transaction.keyHolds()
      return try keys.map { (key) throws(BlobStorageError) in try transaction.hold(on: key, among: holds) }
    }
  }

  /// - Throws: `held` if a hold protects a key that begins so.
  func checkHolds(onPrefix prefix: [UInt8]) throws(BlobStorageError) {
    for hold in try keyHolds() where hold.prefix.starts(with: prefix) || prefix.starts(with: hold.prefix) {
      let longer = hold.prefix.count > prefix.count ? hold.prefix : prefix
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachKey(prefix: longer, after: nil) { (key, _) throws(BlobStorageError) in
          if try transaction.hold(on: key, among: [hold]) == nil { return true }
          throw hold.refusal(of: key)
        }
      }
    }
  }

  /// The keys that no hold protects.
  package func withoutHeld(_ keys: [[UInt8]]) throws(BlobStorageError) -> [[UInt8]] {
    zip(keys, try holds(on: keys)).filter { $0.1 == nil }.map(\.0)
  }
}

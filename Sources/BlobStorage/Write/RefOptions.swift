/// What a put's options say of the ref.
package struct RefOptions: Sendable {
  package var replacement: Replacement
  var condition: ChangeCondition
  package var metadata: [UInt8]

  init(_ options: PutOptions) {
    replacement = options.replacement
    condition = options.condition
    metadata = options.metadata
  }
}

extension WriterSession.Commit {
  /// Appends the ref that makes a blob the current version of a key.
  ///
  /// - Throws: `conditionFailed` when the options' condition does not hold.
  mutating func appendRef(
    _ key: [UInt8], _ digest: Digest, _ byteCount: Int64, _ options: RefOptions
  ) throws(BlobStorageError) -> (BlobVersion, Int) {
    try transaction.check(options.condition, on: key)
    // The two newest versions of the key: the new one has to be newer than those that stay.
    var (newest, second) = (Stamp.none, Stamp.none)
    if let name = try transaction.nameRow(key) {
      try transaction.forEachVersion(of: name) { version in
        if newest == .none {
          newest = version.stamp
          return true
        }
        second = version.stamp
        return false
      }
    }
    // Of several puts of one key in one commit, each replaces the one before.
    if let earlier = lastVersion(of: key) { (newest, second) = (earlier, newest) }
    let isReplacing = options.replacement == .replaceCurrent
    let stamp = try stamp(after: isReplacing ? second : newest)
    let ref = RefRecord(
      key: key, version: stamp, replaced: isReplacing ? newest : .none, digest: digest, byteCount: byteCount,
      created: wallTime, metadata: options.metadata)
    let added = try append(.ref(ref))
    let row = VersionRow(
      place: Place(pack: 0, offset: 0, ordinal: 0), record: ref, recordByteCount: added)
    return (BlobVersion(key: String(decoding: key, as: UTF8.self), stamp: stamp, row: row), added)
  }
}

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

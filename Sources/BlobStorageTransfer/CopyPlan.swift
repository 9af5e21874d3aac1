import BlobStorage

/// A key of the source, as of one snapshot.
struct CopiedKey: Sendable {
  typealias Version = StampedVersion

  var bytes: [UInt8]
  /// The visible versions, newest first.
  var shown: [Version] = []
  /// Versions that are known to be dropped.
  var hidden: [Stamp] = []
  /// Whether it lacks versions that the source shows. Then the copy drops nothing.
  var isPartial = false

  /// Whether reports count it: not if it is internal or shows no version.
  var isCounted: Bool { !shown.isEmpty && !InternalKey.isInternal(bytes) }
}

/// Plans the changes that make the target show a key as the source does.
///
/// Shows what the source shows, and drops what the source knows as dropped. Versions that only the target knows stay,
/// unless the copy is a mirror. Versions under a hold of the target stay as well.
///
/// A version keeps its ID. Exception: a version that the target dropped and the source shows gets a new one, because a
/// hidden ID stays hidden. The new ID has the same time, so the version keeps its place in the key's history. The IDs
/// to try follow from the first, so that the next copy finds the version there.
struct CopyPlan: Sendable {
  struct Addition: Sendable {
    /// Its stamp in the target.
    var stamp: Stamp
    var row: VersionRow
  }

  /// Oldest first: a partial copy is a prefix of the history.
  private(set) var added: [Addition] = []
  private(set) var dropped: [Stamp] = []
  /// Whether the target no longer shows the key.
  private(set) var dropsKey = false
  /// How many versions were refused.
  private(set) var refusedCount = 0

  /// Removes the versions that must not be copied, and returns them. If there are any, the plan drops nothing.
  mutating func refuse(_ isRefused: (Stamp) -> Bool) -> [Addition] {
    let refused = added.filter { isRefused($0.stamp) }
    refusedCount = refused.count
    if !refused.isEmpty {
      added.removeAll { isRefused($0.stamp) }
      dropped = []
    }
    return refused
  }

  var isEmpty: Bool { added.isEmpty && dropped.isEmpty }

  /// - Parameter counts: whether a version in the target is sure to stay; if not, it is copied again.
  init(
    _ key: CopiedKey, in target: ReadTransaction, isMirror: Bool,
    counts: (VersionRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let name = try target.nameRow(key.bytes)
    var landed: Set<Stamp> = []
    for version in key.shown.reversed() {
      let (stamp, row) = try Self.landing(of: version.stamp, name, target)
      guard landed.insert(stamp).inserted else { continue }
      if let row, try counts(row) { continue }
      added.append(Addition(stamp: stamp, row: version.row))
    }
    // States that others of the target build on stay.
    guard let name, !Self.isOfState(key.bytes) else { return }
    // What a hold of the target protects stays, also in a mirror.
    if isMirror, !key.bytes.starts(with: InternalKey.Purpose.hold.prefix) {
      let shown = try target.versions(of: name).map(\.stamp)
      dropped = shown.filter { !landed.contains($0) }
    } else {
      for stamp in key.hidden {
        let (found, row) = try Self.landing(of: stamp, name, target)
        if row != nil, !landed.contains(found) { dropped.append(found) }
      }
    }
    if !dropped.isEmpty, try target.hold(on: key.bytes, among: target.keyHolds()) != nil { dropped = [] }
    dropsKey = !dropped.isEmpty && added.isEmpty && dropped.count == name.versionCount
    // Versions of other keys of the target may have these attributes.
    if dropsKey, key.bytes.starts(with: InternalKey.Purpose.attributes.prefix) {
      (dropped, dropsKey) = ([], false)
    }
  }

  private static func isOfState(_ key: [UInt8]) -> Bool {
    [InternalKey.Purpose.state, .link].contains { key.starts(with: $0.prefix) }
  }

  /// The stamp that a version of the source has or would get in the target, with its row there.
  static func landing(
    of stamp: Stamp, _ key: NameRow?, _ target: ReadTransaction
  ) throws(BlobStorageError) -> (stamp: Stamp, row: VersionRow?) {
    guard let key else { return (stamp, nil) }
    for count in 0...Stamp.returnCountMax {
      let name = stamp.returned(count)
      if let row = try target.versionRow(of: key, name) { return (name, row) }
      if try target.maskRow(of: key, name) == nil { return (name, nil) }
    }
    throw BlobStorageError(
      .limitExceeded,
      "A version was dropped in the target and copied again \(Stamp.returnCountMax) times: collect garbage there."
    )
  }
}

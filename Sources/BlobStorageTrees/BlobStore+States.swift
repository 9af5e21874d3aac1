import BlobStorage
import Foundation

/// A file, link or folder of a state.
public struct TreeEntry: Sendable, Hashable {
  public var key: String
  /// The version that the state has; nil for a folder, and for a version that was deleted since.
  public var version: BlobVersion?
  /// The metadata that an import keeps of a folder; nil for a file or link.
  public var folderMetadata: [UInt8]?

  /// Whether it is a file or link whose version was deleted since.
  public var isMissing: Bool { version == nil && folderMetadata == nil }
}

/// How a key differs between two states.
public struct TreeChange: Sendable, Hashable, Codable {
  public enum Kind: String, Sendable, Hashable, Codable { case added, removed, changed }

  public var kind: Kind
  /// A folder's key ends in '/'.
  public var key: String
  /// The versions in the first and in the second state; nil for folders, and where the state lacks the key.
  public var before: BlobVersion.ID?
  public var after: BlobVersion.ID?
}

/// The versions that a search in states has found.
public struct FoundVersions: Sendable, Hashable, Codable {
  /// Sorted by key.
  public var versions: [FoundVersion] = []
  /// States that cannot be read; they may have more versions.
  public var unreadable: [UnreadableState] = []
}

/// A version of a key, and the states that have it.
public struct FoundVersion: Sendable, Hashable, Codable {
  public var key: String
  public var version: BlobVersion.ID
  /// Oldest first.
  public var states: [TreeState]
  /// Whether it was deleted since, so that the states lack it now.
  public var isDeleted: Bool

  private enum CodingKeys: String, CodingKey {
    case key, version, states
    case isDeleted = "deleted"
  }
}

extension BlobStore {
  /// All states that imports have recorded, oldest first, except those of ``unreadableStates()``.
  public func states() async throws(BlobStorageError) -> [TreeState] {
    try await read { (engine) throws(BlobStorageError) in try StateFile(engine).states() }
  }

  /// States whose records are damaged or written by a later build. Reads no entries, so that other states can be
  /// damaged as well.
  public func unreadableStates() async throws(BlobStorageError) -> [UnreadableState] {
    try await read { (engine) throws(BlobStorageError) in try StateList(engine).unreadable }
  }

  /// Calls `body` with pages of a state's files, links and folders of a prefix, in key order.
  ///
  /// - Throws: `corrupted` if the state cannot be read, and what `body` throws.
  /// - Complexity: reads all entries of the state, and looks up the versions of those that `body` gets.
  public func forEachEntry(
    of state: TreeState, prefix: some KeyPrefixConvertible = KeyPrefix.all,
    _ body: @escaping @Sendable ([TreeEntry]) throws -> Void
  ) async throws {
    let prefix = prefix.keyPrefix
    let result: Result<Void, any Error> = try await work { (engine) throws(BlobStorageError) in
      let walk = try StateFile(engine).walk(state)
      defer { walk.close() }
      while true {
        try CancellationFlag.check()
        let page = try TreeEntry.page(of: walk, prefix: prefix, engine)
        if page.isEmpty { return .success(()) }
        do { try body(page) } catch { return .failure(error) }
      }
    }
    try result.get()
  }

  /// The differences between two states, in key order.
  public func differences(
    from first: TreeState, to second: TreeState
  ) async throws(BlobStorageError) -> [TreeChange] {
    try await work { (engine) throws(BlobStorageError) in
      let states = StateFile(engine)
      let (old, new) = (try states.walk(first), try states.walk(second))
      defer {
        old.close()
        new.close()
      }
      return try TreeChange.changes(from: old, to: new)
    }
  }

  /// Finds the versions of keys that `matches` accepts, and the states that have them, by key and age.
  ///
  /// - Complexity: reads the stored entries of each state once: the first of a prefix has all, others their changes.
  public func findInStates(
    _ matches: @escaping @Sendable (_ key: String) -> Bool
  ) async throws(BlobStorageError) -> FoundVersions {
    try await work { (engine) throws(BlobStorageError) in
      let list = try StateList(engine)
      let forest = try StateForest(StateFile(engine), list, of: list.states.map(\.state))
      defer { forest.close() }
      var found = FoundVersions()
      while let line = try forest.next() {
        let key = String(decoding: line.key, as: UTF8.self)
        guard matches(key) else { continue }
        var ranges: [Stamp: [Range<Int>]] = [:]
        for case (.version(let stamp), let states) in line.contents { ranges[stamp, default: []] += states }
        for stamp in ranges.keys.sorted() {
          let kept = try engine.catalog.read { (transaction) throws(BlobStorageError) in
            try transaction.keptVersion(ofKey: line.key, stamp)
          }
          found.versions.append(
            FoundVersion(
              key: key, version: BlobVersion.ID(stamp), states: forest.states(in: ranges[stamp] ?? []),
              isDeleted: kept == nil))
        }
      }
      found.unreadable = list.unreadable + forest.unreadable
      return found
    }
  }

  /// The version of a key that a state has; nil if it has none.
  ///
  /// - Throws: `missingVersion` if the version was deleted since.
  /// - Complexity: reads the entries of the state up to the key.
  public func version(
    of key: String, in state: TreeState
  ) async throws(BlobStorageError) -> BlobVersion? {
    try await work { (engine) throws(BlobStorageError) in
      let walk = try StateFile(engine).walk(state)
      defer { walk.close() }
      let bytes = Array(key.utf8)
      while let entry = try walk.next(), !bytes.precedes(entry.key) {
        if entry.key != bytes { continue }
        guard case .version(let stamp) = entry.content else { return nil }
        let version = try engine.catalog.read { (transaction) throws(BlobStorageError) in
          try transaction.keptVersion(ofKey: bytes, stamp)
        }
        guard let version else {
          throw BlobStorageError(
            .missingVersion, "The version of “\(key)” in state \(state.text) was deleted since.", key: key)
        }
        return BlobVersion(key: key, stamp: version.stamp, row: version.row)
      }
      return nil
    }
  }

  /// Makes the version that a key had in a state its current one, as a new version with the same bytes and metadata.
  /// The version that was current stays in the history.
  ///
  /// - Returns: nil if the state has no such file; then nothing was changed.
  /// - Throws: `missingVersion` if the version was deleted since.
  /// - Durability: durable on return.
  @discardableResult
  public func restore(_ key: String, from state: TreeState) async throws(BlobStorageError) -> PutResult? {
    guard let version = try await version(of: key, in: state) else { return nil }
    return try await change([key]) { (engine) throws(BlobStorageError) in
      let bytes = try Engine.keyBytes(key)
      let options = PutOptions(replacement: .archiveCurrent)
      for source in [bytes, InternalKey.Purpose.replaced.key(bytes)] {
        if let result = try VersionChanges(engine).put(version.id, of: source, as: bytes, options) {
          return result
        }
      }
      return nil
    }
  }
}

extension BlobStorageError.Code {
  /// A state has the version, and the store no longer does.
  public static let missingVersion = Self(rawValue: "missingVersion")
}

extension TreeEntry {
  private static let countMax = 1_000

  /// The next page of entries; empty at the end.
  static func page(
    of walk: StateWalk, prefix: KeyPrefix, _ engine: Engine
  ) throws(BlobStorageError) -> [TreeEntry] {
    var entries: [StateEntry] = []
    while entries.count < countMax, let entry = try walk.next() {
      if prefix.contains(entry.key) { entries.append(entry) }
    }
    guard !entries.isEmpty else { return [] }
    return try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var page: [TreeEntry] = []
      for entry in entries {
        let key = String(decoding: entry.key, as: UTF8.self)
        switch entry.content {
        case .folder(let metadata): page.append(TreeEntry(key: key, version: nil, folderMetadata: metadata))
        case .version(let stamp):
          let version = try transaction.keptVersion(ofKey: entry.key, stamp)
          page.append(
            TreeEntry(key: key, version: version.map { BlobVersion(key: key, stamp: $0.stamp, row: $0.row) }))
        case .removed: break
        }
      }
      return page
    }
  }
}

extension TreeChange {
  fileprivate static func changes(from old: StateWalk, to new: StateWalk) throws(BlobStorageError)
    -> [TreeChange]
  {
    var changes: [TreeChange] = []
    func add(_ kind: Kind, _ before: StateEntry?, _ after: StateEntry?) {
      guard let key = (after ?? before)?.key else { return }
      changes.append(
        TreeChange(
          kind: kind, key: String(decoding: key, as: UTF8.self), before: before?.version,
          after: after?.version))
    }
    var (one, other) = (try old.next(), try new.next())
    while one != nil || other != nil {
      if let found = other, one.map({ found.key.precedes($0.key) }) ?? true {
        add(.added, nil, found)
        other = try new.next()
      } else if let known = one, other.map({ known.key.precedes($0.key) }) ?? true {
        add(.removed, known, nil)
        one = try old.next()
      } else {
        if one?.content != other?.content { add(.changed, one, other) }
        (one, other) = (try old.next(), try new.next())
      }
    }
    return changes
  }
}

extension StateEntry {
  fileprivate var version: BlobVersion.ID? {
    guard case .version(let stamp) = content else { return nil }
    return BlobVersion.ID(stamp)
  }
}

extension ReadTransaction {
  /// A version of a key, by the stamp that a state has. Also finds a version that an import replaced and keeps for
  /// states, and a dropped version that a copy restored under another stamp.
  package func keptVersion(ofKey key: [UInt8], _ stamp: Stamp) throws(BlobStorageError) -> StampedVersion? {
    for key in [key, InternalKey.Purpose.replaced.key(key)] {
      guard let name = try nameRow(key) else { continue }
      for count in 0...Stamp.returnCountMax {
        let stamp = stamp.returned(count)
        if let row = try versionRow(of: name, stamp) { return StampedVersion(stamp: stamp, row: row) }
        // gc may have forgotten that the first one was dropped.
        if count > 0, try maskRow(of: name, stamp) == nil { break }
      }
    }
    return nil
  }
}

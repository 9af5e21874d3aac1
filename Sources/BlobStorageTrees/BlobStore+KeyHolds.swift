import BlobStorage
import Foundation

/// What a hold protects.
public enum HoldTarget: Sendable, Hashable {
  /// All versions of a key.
  case key(String)
  /// All versions of all keys of this prefix.
  case prefix(KeyPrefix)
  /// A state, and all versions of keys with its prefix that existed when it was recorded.
  case state(TreeState)
}

/// A hold on keys or on a state: protects them from drops until it is released.
public struct TreeHold: Sendable, Hashable, Codable {
  public enum Kind: String, Sendable, Hashable, Codable, CaseIterable { case key, prefix, state }

  public var name: String
  public var kind: Kind
  /// The key, the prefix, or the ID of the state.
  public var target: String
  public var created: Date
}

extension BlobStore {
  /// Protects keys or a state from deletes, retentions and gc. A put archives what it would replace.
  ///
  /// A delete of held keys throws `held` and changes nothing, and so does a retention of one held key. Other retentions
  /// skip what is held. A cache can evict held keys.
  ///
  /// - Throws: `conditionFailed` if a hold of that name exists. `invalidArgument` for a state that was dropped, for the
  ///   empty prefix, and for a name that is empty or longer than 255 bytes. `limitExceeded` for a key or prefix that is
  ///   too long for a hold: 999 bytes always fit.
  /// - Durability: durable on return.
  public func hold(_ target: HoldTarget, as name: String) async throws(BlobStorageError) {
    try await change(nil) { (engine) throws(BlobStorageError) in
      guard 1...255 ~= name.utf8.count else {
        throw BlobStorageError(.invalidArgument, "The name of a hold has 1 to 255 bytes.")
      }
      let taken = BlobStorageError(
        .conditionFailed, "There is a hold “\(name)” already: release it first, or choose another name.")
      if try BlobHolds(engine).all().contains(where: { $0.name.utf8.elementsEqual(name.utf8) }) {
        throw taken
      }
      let hold: KeyHold
      switch target {
      case .key(let key): hold = KeyHold(name: name, prefix: try Engine.keyBytes(key), isExact: true)
      case .prefix(let prefix):
        let prefix = try Engine.nonempty(prefix, elseSay: "a state")
        hold = KeyHold(
          name: name, prefix: Array((prefix.own ?? prefix.start).utf8), isPath: prefix.own != nil)
      case .state(let state):
        guard let stamp = try engine.internalVersions(StateRecord(state).key).first?.stamp else {
          throw Self.dropped(state)
        }
        hold = KeyHold(name: name, prefix: Array(state.prefix.utf8), state: state.id.number, time: stamp.time)
      }
      guard hold.metadata.count <= BlobLimits.maximumMetadataByteCount else {
        throw BlobStorageError(
          .limitExceeded,
          "A hold has no room for a key or prefix of \(hold.prefix.count) bytes: hold a prefix of at most \(KeyHold.prefixByteCountMax) bytes."
        )
      }
      do throws(BlobStorageError) {
        try engine.putInternal(hold.key, .data(Data()), metadata: hold.metadata, if: .absent)
      } catch { throw error.code == .conditionFailed ? taken : error }
      // A state may have been dropped just before.
      guard case .state(let state) = target, try engine.internalVersions(StateRecord(state).key).isEmpty
      else {
        return
      }
      try engine.dropInternal([hold.key])
      throw Self.dropped(state)
    }
  }

  private static func dropped(_ state: TreeState) -> BlobStorageError {
    BlobStorageError(.invalidArgument, "State \(state.text) was dropped.")
  }

  /// Ends a hold on keys, a state or a blob; false if no hold has that name.
  ///
  /// - Durability: durable on return.
  public func releaseHold(_ name: String) async throws(BlobStorageError) -> Bool {
    try await change(nil) { (engine) throws(BlobStorageError) in
      if let hold = try engine.keyHolds().first(where: { $0.name.utf8.elementsEqual(name.utf8) }) {
        try engine.dropInternal([hold.key])
        return true
      }
      return try BlobHolds(engine).all().contains { $0.name.utf8.elementsEqual(name.utf8) }
        ? BlobHolds(engine).release(name) : false
    }
  }

  /// All holds on keys and states, by name.
  public func treeHolds() async throws(BlobStorageError) -> [TreeHold] {
    try await read { (engine) throws(BlobStorageError) in
      var holds: [TreeHold] = []
      for version in try engine.internalVersions(InternalKey.Purpose.hold.prefix, includesArchived: true) {
        let hold = try KeyHold(key: version.key, metadata: version.row.metadata)
        let text = String(decoding: hold.prefix, as: UTF8.self)
        holds.append(
          TreeHold(
            name: hold.name, kind: hold.state != nil ? .state : hold.isExact ? .key : .prefix,
            target: hold.state.map { TreeState.ID($0).description } ?? text,
            created: Date(timeIntervalSince1970: Double(version.row.created) / 1_000)))
      }
      return holds
    }
  }

  /// For each key, in order, the name of a hold that protects it; nil where none does.
  public func namesOfHolds(on keys: [String]) async throws(BlobStorageError) -> [String?] {
    try await read { (engine) throws(BlobStorageError) in
      try engine.holds(on: keys.map { Array($0.utf8) }).map { $0?.name }
    }
  }
}

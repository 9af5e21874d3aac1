import BlobStorage
import Foundation

/// Reads and writes the states of a store, under internal keys.
package struct StateFile: Sendable {
  let engine: Engine

  package init(_ engine: Engine) { self.engine = engine }

  /// All states whose records can be read, oldest first.
  package func states() throws(BlobStorageError) -> [TreeState] { try StateList(engine).states.map(\.state) }

  /// The wall clock's time.
  package var now: Date { engine.clock.date }

  /// The last snapshot of each series that can have keys of a prefix, oldest first.
  package func latest(overlapping prefix: KeyPrefix) throws(BlobStorageError) -> [TreeState] {
    SnapshotChoice(try states(), now: now).latest(overlapping: prefix)
  }

  /// Throws `invalidArgument` for a name that no state can have, or that one has.
  package func check(_ name: String) throws(BlobStorageError) {
    guard 1...StateRecord.nameByteCountMax ~= name.utf8.count, !name.utf8.contains(UInt8(ascii: "/")),
      name != ".", name != ".."
    else {
      throw BlobStorageError(
        .invalidArgument, "The name of a state has 1 to \(StateRecord.nameByteCountMax) bytes and no slash.")
    }
    guard name != "latest", name.firstMatch(of: /^\d{4}-\d{2}-\d{2}/) == nil else {
      throw BlobStorageError(
        .invalidArgument, "“\(name)” would be taken for a time: name the state differently.")
    }
    guard let free = try freeName(name), free.utf8.elementsEqual(name.utf8) else {
      throw BlobStorageError(
        .invalidArgument, "There is a state “\(name)” already: name this one differently.")
    }
  }

  /// The name, with a number if a state has it already; nil if that would be too long.
  func freeName(_ name: String) throws(BlobStorageError) -> String? {
    let names = Set(try states().compactMap { $0.name.map { Array($0.utf8) } })
    var (free, number) = (name, 1)
    while names.contains(Array(free.utf8)) {
      number += 1
      free = "\(name)-\(number)"
    }
    return free.utf8.count <= StateRecord.nameByteCountMax ? free : nil
  }

  /// Whether a new state can build on this one: no power cut may lose this one and spare the new one. Syncs its pack if
  /// necessary. In a bucket, whether all that it needs is published.
  func canBuild(on record: StateRecord) throws(BlobStorageError) -> Bool {
    guard engine.backend.isDurableOnceSynced else { return try isPublished(record) }
    let unsynced = try engine.catalog.read { (transaction) throws(BlobStorageError) -> PackName? in
      guard let place = try transaction.currentVersion(ofKey: record.key)?.row.place,
        try !engine.writer.canRefer(to: place, transaction)
      else { return nil }
      return try transaction.packRow(place.pack)?.name
    }
    guard let unsynced else { return true }
    return try engine.writer.publisher.secure([unsynced], of: engine.writer) == nil
  }

  /// Whether a state and those that it builds on are published, or will be before what this process writes now. Other
  /// machines cannot read what this one keeps of a deleted pack.
  private func isPublished(_ record: StateRecord) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      var versions: [VersionRow] = []
      for state in try chain(of: record) {
        for key in [state.key, state.linkKey] { versions += try engine.internalVersions(key).map(\.row) }
      }
      return try !KeptVersions(engine.writer).lacksPack(of: versions, engine.blobs)
    } catch {
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      return false
    }
  }

  func put(
    _ record: StateRecord, _ content: BlobContent, _ durability: Durability
  ) throws(BlobStorageError) {
    try engine.putInternal(record.key, content, metadata: record.metadata, durability)
  }

  /// The record of a state, or of the link that it has become.
  ///
  /// - Throws: `corrupted` if there is neither.
  func record(_ id: TreeState.ID) throws(BlobStorageError) -> StateRecord {
    let text = Array(id.description.utf8)
    for purpose in [InternalKey.Purpose.state, .link] {
      if let version = try engine.internalVersions(purpose.key(text)).first {
        return try StateRecord(metadata: version.row.metadata)
      }
    }
    throw BlobStorageError(
      .corrupted, "It builds on state \(id), which is lost: import again to record a new one.")
  }

  /// Walks the entries of a state.
  ///
  /// - Throws: `corrupted` if a state that it builds on is missing.
  package func walk(_ state: TreeState) throws(BlobStorageError) -> StateWalk { try walk(record(state.id)) }

  func walk(_ record: StateRecord) throws(BlobStorageError) -> StateWalk {
    var blobs: [OpenBlob] = []
    do throws(BlobStorageError) {
      for state in try chain(of: record) { blobs.append(try open(state)) }
    } catch {
      for blob in blobs { blob.close() }
      throw error
    }
    return StateWalk(blobs)
  }

  /// A state and those that it builds on, newest first.
  ///
  /// - Throws: `corrupted` if one is missing.
  private func chain(of record: StateRecord) throws(BlobStorageError) -> [StateRecord] {
    var chain: [StateRecord] = []
    var next: StateRecord? = record
    var seen: Set<TreeState.ID> = []
    while let current = next {
      guard seen.insert(current.state.id).inserted else {
        throw BlobStorageError(.corrupted, "State \(record.state.id) builds on itself.")
      }
      chain.append(current)
      next = try current.parent.map { (id) throws(BlobStorageError) in try self.record(id) }
    }
    return chain
  }

  func open(_ record: StateRecord) throws(BlobStorageError) -> OpenBlob {
    for key in [record.key, record.linkKey] {
      if let version = try engine.internalVersions(key).first,
        let blob = try engine.openBlob(version.row.digest)
      {
        return blob
      }
    }
    throw BlobStorageError(.corrupted, "The entries of state \(record.state.id) are missing: run verify.")
  }

  /// Drops states that are not held. A state that others build on stays as a link until none does.
  ///
  /// - Parameter isAlone: whether no import is under way. An import may build on a state that nothing builds on yet.
  package func drop(_ states: [TreeState], isAlone: Bool = true) throws(BlobStorageError) {
    while true {
      do throws(BlobStorageError) { return try dropOnce(states, isAlone: isAlone) } catch {
        // A hold was made meanwhile: what that state builds on stays, too.
        guard error.code == .held else { throw error }
      }
    }
  }

  private func dropOnce(_ states: [TreeState], isAlone: Bool) throws(BlobStorageError) {
    let list = try StateList(engine)
    let held = Set(try engine.keyHolds().compactMap(\.state))
    let dropped = Set(states.map(\.id).filter { !held.contains($0.number) })
    let needed = list.parents(of: list.states.filter { !dropped.contains($0.state.id) })
    // An unreadable state may build on any of them.
    let dropsLinks = isAlone && list.unreadable.isEmpty
    var unneeded: [[UInt8]] = []
    for record in list.states where dropped.contains(record.state.id) {
      if dropsLinks, !needed.contains(record.state.id) {
        unneeded.append(record.key)
        continue
      }
      do throws(BlobStorageError) {
        // A caller that drops wants to free space, so dropping must not need space.
        _ = try engine.folder.withReserve { () throws(BlobStorageError) in
          try VersionChanges(engine).rename(record.key, to: record.linkKey, .relaxed)
        }
      } catch {
        switch error.code {
        // A copy has brought back a state that is a link already.
        case .conditionFailed: unneeded.append(record.key)
        // An unreadable state that others build on stays as it is.
        case .corrupted: break
        default: throw error
        }
      }
    }
    if dropsLinks {
      unneeded += list.links.filter { !needed.contains($0.state.id) }.map(\.linkKey)
    }
    try engine.dropInternal(unneeded, held: .refused)
  }
}

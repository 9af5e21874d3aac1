import BlobStorage
import Foundation

/// The states of a store, under internal keys.
package struct StateFile: Sendable {
  let engine: Engine

  package init(_ engine: Engine) { self.engine = engine }

  /// All states, oldest first.
  func records(_ purpose: InternalKey.Purpose = .state) throws(BlobStorageError) -> [StateRecord] {
    var records: [StateRecord] = []
    for version in try engine.internalVersions(purpose.prefix) {
      records.append(try StateRecord(metadata: version.row.metadata))
    }
    return records.sorted {
      ($0.state.created, $0.state.id.number) < ($1.state.created, $1.state.id.number)
    }
  }

  package func states() throws(BlobStorageError) -> [TreeState] { try records().map(\.state) }

  /// The last state of a prefix.
  func last(of prefix: String) throws(BlobStorageError) -> StateRecord? {
    try records().last { $0.state.prefix.utf8.elementsEqual(prefix.utf8) }
  }

  /// The last state of each prefix that begins so, or that this one begins with, oldest first.
  package func latest(overlapping prefix: String) throws(BlobStorageError) -> [TreeState] {
    var found: [[UInt8]: TreeState] = [:]
    for state in try states()
    where prefix.utf8.starts(with: state.prefix.utf8) || state.prefix.utf8.starts(with: prefix.utf8) {
      found[Array(state.prefix.utf8)] = state
    }
    return found.values.sorted { $0.created < $1.created }
  }

  func check(_ name: String) throws(BlobStorageError) {
    guard 1...StateRecord.nameByteCountMax ~= name.utf8.count, !name.contains("/"), name != ".", name != ".."
    else {
      throw BlobStorageError(
        .invalidArgument, "The name of a state has 1 to \(StateRecord.nameByteCountMax) bytes and no slash.")
    }
    guard name != "latest", name.firstMatch(of: /^\d{4}-\d{2}-\d{2}/) == nil else {
      throw BlobStorageError(
        .invalidArgument, "“\(name)” would be taken for a time: name the state differently.")
    }
    guard try !states().contains(where: { $0.name.map { $0.utf8.elementsEqual(name.utf8) } ?? false }) else {
      throw BlobStorageError(
        .invalidArgument, "There is a state “\(name)” already: name this one differently.")
    }
  }

  func put(
    _ record: StateRecord, _ content: BlobContent, _ durability: Durability
  ) throws(BlobStorageError) {
    try engine.putInternal(record.key, content, metadata: record.metadata, durability)
  }

  /// The record of a state.
  func record(_ id: TreeState.ID) throws(BlobStorageError) -> StateRecord {
    let text = Array(id.description.utf8)
    for purpose in [InternalKey.Purpose.state, .link] {
      if let version = try engine.internalVersions(purpose.key(text)).first {
        return try StateRecord(metadata: version.row.metadata)
      }
    }
    throw BlobStorageError(.corrupted, "State \(id) is missing, and others build on it: run verify.")
  }

  /// Walks the entries of a state.
  ///
  /// - Throws: `corrupted` if a state is missing that it builds on.
  package func walk(_ state: TreeState) throws(BlobStorageError) -> StateWalk { try walk(record(state.id)) }

  func walk(_ record: StateRecord) throws(BlobStorageError) -> StateWalk {
    var chain: [OpenBlob] = []
    do throws(BlobStorageError) {
      var next: StateRecord? = record
      var seen: Set<TreeState.ID> = []
      while let current = next {
        guard seen.insert(current.state.id).inserted else {
          throw BlobStorageError(.corrupted, "State \(record.state.id) builds on itself.")
        }
        chain.append(try open(current))
        next = try current.parent.map { (id) throws(BlobStorageError) in try self.record(id) }
      }
    } catch {
      for blob in chain { blob.close() }
      throw error
    }
    return try StateWalk(chain)
  }

  private func open(_ record: StateRecord) throws(BlobStorageError) -> OpenBlob {
    for key in [record.key, record.linkKey] {
      if let version = try engine.internalVersions(key).first,
        let blob = try engine.openBlob(version.row.digest)
      {
        return blob
      }
    }
    throw BlobStorageError(.corrupted, "The entries of state \(record.state.id) are missing: run verify.")
  }

  /// Drops states. Those that others build on stay as links until none does.
  package func drop(_ states: [TreeState]) throws(BlobStorageError) {
    for state in states {
      let record = try record(state.id)
      _ = try engine.rename(record.key, to: record.linkKey, .relaxed)
    }
    try dropLinks()
  }

  /// Drops links that no state builds on.
  private func dropLinks() throws(BlobStorageError) {
    let links = try records(.link)
    var parents: [TreeState.ID: TreeState.ID] = [:]
    for link in links { parents[link.state.id] = link.parent }
    var needed: Set<TreeState.ID> = []
    let states = try records()
    for state in states { parents[state.state.id] = state.parent }
    for state in states {
      var next = state.parent
      while let id = next, needed.insert(id).inserted { next = parents[id] }
    }
    try engine.dropInternal(links.filter { !needed.contains($0.state.id) }.map(\.linkKey))
  }
}

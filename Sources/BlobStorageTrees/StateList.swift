import BlobStorage
import Foundation

/// A state that cannot be read, and why. Nothing that it may need is dropped.
public struct UnreadableState: Sendable, Hashable, Codable {
  public var id: TreeState.ID
  /// Nil if it has none, or if the name cannot be read.
  public var name: String?
  /// The prefix of its keys; nil if it cannot be read.
  public var prefix: String?
  /// One sentence for a person.
  public var reason: String

  /// Its text for a person: the name, or else the ID.
  public var text: String { name ?? id.description }
}

extension UnreadableState {
  init(_ state: TreeState, _ reason: String) {
    self.init(id: state.id, name: state.name, prefix: state.prefix, reason: reason)
  }
}

/// The records of the states of a store.
struct StateList {
  /// In the order in which they were recorded: of snapshots that were taken over, in that of their times.
  var states: [StateRecord] = []
  /// Dropped states that others build on.
  var links: [StateRecord] = []
  /// States with unreadable records; only their numbers are known.
  var unreadable: [UnreadableState] = []

  init(_ engine: Engine) throws(BlobStorageError) {
    for purpose in [InternalKey.Purpose.state, .link] {
      for version in try engine.internalVersions(purpose.prefix) {
        do throws(BlobStorageError) {
          let record = try StateRecord(metadata: version.row.metadata, stamp: version.stamp)
          // In a forged store, two records could name one state.
          guard version.key == (purpose == .state ? record.key : record.linkKey) else {
            throw BlobStorageError(.corrupted, "its record is that of another state")
          }
          if purpose == .state { states.append(record) } else { links.append(record) }
        } catch {
          guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
          let id = TreeState.ID(String(decoding: version.key.dropFirst(2), as: UTF8.self))
          unreadable.append(UnreadableState(id: id ?? TreeState.ID(0), reason: error.message))
        }
      }
    }
    states = StateRecord.sorted(states)
  }

  /// The IDs of the states that these build on, directly or indirectly.
  func parents(of states: some Sequence<StateRecord>) -> Set<TreeState.ID> {
    var parents: [TreeState.ID: TreeState.ID] = [:]
    for record in links + self.states { parents[record.state.id] = record.parent }
    var found: Set<TreeState.ID> = []
    for state in states {
      var next = state.parent
      while let id = next, found.insert(id).inserted { next = parents[id] }
    }
    return found
  }
}

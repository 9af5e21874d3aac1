import ArgumentParser
import BlobStorage
import BlobStorageTrees

/// `diff`: shows how two states differ.
struct DiffCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "diff", abstract: "Shows how two states differ.",
    discussion: """
      Each line begins with + for what only the second state has, - for what only the first has, and M for what has \
      changed: bytes or attributes. Folders end in /. A \
      time, or latest, means the last snapshot of the other one's series.
      """)

  @Argument(help: "The first state: its name, the first digits of its ID, or a time.")
  var first: StateArgument

  @Argument(help: "The second state.")
  var second: StateArgument

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func perform(on store: BlobStore) async throws {
    let (old, new) = try await states(in: store)
    try LineOutput.write(try await store.differences(from: old, to: new), json: shared.json) { change in
      let mark =
        switch change.kind {
        case .added: "+"
        case .removed: "-"
        case .changed: "M"
        }
      return "\(mark) \(change.key.printable)"
    }
  }

  /// The two states. A time means the last state of the other's series.
  private func states(in store: BlobStore) async throws -> (TreeState, TreeState) {
    if first.isTime, !second.isTime {
      let new = try await second.state(in: store)
      return (try await first.state(in: store, of: new.series), new)
    }
    let old = try await first.state(in: store)
    return (old, try await second.state(in: store, of: old.series))
  }
}

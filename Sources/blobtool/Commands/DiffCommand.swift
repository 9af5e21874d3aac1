import ArgumentParser
import BlobStorage
import BlobStorageTrees

/// `diff`: how two states differ.
struct DiffCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "diff", abstract: "Shows how two states differ.",
    discussion: """
      Each line begins with + for what only the second state has, - for what only the first has, and M for what has \
      changed: bytes or attributes. Folders end in /.
      """)

  @Argument(help: "The first state: its name, the first digits of its ID, or a time.")
  var first: StateArgument

  @Argument(help: "The second state.")
  var second: StateArgument

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func perform(on store: BlobStore) async throws {
    let changes = try await store.differences(from: first.state(in: store), to: second.state(in: store))
    let encoder = JSONText()
    var lines = LineOutput()
    for change in changes {
      let mark =
        switch change.kind {
        case .added: "+"
        case .removed: "-"
        case .changed: "M"
        }
      try lines.add(shared.json ? encoder.line(change) : "\(mark) \(change.key.printable)")
    }
    try lines.flush()
  }
}

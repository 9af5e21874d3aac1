import ArgumentParser
import BlobStorage
import BlobStorageTrees

/// `states`: lists the states that imports have recorded.
struct StatesCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "states", abstract: "Lists the states that imports have recorded, oldest first.",
    discussion: """
      Columns: ID, when it was imported, files, size, prefix, name. Each import records which files, links and folders it \
      found. `list --at`, `export --at`, `diff`, `find` and `restore` use states; `keep` drops old ones.
      """,
    aliases: ["snapshots"])

  @Argument(help: "What the keys of the states begin with (default: all states).")
  var prefix: String = ""

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func perform(on store: BlobStore) async throws {
    let states = try await store.states().filter { $0.prefix.utf8.starts(with: prefix.utf8) }
    try StandardOutput.unlessEnded { try LineOutput.write(states, json: shared.json, text) }
    try UnreadableStates.check(try await store.unreadableStates(), "their prefixes and times are not known")
  }

  private func text(_ state: TreeState) -> String {
    let failed = state.failureCount > 0 ? "  (\(HumanText.count(state.failureCount, "file")) failed)" : ""
    let name = state.name.map { "  \($0.printable)" } ?? ""
    return "\(state.id)  \(times.text(state.created))  \(HumanText.grouped(state.fileCount).padded(9))"
      + "  \(HumanText.size(state.byteCount).padded(9))  “\(state.prefix.printable)”\(name)\(failed)"
  }
}

/// Checks for states that cannot be read.
enum UnreadableStates {
  /// Throws if there are any: the command has left them out.
  static func check(_ states: [UnreadableState], _ consequence: String) throws {
    guard let first = states.first else { return }
    for state in states.dropFirst() {
      StandardError.say("state \(state.text.printable) cannot be read: \(state.reason.printable)")
    }
    throw Failure(
      ExitStatus.failed,
      "State \(first.text.printable) cannot be read (\(first.reason.clause)): \(consequence); run `blobtool verify`."
    )
  }
}

import ArgumentParser
import BlobStorage
import BlobStorageTrees

/// `states`: lists the states that imports have recorded.
struct StatesCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "states", abstract: "Lists or drops the snapshots that imports have recorded, oldest first.",
    discussion: """
      Columns: ID, when it was imported, files, size, prefix, name. Each import records which files, links and folders it \
      found. `list --at`, `export --at`, `diff`, `find` and `restore` use snapshots; `keep` drops old ones.

      --drop drops chosen snapshots, with the versions that imports have replaced and no other snapshot has.
      """,
    aliases: ["snapshots"])

  @Argument(help: "Snapshots of the keys below PREFIX (default: all).")
  var prefix: String = ""

  @OptionGroup var prefixBytes: PrefixBytesOption

  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp(
      "Drop these snapshots: by name, or by the first digits of their IDs.", valueName: "name"))
  var drop: [StateArgument] = []

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { drop.isEmpty }

  func validate() throws {
    _ = try prefixBytes.value(or: prefix)
    guard drop.isEmpty || prefix.isEmpty && prefixBytes.value == nil else {
      throw ValidationError("--drop names snapshots: give it without a prefix")
    }
  }

  func perform(on store: BlobStore) async throws {
    if !drop.isEmpty { return try await drop(from: store) }
    let prefix = try prefixBytes.value(or: prefix)
    let states = try await store.states().filter { $0.isWithin(prefix) }
    try StandardOutput.unlessEnded { try LineOutput.write(states, json: shared.json, text) }
    try UnreadableStates.check(try await store.unreadableStates(), "their prefixes and times are not known")
  }

  private func drop(from store: BlobStore) async throws {
    let states = try await store.states()
    var dropped: [TreeState] = []
    for argument in drop {
      guard let state = try argument.named(among: states) else {
        throw Failure(
          ExitStatus.notFound,
          "There is no snapshot “\(argument.text.printable)”: --drop takes names and IDs, which `blobtool snapshots` lists."
        )
      }
      dropped.append(state)
    }
    let report = try await store.dropSnapshots(dropped)
    if shared.json { return try JSONText.print(report) }
    try StandardOutput.write(
      "Dropped \(HumanText.count(report.droppedStateCount, "snapshot")) and \(HumanText.count(report.droppedVersionCount, "version")).\n"
    )
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

import ArgumentParser
import BlobStorage
import BlobStorageTransfer
import BlobStorageTrees

/// `find`: finds files in all states.
struct FindCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "find", abstract: "Finds files in all states, deleted ones too.",
    discussion: """
      A pattern without / is one of names, and one with / is one of whole keys. Each line is a version: its ID, the first \
      and the last state that has it, and its key, with the word \
      deleted behind it if the version was deleted since. States that cannot be read are named, and the exit code is 1.
      """)

  @Argument(help: "A shell pattern; * also stands for /.")
  var glob: String

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    guard !glob.isEmpty else { throw ValidationError("the pattern is empty") }
  }

  func perform(on store: BlobStore) async throws {
    let pattern = KeyPattern(glob)
    let isOfNames = !glob.contains("/")
    let found = try await store.findInStates { key in
      pattern.matches(isOfNames ? String(key.split(separator: "/").last ?? "") : key)
    }
    let encoder = JSONText()
    var lines = LineOutput()
    for version in found.versions { try lines.add(shared.json ? encoder.line(version) : text(version)) }
    try lines.flush()
    try UnreadableStates.check(found.unreadable, "what they have is not in the list")
    guard !found.versions.isEmpty else {
      throw Failure(ExitStatus.notFound, "No state has a file that matches “\(glob.printable)”.")
    }
  }

  private func text(_ found: FoundVersion) -> String {
    let first = found.states.first?.text ?? ""
    let last = found.states.last?.text ?? ""
    return
      "\(found.version)  \(first.printable)..\(last.printable)  \(found.key.printable)\(found.isDeleted ? "  deleted" : "")"
  }
}

import ArgumentParser
import BlobStorage
import BlobStorageTransfer
import BlobStorageTrees

/// `find`: finds files in all states.
struct FindCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "find", abstract: "Finds files in all states, deleted ones too.",
    discussion: """
      A pattern without / matches names; one with / matches whole keys. Each line is a version: its ID, the first and the \
      last state that has it, and its key. The word deleted follows if the version was deleted since. If a state cannot be \
      read, the command names it and ends with exit code 1.
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
    // A mark behind a slash would be one character with it.
    let slash = UInt8(ascii: "/")
    let isOfNames = !glob.utf8.contains(slash)
    let found = try await store.findInStates { key in
      guard isOfNames else { return pattern.matches(key) }
      return pattern.matches(
        String(decoding: Array(key.utf8).split(separator: slash).last ?? [], as: UTF8.self))
    }
    try StandardOutput.unlessEnded { try LineOutput.write(found.versions, json: shared.json, text) }
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

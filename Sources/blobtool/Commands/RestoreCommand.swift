import ArgumentParser
import BlobStorage
import BlobStorageTrees
import Foundation

/// `restore`: makes an earlier version current again.
struct RestoreCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "restore",
    abstract: "Makes the version that a key had in a state, or at a time, current again.",
    discussion: """
      The version that was current stays in the key's history. To bring back a whole tree as files, use `export --at`.
      """)

  @Argument(help: "The key.")
  var key: KeyArgument

  @Option(help: ArgumentHelp("A state, or a time such as 2026-01-31T18:30.", valueName: "state"))
  var at: StateArgument

  @OptionGroup var shared: SharedOptions

  func validate() throws { _ = try key.checked() }

  func perform(on store: BlobStore) async throws {
    let states = try await store.states()
    let isOfState = states.contains { key.text.utf8.starts(with: $0.prefix.utf8) }
    let time = StateArgument.time(at.text)
    let result: PutResult
    if isOfState || time == nil {
      let state = try await at.state(in: store, prefix: key.text)
      guard let restored = try await store.restore(key.text, from: state) else {
        throw Failure(
          ExitStatus.notFound, "State \(state.text.printable) has no file “\(key.text.printable)”.")
      }
      result = restored
    } else {
      // A key that no import knows.
      let versions = try await store.versions(of: key.text)
      guard let version = versions.first(where: { $0.created <= (time ?? .distantPast) }),
        let restored = try await store.restore(version.id, of: key.text)
      else {
        throw Failure(
          ExitStatus.notFound, "The key “\(key.text.printable)” has no version from then or before.")
      }
      result = restored
    }
    if shared.json {
      try JSONText.print(result)
    } else {
      try StandardOutput.write(
        "Restored “\(key.text.printable)”: \(HumanText.size(result.version.byteCount)).\n")
    }
  }
}

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
    let version = try await wanted(in: store)
    guard let result = try await store.restore(version.id, of: key.text) else {
      throw Failure.noVersion(version.id.description, of: key.text)
    }
    if shared.json {
      try JSONText.print(result)
    } else {
      try StandardOutput.write(
        "Restored “\(key.text.printable)” as of \(version.created.localText): \(HumanText.size(version.byteCount)).\n"
      )
    }
  }

  private func wanted(in store: BlobStore) async throws -> BlobVersion {
    let states = try await store.states()
    let isOfState = states.contains { key.text.utf8.starts(with: $0.prefix.utf8) }
    let time = StateArgument.time(at.text)
    if isOfState || time == nil {
      let state = try await at.state(in: store, prefix: key.text)
      guard let version = try await store.version(of: key.text, in: state) else {
        throw Failure(
          ExitStatus.notFound, "State \(state.text.printable) has no file “\(key.text.printable)”.")
      }
      return version
    }
    // A key that no import knows.
    guard
      let version = try await store.versions(of: key.text).first(where: {
        $0.created <= (time ?? .distantPast)
      })
    else {
      throw Failure(
        ExitStatus.notFound, "The key “\(key.text.printable)” has no version from then or before.")
    }
    return version
  }
}

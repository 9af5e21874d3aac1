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
    // What it restores is an answer, too.
    try await store.tellingLosses { try await restore(in: store) }
  }

  private func restore(in store: BlobStore) async throws {
    let states = try await store.states()
    let time = states.contains { $0.isNamed(at.text) } ? nil : StateArgument.time(at.text)
    let series = try await self.series(in: store, states)
    let result: PutResult
    if series != nil || time == nil {
      let state = try await at.state(in: store, prefix: .below(key.text), of: series)
      guard let restored = try await store.restore(key.text, from: state) else {
        throw Failure(
          ExitStatus.notFound, "State \(state.text.printable) has no file “\(key.text.printable)”.")
      }
      result = restored
    } else {
      // No import knows the key.
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

  /// The series of the last import until the time of which one has the key; nil if none has it, or if a state is named.
  ///
  /// - Throws: `Failure` if several series of one prefix have it.
  private func series(in store: BlobStore, _ states: [TreeState]) async throws -> TreeSeries? {
    let key = key.text
    let time = StateArgument.time(at.text) ?? .distantFuture
    let covering = states.filter { $0.created <= time && key.utf8.starts(with: $0.prefix.utf8) }
    guard at.isTime, !covering.isEmpty else { return nil }
    let found = try await store.findInStates { $0.utf8.elementsEqual(key.utf8) }
    let known = Set(found.versions.flatMap(\.states).map(\.series))
    // What cannot be read may know it, too.
    if known.isEmpty, !found.unreadable.isEmpty { return covering.last?.series }
    guard let last = covering.last(where: { known.contains($0.series) }) else { return nil }
    let rival = covering.last { state in
      state.series != last.series && state.prefix.utf8.elementsEqual(last.prefix.utf8)
        && known.contains(state.series)
    }
    if let rival {
      throw Failure(
        ExitStatus.wrongUsage,
        "Snapshots from several sources have the key “\(key.printable)”: name one by its ID, such as \(last.id) or \(rival.id)."
      )
    }
    return last.series
  }
}

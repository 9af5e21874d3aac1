import ArgumentParser
import BlobStorage

/// `versions`: lists the versions of a key.
struct VersionsCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "versions", abstract: "Lists the versions of a key, newest first.",
    discussion: """
      Columns: version, size, when put, digest. The first is the current one. Commands take the first digits of a \
      version, at least 6, if no other version of the key begins with them.
      """)

  @Argument(help: "The key.")
  var key: KeyArgument

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws { _ = try key.checked() }

  func perform(on store: BlobStore) async throws {
    let versions = try await store.validVersions(of: key.text)
    guard !versions.isEmpty else { throw Failure.noKey(key.text) }
    try LineOutput.write(versions, json: shared.json, text)
  }

  private func text(_ version: BlobVersion) -> String {
    "\(version.id)  \(HumanText.size(version.byteCount).padded(9))  \(times.text(version.created))  \(version.digest)"
  }
}

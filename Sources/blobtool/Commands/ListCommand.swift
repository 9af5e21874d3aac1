import ArgumentParser
import BlobStorage

/// `list`: lists keys in byte order.
struct ListCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "Lists the keys that begin with a prefix, in byte order.",
    discussion: "Columns: size, when put, versions, key.")

  @Argument(help: "What the keys begin with (default: all keys).")
  var prefix: String = ""

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func perform(on store: BlobStore) async throws {
    let encoder = JSONText()
    var lines = LineOutput()
    for try await entry in store.keys(prefix: prefix) {
      try lines.add(shared.json ? encoder.line(entry) : text(entry))
    }
    try lines.flush()
  }

  private func text(_ entry: KeyEntry) -> String {
    let version = entry.current
    return "\(HumanText.size(version.byteCount).padded(9))  \(version.created.text)"
      + "  \(String(entry.versionCount).padded(3))  \(entry.key.printable)"
  }
}

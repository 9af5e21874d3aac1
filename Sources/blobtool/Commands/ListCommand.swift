import ArgumentParser
import BlobStorage
import BlobStorageTransfer

/// `list`: lists keys in byte order.
struct ListCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "Lists the keys that begin with a prefix, in byte order.",
    discussion: "Columns: size, when put, versions, key.", aliases: ["ls"])

  @Argument(help: "What the keys begin with (default: all keys).", completion: KeyCompletion.kind)
  var prefix: String = ""

  @OptionGroup var globs: GlobOptions

  @Option(help: ArgumentHelp("List at most N keys.", valueName: "n"))
  var limit: Int?

  @Flag(
    name: [.customShort("0"), .customLong("null")],
    help: "Print keys alone, each as it is and with a NUL after it, for `xargs -0`.")
  var isNullTerminated = false

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    guard limit ?? 0 >= 0 else { throw ValidationError("--limit is 0 or more") }
    guard !isNullTerminated || !shared.json else {
      throw ValidationError("--null and --json exclude each other")
    }
  }

  func perform(on store: BlobStore) async throws {
    let encoder = JSONText()
    var lines = LineOutput()
    var count = 0
    if limit == 0 { return }
    let matches = globs.filter
    for try await entry in store.keys(prefix: globs.prefix(within: prefix))
    where entry.key.utf8.starts(with: prefix.utf8) && matches(entry.key) {
      if isNullTerminated {
        try lines.add(raw: entry.key + "\0")
      } else {
        try lines.add(shared.json ? encoder.line(entry) : text(entry))
      }
      count += 1
      if count == limit { break }
    }
    try lines.flush()
  }

  private func text(_ entry: KeyEntry) -> String {
    let version = entry.current
    return "\(HumanText.size(version.byteCount).padded(9))  \(times.text(version.created))"
      + "  \(String(entry.versionCount).padded(3))  \(entry.key.printable)"
  }
}

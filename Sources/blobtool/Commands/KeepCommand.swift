import ArgumentParser
import BlobStorage

/// `keep`: drops old versions.
struct KeepCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "keep",
    abstract: "Keeps each key's current version and its N youngest archived ones, and drops the others.",
    usage: "blobtool keep --up-to N (KEY... | --prefix PREFIX | --all)")

  @Option(help: ArgumentHelp("How many archived versions a key keeps: 0 or more.", valueName: "n"))
  var upTo: Int

  @Argument(help: "The keys.")
  var keys: [KeyArgument] = []

  @Option(help: "All keys that begin with PREFIX.")
  var prefix: String?

  @Flag(help: "All keys.")
  var all = false

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    guard upTo >= 0 else { throw ValidationError("--up-to is 0 or more") }
    let waysCount = (keys.isEmpty ? 0 : 1) + (prefix == nil ? 0 : 1) + (all ? 1 : 0)
    guard waysCount == 1 else { throw ValidationError("give one of these: keys, --prefix, --all") }
    // Probably a shell variable that was never set.
    guard prefix != "" else {
      throw ValidationError("an empty --prefix would mean every key: use --all for that")
    }
    for key in keys { _ = try key.checked() }
  }

  func perform(on store: BlobStore) async throws {
    var output = Output()
    var missing: [String] = []
    for key in keys.map(\.text) {
      let result = try await store.keep(upTo: upTo, of: key)
      output.add(result)
      if result.keyCount == 0 { missing.append(key) }
    }
    if let prefix { output.add(try await store.keep(upTo: upTo, prefix: prefix)) }
    if all { output.add(try await store.keepInAllKeys(upTo: upTo)) }
    if shared.json {
      try JSONText.print(output)
    } else {
      try StandardOutput.write(
        "Dropped \(HumanText.count(output.versionsDropped, "version")) of \(HumanText.count(output.keys, "key")).\n"
      )
    }
    try MissingKeys.check(missing)
  }

  private struct Output: Encodable {
    var keys = 0
    var versionsDropped = 0

    mutating func add(_ result: RetentionResult) {
      keys += result.keyCount
      versionsDropped += result.droppedVersionCount
    }
  }
}

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

  @OptionGroup var dry: DryRunOption

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
    var output = RetentionResult()
    var missing: [String] = []
    func add(_ result: RetentionResult) {
      output.keyCount += result.keyCount
      output.droppedVersionCount += result.droppedVersionCount
    }
    for key in keys.map(\.text) {
      let result =
        dry.isDryRun
        ? plan(try await store.versions(of: key).count) : try await store.keep(upTo: upTo, of: key)
      add(result)
      if result.keyCount == 0 { missing.append(key) }
    }
    if dry.isDryRun, all || prefix != nil {
      for try await entry in store.keys(prefix: prefix ?? "") { add(plan(entry.versionCount)) }
    } else if let prefix {
      add(try await store.trimHistory(of: .prefix(prefix), toArchived: upTo))
    } else if all {
      add(try await store.trimHistory(of: .all, toArchived: upTo))
    }
    if shared.json {
      try JSONText.print(Output(result: output, isDryRun: dry.isDryRun))
    } else {
      try StandardOutput.write(
        "\(dry.isDryRun ? "Would drop" : "Dropped") \(HumanText.count(output.droppedVersionCount, "version")) of \(HumanText.count(output.keyCount, "key")).\n"
      )
    }
    try MissingKeys.check(missing)
  }

  /// What a key with so many versions would lose.
  private func plan(_ versionCount: Int) -> RetentionResult {
    RetentionResult(
      keyCount: versionCount > 0 ? 1 : 0, droppedVersionCount: max(0, versionCount - 1 - upTo))
  }

  /// The result, and whether nothing was changed.
  private struct Output: Encodable {
    var result: RetentionResult
    var isDryRun: Bool

    private enum CodingKeys: String, CodingKey { case dryRun }

    func encode(to encoder: any Encoder) throws {
      try result.encode(to: encoder)
      var container = encoder.container(keyedBy: CodingKeys.self)
      if isDryRun { try container.encode(true, forKey: .dryRun) }
    }
  }
}

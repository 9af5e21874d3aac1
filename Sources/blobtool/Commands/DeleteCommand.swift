import ArgumentParser
import BlobStorage

/// `delete`: drops keys with all their versions.
struct DeleteCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "delete", abstract: "Drops keys with all their versions.",
    discussion: """
      gc frees their space. If a key is not in the store, or no key begins with the prefix, the exit code is 3; the \
      other keys are dropped.
      """)

  @Argument(help: "Keys to drop.")
  var keys: [KeyArgument] = []

  @Option(help: "Drop every key that begins with PREFIX.")
  var prefix: String?

  @Flag(help: "Drop every key.")
  var all = false

  @Flag(name: [.customLong("dry-run")], help: "Only say how many keys would be dropped.")
  var isDryRun = false

  @OptionGroup var conditions: ConditionOptions

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    guard conditions.condition == .always || !isDryRun else {
      throw ValidationError("--dry-run cannot be combined with --if-version or --if-absent")
    }
    guard conditions.condition == .always || (keys.count == 1 && prefix == nil && !all) else {
      throw ValidationError(
        "--if-version and --if-absent take one key, without --prefix and --all")
    }
    guard !keys.isEmpty || prefix != nil || all else { throw ValidationError("give keys, --prefix or --all") }
    guard !all || (keys.isEmpty && prefix == nil) else {
      throw ValidationError("--all drops every key: give it without keys and --prefix")
    }
    // Probably a shell variable that was never set.
    guard prefix != "" else {
      throw ValidationError("an empty --prefix would drop every key: use --all for that")
    }
    for key in keys { _ = try key.checked() }
  }

  func perform(on store: BlobStore) async throws {
    var missing: [String] = []
    var missingPrefix: String?
    for key in keys {
      if try await !isThere(key.text, in: store) { missing.append(key.text) }
    }
    var count = 0
    if isDryRun {
      let (prefixCount, otherCount) = try await countKeys(of: store)
      count = prefixCount + otherCount
      if prefixCount == 0 { missingPrefix = prefix }
    } else if conditions.condition != .always, let key = keys.first?.text {
      count = try await conditions.explaining(json: shared.json) {
        try await store.delete(key, if: conditions.condition) ? 1 : 0
      }
      // The key is absent, as wanted.
      if conditions.ifAbsent { missing = [] }
    } else if all {
      count = try await store.deleteAllKeys()
    } else {
      // Drop by prefix first: a named key may be the only one below it.
      if let prefix {
        count = try await store.delete(prefix: prefix)
        if count == 0 { missingPrefix = prefix }
      }
      if !keys.isEmpty { count += try await store.delete(keys.map(\.text)) }
    }
    if shared.json {
      try JSONText.print(Output(keys: count, dryRun: isDryRun ? true : nil))
    } else {
      try StandardOutput.write("\(isDryRun ? "Would drop" : "Dropped") \(HumanText.count(count, "key")).\n")
    }
    try MissingKeys.check(missing)
    if let missingPrefix { throw Failure.noKeys(of: missingPrefix) }
  }

  /// Counts the keys that the command would drop for the prefix or `--all`, and the other named keys.
  private func countKeys(of store: BlobStore) async throws -> (prefixCount: Int, otherCount: Int) {
    var (prefixCount, otherCount) = (0, 0)
    if all || prefix != nil {
      for try await _ in store.keys(prefix: prefix ?? "") { prefixCount += 1 }
    }
    for key in Set(keys.map { Array($0.text.utf8) })
    where !(prefix.map { key.starts(with: $0.utf8) } ?? false) {
      if try await isThere(String(decoding: key, as: UTF8.self), in: store) { otherCount += 1 }
    }
    return (prefixCount, otherCount)
  }

  /// Whether the key can be dropped. That includes a key whose newest state is lost: dropping makes it certain.
  private func isThere(_ key: String, in store: BlobStore) async throws -> Bool {
    do { return try await store.currentVersion(of: key) != nil } catch {
      guard error.code == .corrupted else { throw error }
      return true
    }
  }

  private struct Output: Encodable {
    var keys: Int
    var dryRun: Bool?
  }
}

/// The named keys that are not in the store.
enum MissingKeys {
  /// Throws if there are any.
  static func check(_ missing: [String]) throws {
    guard let first = missing.first else { return }
    if missing.count == 1 { throw Failure.noKey(first) }
    throw Failure(
      ExitStatus.notFound,
      "\(HumanText.count(missing.count, "key")) are not in the store, “\(first.printable)” among them.")
  }
}

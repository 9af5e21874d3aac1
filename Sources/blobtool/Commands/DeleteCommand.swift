import ArgumentParser
import BlobStorage
import BlobStorageTrees

/// `delete`: drops keys with all their versions.
struct DeleteCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "delete", abstract: "Drops keys with all their versions.",
    discussion: """
      gc frees their space. If a key is not in the store, or there is no key of the prefix, the exit code is 3; the \
      other keys are dropped. With --glob, it drops the keys that match.
      """)

  @Argument(help: "Keys to drop.")
  var keys: [KeyArgument] = []

  @OptionGroup var prefixes: PrefixOptions

  @Flag(help: "Drop every key.")
  var all = false

  @OptionGroup var globs: GlobOptions

  @OptionGroup var dry: DryRunOption

  @Flag(name: .shortAndLong, help: "Name each key that is dropped, on standard error.")
  var verbose = false

  @OptionGroup var conditions: ConditionOptions

  @OptionGroup var shared: SharedOptions

  private static let pageCount = 1_000

  private var prefix: KeyPrefix? { prefixes.value }

  func validate() throws {
    let isPlain = prefix == nil && !all && globs.glob.isEmpty
    guard !conditions.hasCondition || !(dry.isDryRun || verbose) else {
      throw ValidationError(
        "--dry-run and --verbose cannot be combined with --if-version and --if-absent")
    }
    guard !conditions.hasCondition || (keys.count == 1 && isPlain) else {
      throw ValidationError(
        "--if-version and --if-absent take one key, without --prefix, --glob and --all")
    }
    guard !keys.isEmpty || !isPlain else { throw ValidationError("give keys, --prefix, --glob or --all") }
    guard !all || (keys.isEmpty && prefix == nil) else {
      throw ValidationError("--all drops every key: give it without keys and --prefix")
    }
    guard globs.glob.isEmpty || (keys.isEmpty && prefix == nil && !all) else {
      throw ValidationError("--glob drops the keys that match: give it without keys, --prefix and --all")
    }
    try prefixes.checkNotEmpty()
    for key in keys { _ = try key.checked() }
  }

  func perform(on store: BlobStore) async throws {
    var missing: [String] = []
    for key in keys {
      if try await !isThere(key.text, in: store) { missing.append(key.text) }
    }
    // Keys that the user did not name one by one.
    var foundCount = 0
    var count = 0
    if conditions.hasCondition, let key = keys.first?.text {
      let condition = try await conditions.condition(for: key, in: store)
      count = try await conditions.explaining(json: shared.json) {
        try await store.delete(key, if: condition) ? 1 : 0
      }
      // The key is absent, as wanted.
      if conditions.ifAbsent { missing = [] }
    } else if dry.isDryRun || verbose || !globs.glob.isEmpty {
      foundCount = try await dropListed(of: store)
      count = try await foundCount + dropNamed(of: store)
    } else if all {
      count = try await store.deleteAllKeys()
    } else {
      // Drop by prefix first: a named key may be the only one below it.
      if let prefix { foundCount = try await store.delete(prefix: prefix) }
      count = foundCount
      if !keys.isEmpty { count += try await store.delete(keys.map(\.text)) }
    }
    try StandardOutput.unlessEnded {
      if shared.json {
        try JSONText.print(Output(keys: count, dryRun: dry.isDryRun ? true : nil))
      } else {
        try StandardOutput.write(
          "\(dry.isDryRun ? "Would drop" : "Dropped") \(HumanText.count(count, "key")).\n")
      }
    }
    try MissingKeys.check(missing)
    guard foundCount == 0 else { return }
    if let prefix { throw Failure.noKeys(of: prefix) }
    if let glob = globs.glob.first { throw Failure.noKeys(matching: glob) }
  }

  /// Drops the keys of the prefix, the patterns or `--all`, a page at a time. A dry run only counts them.
  private func dropListed(of store: BlobStore) async throws -> Int {
    guard all || prefix != nil || !globs.glob.isEmpty else { return 0 }
    // A hold on any of them refuses all.
    if try await !store.treeHolds().isEmpty {
      try await forEachPage(of: store) { try await HeldKeys.check($0, in: store) }
    }
    var count = 0
    try await forEachPage(of: store) { count += try await drop($0, of: store) }
    // Without keys, the states go, too.
    if all, !dry.isDryRun { count += try await store.deleteAllKeys() }
    return count
  }

  private func forEachPage(of store: BlobStore, _ body: ([String]) async throws -> Void) async throws {
    let matches = globs.filter
    var page: [String] = []
    for try await entry in store.keys(prefix: globs.prefix(within: prefix ?? .all)) where matches(entry.key) {
      page.append(entry.key)
      guard page.count == Self.pageCount else { continue }
      try await body(page)
      page = []
    }
    try await body(page)
  }

  /// Drops the named keys that the prefix does not cover.
  private func dropNamed(of store: BlobStore) async throws -> Int {
    var found: [String] = []
    for key in Set(keys.map { Array($0.text.utf8) }).map({ String(decoding: $0, as: UTF8.self) })
    where prefix?.contains(key) != true {
      if try await isThere(key, in: store) { found.append(key) }
    }
    return try await drop(found, of: store)
  }

  private func drop(_ keys: [String], of store: BlobStore) async throws -> Int {
    if dry.isDryRun { try await HeldKeys.check(keys, in: store) }
    let count = dry.isDryRun ? keys.count : keys.isEmpty ? 0 : try await store.delete(keys)
    if verbose {
      for key in keys { shared.mention("\(dry.isDryRun ? "would drop" : "dropped") “\(key.printable)”") }
    }
    return count
  }

  /// Whether the key can be dropped. That includes a key whose newest state is lost: then the drop decides it.
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

/// Checks for holds on keys.
enum HeldKeys {
  /// Throws if a hold protects any of the keys, as dropping them would.
  static func check(_ keys: [String], in store: BlobStore) async throws {
    for (key, hold) in zip(keys, try await store.namesOfHolds(on: keys)) {
      guard let hold else { continue }
      throw Failure(
        ExitStatus.failed, "“\(key.printable)” is held by “\(hold.printable)”: release that hold first.")
    }
  }
}

/// Checks for named keys that are not in the store.
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

import ArgumentParser
import BlobStorage
import BlobStorageTrees

/// `keep`: drops old states and versions.
struct KeepCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "keep",
    abstract: "Drops old states and archived versions, and keeps what the options say.",
    usage: """
      blobtool keep --up-to N (KEY... | --prefix PREFIX | --all)
      blobtool keep [--last N] [--daily N] [--weekly N] ... (KEY... | --prefix PREFIX | --all)
      """,
    discussion: """
      --up-to keeps each key's current version and its N youngest archived ones.

      The other options select by time, and whatever one of them selects stays. With --prefix and --all they select \
      snapshots of each series: those of one prefix with the same sources, and host if another program made them. These \
      stay with all their versions. The other snapshots go, with the versions that no remaining one has. Archived \
      versions are selected by the same rules. --last 0 keeps no snapshot.

      A snapshot that lacks files displaces no complete one. One that is dated more than a day ahead of now is named and \
      stays, and displaces none: `blobtool snapshots --drop` drops it.

      If a state cannot be read, the command names it, drops no version that it may have, and ends with exit code 1. \
      While a pack is lost, rules of time drop no version, and the exit code is 4.

      Current versions and what `blobtool hold` protects always stay. `blobtool gc` then frees the space.
      """)

  @Option(help: ArgumentHelp("How many archived versions a key keeps: 0 or more.", valueName: "n"))
  var upTo: Int?

  @Option(help: ArgumentHelp("Keep the youngest N.", valueName: "n"))
  var last: Int?

  @Option(help: ArgumentHelp("Keep the youngest of each of the last N hours that have one.", valueName: "n"))
  var hourly: Int?

  @Option(help: ArgumentHelp("The same for days.", valueName: "n"))
  var daily: Int?

  @Option(help: ArgumentHelp("The same for weeks.", valueName: "n"))
  var weekly: Int?

  @Option(help: ArgumentHelp("The same for months.", valueName: "n"))
  var monthly: Int?

  @Option(help: ArgumentHelp("The same for years.", valueName: "n"))
  var yearly: Int?

  @Option(
    help: ArgumentHelp(
      "Keep the youngest, and all that are at most this old: 12h, 30d, 8w, 1y. The unit is s, m, h, d, w or y.",
      valueName: "duration"))
  var within: DurationArgument?

  @Argument(help: "The keys.")
  var keys: [KeyArgument] = []

  @OptionGroup var prefixes: PrefixOptions

  @Flag(help: "All keys.")
  var all = false

  @OptionGroup var dry: DryRunOption

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  private var policy: RetentionPolicy {
    var policy = RetentionPolicy()
    (policy.last, policy.hourly, policy.daily, policy.weekly) = (last, hourly, daily, weekly)
    (policy.monthly, policy.yearly, policy.within) = (monthly, yearly, within?.value)
    return policy
  }

  func validate() throws {
    let counts = [upTo, last, hourly, daily, weekly, monthly, yearly].compactMap { $0 }
    guard counts.allSatisfy({ $0 >= 0 }) else { throw ValidationError("the number to keep is 0 or more") }
    guard (upTo != nil) != !policy.isEmpty else {
      throw ValidationError("give --up-to, or rules of time such as --daily")
    }
    let waysCount = (keys.isEmpty ? 0 : 1) + (prefixes.value == nil ? 0 : 1) + (all ? 1 : 0)
    guard waysCount == 1 else { throw ValidationError("give one of these: keys, --prefix, --all") }
    try prefixes.checkNotEmpty()
    guard within?.hasUnit != false else {
      throw ValidationError("--within needs a unit, such as 30d: s, m, h, d, w or y")
    }
    for key in keys { _ = try key.checked() }
  }

  /// What to thin out, each key once.
  private var scopes: [KeyScope] {
    if let prefix = prefixes.value { return [.prefix(prefix)] }
    var seen: Set<[UInt8]> = []
    return all ? [.all] : keys.map(\.text).filter { seen.insert(Array($0.utf8)).inserted }.map { .key($0) }
  }

  func perform(on store: BlobStore) async throws {
    if let upTo { return try await keep(upTo: upTo, in: store) }
    // No version goes while something is lost.
    try await store.tellingLosses { try await keepByTime(in: store) }
  }

  private func keep(upTo count: Int, in store: BlobStore) async throws {
    var output = RetentionResult()
    var missing: [String] = []
    func add(_ result: RetentionResult) {
      output.keyCount += result.keyCount
      output.droppedVersionCount += result.droppedVersionCount
    }
    if dry.isDryRun { try await HeldKeys.check(keys.map(\.text), in: store) }
    let hasHolds = try await !store.treeHolds().isEmpty
    for scope in scopes {
      if case .key(let key) = scope {
        let result =
          dry.isDryRun
          ? plan(try await store.versions(of: key).count, count)
          : try await store.trimHistory(of: scope, toArchived: count)
        add(result)
        if result.keyCount == 0 { missing.append(key) }
      } else if dry.isDryRun {
        for try await entry in store.keys(prefix: prefixes.value ?? .all) {
          let isHeld = hasHolds ? try await store.namesOfHolds(on: [entry.key]) != [nil] : false
          if !isHeld { add(plan(entry.versionCount, count)) }
        }
      } else {
        add(try await store.trimHistory(of: scope, toArchived: count))
      }
    }
    try StandardOutput.unlessEnded {
      if shared.json {
        try JSONText.print(Output(result: output, isDryRun: dry.isDryRun))
      } else {
        try StandardOutput.write(
          "\(dry.isDryRun ? "Would drop" : "Dropped") \(HumanText.count(output.droppedVersionCount, "version")) of \(HumanText.count(output.keyCount, "key")).\n"
        )
      }
    }
    try MissingKeys.check(missing)
  }

  /// The result of a dry run for a key with this many versions.
  private func plan(_ versionCount: Int, _ count: Int) -> RetentionResult {
    RetentionResult(
      keyCount: versionCount > 0 ? 1 : 0, droppedVersionCount: max(0, versionCount - 1 - count))
  }

  private func keepByTime(in store: BlobStore) async throws {
    var report = TreeRetentionReport()
    report.isDryRun = dry.isDryRun
    var missing: [String] = []
    for scope in scopes {
      if case .key(let key) = scope, try await store.currentVersion(of: key) == nil { missing.append(key) }
      let part = try await store.keep(policy, of: scope, isDryRun: dry.isDryRun)
      report.keptStateCount += part.keptStateCount
      report.droppedStateCount += part.droppedStateCount
      report.droppedVersionCount += part.droppedVersionCount
      report.decisions += part.decisions
      report.ahead += part.ahead
      let known = Set(report.unreadable.map(\.id))
      report.unreadable += part.unreadable.filter { !known.contains($0.id) }
    }
    try StandardOutput.unlessEnded { try print(report) }
    for state in report.ahead {
      StandardError.say(
        "warning: snapshot \(state.text.printable) of “\(state.prefix.printable)” is dated \(times.text(state.created)),"
          + " ahead of now: it stays and counts for no rule; `blobtool snapshots --drop \(state.id)` drops it"
      )
    }
    try UnreadableStates.check(report.unreadable, "no version that they may have was dropped")
    try MissingKeys.check(missing)
  }

  private func print(_ report: TreeRetentionReport) throws {
    if shared.json { return try JSONText.print(report) }
    if dry.isDryRun {
      var lines = LineOutput()
      for decision in report.decisions { try lines.add(text(decision)) }
      try lines.flush()
    }
    try StandardOutput.write(
      "\(dry.isDryRun ? "Would drop" : "Dropped") \(HumanText.count(report.droppedStateCount, "state")) and \(HumanText.count(report.droppedVersionCount, "version")); \(HumanText.count(report.keptStateCount, "state")) \(report.keptStateCount == 1 ? "stays" : "stay").\n"
    )
  }

  private func text(_ decision: RetentionDecision) -> String {
    let what =
      decision.state.map { "state \($0.text.printable) of “\($0.prefix.printable)”" }
      ?? "version \(decision.version?.description ?? "") of “\((decision.key ?? "").printable)”"
    let why = decision.isKept ? "keep  (\(decision.reasons.joined(separator: ", ")))" : "drop"
    return "\(times.text(decision.created))  \(what)  \(why)"
  }

  /// The result, and whether the run was dry.
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

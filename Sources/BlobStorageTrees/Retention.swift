import BlobStorage
import Foundation

/// Drops states and versions: by their age, or all but the youngest archived versions. A version that a remaining state
/// has is never dropped.
struct Retention {
  enum Rule {
    /// The policy decides about states. Archived versions of imported files go unless a state has them, other archived
    /// versions as the policy says.
    case policy(RetentionPolicy)
    /// All states stay. Of archived versions the youngest so many stay.
    case archived(Int)
  }

  private static let keyCountOfPage = 500
  private static let decisionCountMax = 10_000

  let engine: Engine
  let scope: KeyScope
  let rule: Rule
  let isDryRun: Bool
  private var report = TreeRetentionReport()
  private(set) var keyCount = 0
  /// Archived versions that only stay because a state has them.
  private(set) var heldByStatesCount = 0

  init(_ engine: Engine, _ scope: KeyScope, _ rule: Rule, isDryRun: Bool) {
    self.engine = engine
    self.scope = scope
    self.rule = rule
    self.isDryRun = isDryRun
  }

  private var prefix: String {
    switch scope {
    case .all: ""
    case .prefix(let prefix): prefix
    case .key(let key): key
    }
  }

  mutating func run() throws(BlobStorageError) -> TreeRetentionReport {
    try engine.checkOpen()
    report.isDryRun = isDryRun
    let states = StateFile(engine)
    var remaining = try states.states()
    var dropped: [TreeState] = []
    if case .policy(let policy) = rule, !isOfKey {
      dropped = try droppedStates(remaining, policy)
      remaining.removeAll { dropped.contains($0) }
    }
    let holds = try engine.keyHolds()
    try dropVersions(
      try remaining.filter(concerns).map { (state) throws(BlobStorageError) in try states.walk(state) }, holds
    )
    // Last: a process that is killed has dropped versions of states that are there still, and the next run drops those.
    if !isDryRun {
      try states.drop(dropped)
      try engine.synchronize()
    }
    return report
  }

  private var isOfKey: Bool { if case .key = scope { true } else { false } }

  /// Whether a state can have keys of the scope.
  private func concerns(_ state: TreeState) -> Bool {
    state.prefix.utf8.starts(with: prefix.utf8) || prefix.utf8.starts(with: state.prefix.utf8)
  }

  private mutating func droppedStates(
    _ states: [TreeState], _ policy: RetentionPolicy
  ) throws(BlobStorageError) -> [TreeState] {
    var dropped: [TreeState] = []
    let holds = try engine.keyHolds()
    let concerned = states.filter { $0.prefix.utf8.starts(with: prefix.utf8) }
    for (_, group) in Dictionary(grouping: concerned, by: { Array($0.prefix.utf8) }) {
      let group = Array(group.reversed())
      let reasons = policy.reasons(for: group.map(\.created))
      for (state, reasons) in zip(group, reasons) {
        let held = holds.filter { $0.state == state.id.number }.map { "hold “\($0.name)”" }
        let decision = RetentionDecision(
          state: state, key: nil, version: nil, created: state.created, reasons: reasons + held)
        report.decisions.append(decision)
        if decision.isKept { report.keptStateCount += 1 } else { dropped.append(state) }
      }
    }
    report.droppedStateCount = dropped.count
    report.decisions.sort { $0.created > $1.created }
    return dropped
  }

  /// Goes through the keys and the states side by side.
  private mutating func dropVersions(_ walks: [StateWalk], _ holds: [KeyHold]) throws(BlobStorageError) {
    defer { for walk in walks { walk.close() } }
    var cursors: [(walk: StateWalk, head: StateEntry?)] = []
    for walk in walks { cursors.append((walk, try walk.next())) }
    var pages = KeyPages(engine.catalog, prefix: prefix, countMax: Self.keyCountOfPage)
    while let page = try pages.next({ (key, name, transaction) throws(BlobStorageError) in
      ((key, name.versionCount > 1 ? try transaction.versions(of: name) : []), max(1, name.versionCount))
    }) {
      try CancellationFlag.check()
      var dropped: [(key: [UInt8], stamps: [Stamp])] = []
      for (key, versions) in page {
        if isOfKey, !key.elementsEqual(prefix.utf8) { continue }
        keyCount += 1
        if versions.count < 2 { continue }
        var inStates: Set<Stamp> = []
        for index in cursors.indices {
          while let head = cursors[index].head, head.key.lexicographicallyPrecedes(key) {
            cursors[index].head = try cursors[index].walk.next()
          }
          if let head = cursors[index].head, head.key == key, case .version(let stamp) = head.content {
            inStates.insert(stamp)
          }
        }
        let stamps = try stampsToDrop(of: key, versions, inStates, holds)
        if !stamps.isEmpty { dropped.append((key, stamps)) }
      }
      if !isDryRun { try engine.drop(dropped) }
    }
  }

  /// The versions of a key to drop.
  private mutating func stampsToDrop(
    of key: [UInt8], _ versions: [StampedVersion], _ inStates: Set<Stamp>, _ holds: [KeyHold]
  ) throws(BlobStorageError) -> [Stamp] {
    let archived = versions.dropFirst()
    var stamps: [Stamp] = []
    switch rule {
    case .archived(let count):
      let beyond = archived.dropFirst(count)
      stamps = beyond.map(\.stamp).filter { !inStates.contains($0) }
      heldByStatesCount += beyond.count - stamps.count
    case .policy(let policy):
      let dates = versions.map { Date(timeIntervalSince1970: Double($0.row.created) / 1_000) }
      let reasons = policy.reasons(for: dates)
      for (version, reasons) in zip(versions, reasons).dropFirst() where !inStates.contains(version.stamp) {
        let isImported = !isOfKey && version.row.metadata.starts(with: StateFile.importedTag)
        if isImported || reasons.isEmpty { stamps.append(version.stamp) }
      }
    }
    guard !stamps.isEmpty else { return [] }
    if let hold = holds.first(where: { $0.covers(key, oldest: versions.last?.stamp) }) {
      guard !isOfKey else { throw hold.refusal(of: key) }
      return []
    }
    report.droppedVersionCount += stamps.count
    for stamp in stamps where report.decisions.count < Self.decisionCountMax {
      guard let version = versions.first(where: { $0.stamp == stamp }) else { continue }
      report.decisions.append(
        RetentionDecision(
          state: nil, key: String(decoding: key, as: UTF8.self), version: BlobVersion.ID(stamp),
          created: Date(timeIntervalSince1970: Double(version.row.created) / 1_000), reasons: []))
    }
    return stamps
  }
}

extension StateFile {
  /// What the metadata of an imported file begin with.
  static let importedTag = Array("FIL3".utf8)
}

extension BlobStore {
  /// Drops states, and archived versions, as a policy says. Current versions stay, and so does what a remaining state has.
  ///
  /// - Parameter scope: a key alone: its versions. Otherwise: the states of prefixes that begin so, archived versions of
  ///   imported files that no state has any more, and archived versions of other keys by their age.
  /// - Throws: `invalidArgument` for a policy without rules, `held` for a key that is held.
  /// - Durability: durable on return. A run that is interrupted has dropped a part; the next one goes on.
  @discardableResult
  public func keep(
    _ policy: RetentionPolicy, of scope: KeyScope, isDryRun: Bool = false
  ) async throws(BlobStorageError) -> TreeRetentionReport {
    guard !policy.isEmpty else {
      throw BlobStorageError(.invalidArgument, "A retention without a rule would drop everything: give one.")
    }
    return try await run { (engine) throws(BlobStorageError) in
      var retention = Retention(engine, scope, .policy(policy), isDryRun: isDryRun)
      return try retention.run()
    }
  }

  /// Keeps each key's current version and its youngest archived ones, and those that a state has.
  ///
  /// - Returns: what was dropped, and how many archived versions only stay because a state has them.
  public func keep(
    upTo count: Int, of scope: KeyScope, isDryRun: Bool
  ) async throws(BlobStorageError) -> (result: RetentionResult, heldByStatesCount: Int) {
    try await run { (engine) throws(BlobStorageError) in
      var retention = Retention(engine, scope, .archived(count), isDryRun: isDryRun)
      let report = try retention.run()
      return (
        RetentionResult(keyCount: retention.keyCount, droppedVersionCount: report.droppedVersionCount),
        retention.heldByStatesCount
      )
    }
  }
}

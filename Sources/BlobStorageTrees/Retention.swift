import BlobStorage
import Foundation

/// Drops states and archived versions by their age. What a remaining state has is never dropped.
struct Retention {
  private static let keyCountOfPage = 500
  private static let decisionCountMax = 10_000

  let engine: Engine
  let scope: KeyScope
  let policy: RetentionPolicy
  let isDryRun: Bool
  private var report = TreeRetentionReport()

  init(_ engine: Engine, _ scope: KeyScope, _ policy: RetentionPolicy, isDryRun: Bool) {
    self.engine = engine
    self.scope = scope
    self.policy = policy
    self.isDryRun = isDryRun
    report.isDryRun = isDryRun
  }

  private var prefix: String {
    switch scope {
    case .all: ""
    case .prefix(let prefix): prefix
    case .key(let key): key
    }
  }

  private var isOfKey: Bool { if case .key = scope { true } else { false } }

  mutating func run() throws(BlobStorageError) -> TreeRetentionReport {
    try engine.checkOpen()
    let file = StateFile(engine)
    var states = try file.states()
    let holds = try engine.keyHolds()
    if !isOfKey {
      let dropped = droppedStates(states, holds)
      states.removeAll { dropped.contains($0) }
      // First: a process that is killed leaves versions that no state has, and the next run drops these.
      if !isDryRun { try file.drop(dropped) }
    }
    let remaining = states.filter(concerns)
    try dropVersions([], remaining, holds)
    if !isOfKey { try dropReplaced(holds) }
    if !isDryRun { try engine.synchronize() }
    return report
  }

  /// Drops what imports have replaced and no state has. An import that is under way may record a state with what another
  /// one replaces: then the next retention does it.
  private mutating func dropReplaced(_ holds: [KeyHold]) throws(BlobStorageError) {
    let lock = try engine.folder.files.open(engine.folder.statesLock, .openOrCreate)
    defer { lock.close() }
    guard try lock.lock(.exclusive, withinSeconds: 1) else { return }
    // Those that were recorded meanwhile, too. A dry run has dropped none.
    let kept = report.decisions.filter { !$0.isKept }.compactMap(\.state)
    let states = try StateFile(engine).states().filter { concerns($0) && !kept.contains($0) }
    try dropVersions(InternalKey.Purpose.replaced.prefix, states, holds)
  }

  /// Whether a state can have keys of the scope.
  private func concerns(_ state: TreeState) -> Bool {
    state.prefix.utf8.starts(with: prefix.utf8) || prefix.utf8.starts(with: state.prefix.utf8)
  }

  private mutating func droppedStates(_ states: [TreeState], _ holds: [KeyHold]) -> [TreeState] {
    var dropped: [TreeState] = []
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

  /// Goes through keys and states side by side: the callers' keys, or with the prefix of an internal key the versions that
  /// imports have replaced.
  private mutating func dropVersions(
    _ internalPrefix: [UInt8], _ states: [TreeState], _ holds: [KeyHold]
  ) throws(BlobStorageError) {
    var cursors: [(walk: StateWalk, head: StateEntry?)] = []
    defer { for cursor in cursors { cursor.walk.close() } }
    for state in states {
      let walk = try StateFile(engine).walk(state)
      cursors.append((walk, nil))
      cursors[cursors.count - 1].head = try walk.next()
    }
    let isOfCallers = internalPrefix.isEmpty
    var pages = KeyPages(
      engine.catalog, prefix: internalPrefix + Array(prefix.utf8), countMax: Self.keyCountOfPage)
    while let page = try pages.next({ (key, name, transaction) throws(BlobStorageError) in
      let isNeeded = name.versionCount > 1 || !isOfCallers
      return ((key, isNeeded ? try transaction.versions(of: name) : []), max(1, name.versionCount))
    }) {
      try CancellationFlag.check()
      var dropped: [(key: [UInt8], stamps: [Stamp])] = []
      for (whole, versions) in page {
        let key = Array(whole.dropFirst(internalPrefix.count))
        if versions.isEmpty || isOfKey && !key.elementsEqual(prefix.utf8) { continue }
        var inStates: Set<Stamp> = []
        for index in cursors.indices {
          while let head = cursors[index].head, head.key.lexicographicallyPrecedes(key) {
            cursors[index].head = try cursors[index].walk.next()
          }
          if let head = cursors[index].head, head.key == key, case .version(let stamp) = head.content {
            inStates.insert(stamp)
          }
        }
        let candidates = isOfCallers ? versionsToDrop(versions) : versions
        let found = candidates.filter { !inStates.contains($0.stamp) }
        if found.isEmpty { continue }
        if let hold = holds.first(where: { $0.covers(key, oldest: versions.last?.stamp) }) {
          if isOfKey { throw hold.refusal(of: key) }
          continue
        }
        add(found, key)
        dropped.append((whole, found.map(\.stamp)))
      }
      if !isDryRun { try engine.drop(dropped) }
    }
  }

  /// Archived versions that no rule keeps.
  private func versionsToDrop(_ versions: [StampedVersion]) -> [StampedVersion] {
    let reasons = policy.reasons(for: versions.map(\.created))
    return zip(versions, reasons).dropFirst().filter { $0.1.isEmpty }.map(\.0)
  }

  private mutating func add(_ versions: [StampedVersion], _ key: [UInt8]) {
    report.droppedVersionCount += versions.count
    for version in versions where report.decisions.count < Self.decisionCountMax {
      report.decisions.append(
        RetentionDecision(
          state: nil, key: String(decoding: key, as: UTF8.self), version: BlobVersion.ID(version.stamp),
          created: version.created, reasons: []))
    }
  }
}

extension StampedVersion {
  fileprivate var created: Date { Date(timeIntervalSince1970: Double(row.created) / 1_000) }
}

extension BlobStore {
  /// Drops states, and archived versions, as a policy says. Current versions stay, and so does what a remaining state has.
  ///
  /// - Parameter scope: a key alone: its archived versions. Otherwise: the states of prefixes that begin so, with the
  ///   versions that imports have replaced and no state has any more, and archived versions by their age.
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
      var retention = Retention(engine, scope, policy, isDryRun: isDryRun)
      return try retention.run()
    }
  }
}

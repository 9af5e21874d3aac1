import BlobStorage
import Foundation

/// Drops states and archived versions by their age, or chosen states. Never drops a version that a remaining state has.
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

  private var prefix: KeyPrefix {
    switch scope {
    case .all: .all
    case .prefix(let prefix): prefix
    case .key(let key): .below(key)
    }
  }

  private var isOfKey: Bool { if case .key = scope { true } else { false } }

  mutating func run() throws(BlobStorageError) -> TreeRetentionReport {
    try engine.checkOpen()
    let unreadable = isOfKey ? [] : try unreadableStates(StateList(engine))
    // While an import is under way, all versions stay until the next retention, because the import may record them in a
    // state.
    let lock = isOfKey && isDryRun ? nil : try StatesLock.exclusive(engine.folder)
    defer { withExtendedLifetime(lock) {} }
    // Nor may versions go while something is lost: it may be a state that has them, and comes back with its pack.
    let isLossless = try engine.losses().isEmpty
    let isAlone = (isOfKey && isDryRun || lock != nil) && isLossless
    if !isOfKey { try dropStates(unreadable, isAlone: isAlone) }
    let list = try StateList(engine)
    if isAlone {
      // In a dry run, the list still holds the states that would be dropped.
      let dropped = Set(report.decisions.filter { !$0.isKept }.compactMap(\.state))
      try dropVersions([], list, dropped)
    } else {
      add(list.unreadable)
    }
    if !isDryRun {
      try engine.synchronize()
      try engine.makeFoundDurable(.durable, hasDropped: true)
    }
    return report
  }

  /// Drops these states, whatever the policy says.
  mutating func drop(_ states: [TreeState]) throws(BlobStorageError) -> TreeRetentionReport {
    try engine.checkOpen()
    let lock = try StatesLock.exclusive(engine.folder)
    defer { withExtendedLifetime(lock) {} }
    let list = try StateList(engine)
    let ids = Set(states.map(\.id))
    for hold in try engine.keyHolds() {
      guard let number = hold.state, ids.contains(TreeState.ID(number)) else { continue }
      throw BlobStorageError(
        .held, "Snapshot \(TreeState.ID(number)) is held by “\(hold.name)”: release that hold first.")
    }
    let dropped = list.states.map(\.state).filter { ids.contains($0.id) }
    report.droppedStateCount = dropped.count
    report.keptStateCount = list.states.count - dropped.count
    report.decisions = dropped.map { RetentionDecision(state: $0, created: $0.created, reasons: []) }
    let isLossless = try engine.losses().isEmpty
    try drop(dropped, list, isAlone: lock != nil && isLossless)
    try engine.synchronize()
    try engine.makeFoundDurable(.durable, hasDropped: true)
    return report
  }

  /// Drops the states that the policy does not keep.
  private mutating func dropStates(
    _ unreadable: [UnreadableState], isAlone: Bool
  ) throws(BlobStorageError) {
    let list = try StateList(engine)
    let dropped = droppedStates(
      list.states.map(\.state), Set(unreadable.map(\.id)).union(try uncertainStates(list)),
      try engine.keyHolds())
    let droppedIDs = Set(dropped.map(\.id))
    add(unreadable.filter { !droppedIDs.contains($0.id) })
    try drop(dropped, list, isAlone: isAlone)
  }

  /// Drops states and, if no import is under way, the replaced versions that no state has.
  private mutating func drop(
    _ dropped: [TreeState], _ list: StateList, isAlone: Bool
  ) throws(BlobStorageError) {
    var list = list
    // States first: if the process is killed, the next run drops the versions that no state has.
    if !isDryRun {
      // A power cut must not take those that stay, and leave the drops of the others.
      let droppedIDs = Set(dropped.map(\.id))
      let kept = dropped.isEmpty ? [] : list.states.filter { !droppedIDs.contains($0.state.id) }.map(\.key)
      try KeptVersions(engine.writer).securePacks(of: kept) { (_, name, _) in
        name.current.map { [$0.row.place] } ?? []
      }
      try StateFile(engine).drop(dropped, isAlone: isAlone)
      list = try StateList(engine)
    }
    guard isAlone else { return }
    try dropVersions(InternalKey.Purpose.replaced.prefix, list, Set(dropped))
    if !isDryRun { try dropAttributes(list) }
  }

  /// Drops separately stored extended attributes that no version and no folder of a state has.
  private func dropAttributes(_ list: StateList) throws(BlobStorageError) {
    guard list.unreadable.isEmpty else { return }
    var unneeded: [[UInt8]: [UInt8]] = [:]
    for version in try engine.internalVersions(InternalKey.Purpose.attributes.prefix) {
      unneeded[version.row.digest.withUnsafeBytes { Array($0) }] = version.key
    }
    if unneeded.isEmpty { return }
    // One snapshot shows each version in one place, even if it is renamed or restored meanwhile.
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.forEachKey(prefix: [], after: nil, includesInternal: true) {
        (_, name) throws(BlobStorageError) in
        try CancellationFlag.check()
        for version in try transaction.versions(of: name) {
          unneeded[Array(version.row.metadata.suffix(BlobDigest.byteCount))] = nil
        }
        return !unneeded.isEmpty
      }
    }
    let forest = try StateForest(StateFile(engine), list, of: list.states.map(\.state))
    defer { forest.close() }
    while !unneeded.isEmpty, let line = try forest.next() {
      for case (.folder(let metadata), _) in line.contents {
        unneeded[Array(metadata.suffix(BlobDigest.byteCount))] = nil
      }
    }
    if forest.unreadable.isEmpty {
      try engine.dropInternal(unneeded.values.sorted { $0.precedes($1) })
    }
  }

  /// The states of the scope that cannot be read.
  private func unreadableStates(_ list: StateList) throws(BlobStorageError) -> [UnreadableState] {
    let forest = try StateForest(StateFile(engine), list, of: list.states.map(\.state).filter(concerns))
    defer { forest.close() }
    while try forest.next() != nil {}
    return forest.unreadable
  }

  /// The states that may still be lost: see ``KeptVersions/isUncertain(_:_:)``.
  private func uncertainStates(_ list: StateList) throws(BlobStorageError) -> Set<TreeState.ID> {
    try engine.catalog.read { (view) throws(BlobStorageError) -> Set<TreeState.ID> in
      var found: Set<TreeState.ID> = []
      for record in list.states {
        if let place = try view.currentVersion(ofKey: record.key)?.row.place,
          try KeptVersions(engine.writer).isUncertain(place, view)
        {
          found.insert(record.state.id)
        }
      }
      return found
    }
  }

  /// Whether a state can have keys of the scope.
  private func concerns(_ state: TreeState) -> Bool { state.overlaps(prefix) }

  /// The states that the policy drops, judged series by series.
  ///
  /// - Parameter unreadable: states that cannot be read, or that may still be lost. The rules judge these, and those
  ///   that are incomplete, as well, but they displace no complete one.
  private mutating func droppedStates(
    _ states: [TreeState], _ unreadable: Set<TreeState.ID>, _ holds: [KeyHold]
  ) -> [TreeState] {
    var dropped: [TreeState] = []
    let now = engine.clock.date
    let concerned = states.filter { $0.isWithin(prefix) }
    for (_, series) in Dictionary(grouping: concerned, by: \.series) {
      let youngestFirst = Array(series.reversed())
      let readable = youngestFirst.filter { !unreadable.contains($0.id) }
      // Each is judged beside those that are at least as good.
      var reasons: [TreeState.ID: [String]] = [:]
      for peers in [readable.filter(\.isComplete), readable, youngestFirst] {
        for (state, found) in zip(peers, policy.reasons(for: peers.map(\.created), now: now)) {
          if reasons[state.id] == nil { reasons[state.id] = found }
        }
      }
      for state in youngestFirst {
        let held = holds.filter { $0.state == state.id.number }.map { "hold “\($0.name)”" }
        let decision = RetentionDecision(
          state: state, created: state.created, reasons: (reasons[state.id] ?? []) + held)
        report.decisions.append(decision)
        if state.isAhead(of: now) { report.ahead.append(state) }
        if decision.isKept { report.keptStateCount += 1 } else { dropped.append(state) }
      }
    }
    report.droppedStateCount = dropped.count
    report.decisions.sort { ($0.created, $0.state?.id.number ?? 0) > ($1.created, $1.state?.id.number ?? 0) }
    report.ahead.sort { $0.created < $1.created }
    return dropped
  }

  /// Drops versions that no rule, state or hold keeps, walking keys and states side by side: of the callers' keys, or
  /// with an internal prefix the versions that imports have replaced.
  ///
  /// - Parameter gone: states that a dry run treats as dropped.
  private mutating func dropVersions(
    _ internalPrefix: [UInt8], _ list: StateList, _ gone: Set<TreeState>
  ) throws(BlobStorageError) {
    let states = list.states.map(\.state).filter { concerns($0) && !gone.contains($0) }
    // Opened at the first version that may be dropped.
    var forest: StateForest?
    var head: StateForest.Line?
    defer { forest?.close() }
    let isOfCallers = internalPrefix.isEmpty
    var pages = KeyPages(
      engine.catalog, prefix: prefix, for: internalPrefix, countMax: Self.keyCountOfPage)
    while let page = try pages.next({ [engine] (key, name, transaction) throws(BlobStorageError) in
      var certain: [StampedVersion] = []
      if name.versionCount > 1 || !isOfCallers {
        // A version that may still be lost is neither counted nor dropped.
        for version in try transaction.versions(of: name)
        where try !KeptVersions(engine.writer).isUncertain(version.row.place, transaction) {
          certain.append(version)
        }
      }
      return ((key, certain), max(1, name.versionCount))
    }) {
      try CancellationFlag.check()
      var dropped: [Drop] = []
      // For each page: a hold counts as soon as there is one.
      let held = try engine.holds(on: page.map(\.0))
      for (offset, (whole, versions)) in page.enumerated() {
        let key = Array(whole.dropFirst(internalPrefix.count))
        if versions.isEmpty || isOfKey && !key.elementsEqual(prefix.text.utf8) { continue }
        let candidates = isOfCallers ? versionsToDrop(versions) : versions
        if candidates.isEmpty { continue }
        let walk: StateForest
        if let forest {
          walk = forest
        } else {
          walk = try StateForest(StateFile(engine), list, of: states)
          forest = walk
          head = try walk.next()
        }
        while let line = head, line.key.precedes(key) { head = try walk.next() }
        // An unreadable state may need any version of such a key.
        let isProtected = walk.unreadable.contains { key.starts(with: ($0.prefix ?? "").utf8) }
        if isProtected || !list.unreadable.isEmpty { continue }
        let inStates = head?.key == key ? head?.times ?? [] : []
        let found = candidates.filter { !inStates.contains($0.stamp.time) }
        if found.isEmpty { continue }
        if let hold = held[offset] {
          if isOfKey { throw hold.refusal(of: key) }
          continue
        }
        let stamps = Set(found.map(\.stamp))
        dropped.append(
          Drop(key: whole, versions: found, kept: versions.map(\.stamp).filter { !stamps.contains($0) }))
      }
      for drop in isDryRun ? dropped : try engine.drop(dropped) {
        add(drop.versions, Array(drop.key.dropFirst(internalPrefix.count)))
      }
    }
    add(list.unreadable + (forest?.unreadable ?? []))
  }

  private mutating func add(_ unreadable: [UnreadableState]) {
    let known = Set(report.unreadable.map(\.id))
    report.unreadable += unreadable.filter { !known.contains($0.id) }
  }

  /// Archived versions that no rule keeps.
  private func versionsToDrop(_ versions: [StampedVersion]) -> [StampedVersion] {
    let reasons = policy.reasons(for: versions.map(\.created), now: engine.clock.date)
    return zip(versions, reasons).dropFirst().filter { $0.1.isEmpty }.map(\.0)
  }

  private mutating func add(_ versions: [StampedVersion], _ key: [UInt8]) {
    report.droppedVersionCount += versions.count
    for version in versions where report.decisions.count < Self.decisionCountMax {
      report.decisions.append(
        RetentionDecision(
          key: String(decoding: key, as: UTF8.self), version: BlobVersion.ID(version.stamp),
          created: version.created, reasons: []))
    }
  }
}

extension StateForest.Line {
  /// The times of the states' versions: a version that a copy restored has the same time, but another writer.
  fileprivate var times: Set<UInt64> {
    Set(contents.compactMap { if case .version(let stamp) = $0.content { stamp.time } else { nil } })
  }
}

extension StampedVersion {
  /// Limited to the year 9999: a forged store may have any time.
  fileprivate var created: Date {
    Date(timeIntervalSince1970: Double(min(row.created, 253_402_300_799_999)) / 1_000)
  }
}

extension BlobStore {
  /// Drops states and archived versions as a policy says. Keeps current versions, and all that a remaining state has.
  ///
  /// The report lists remaining states that cannot be read. No version of a key with their prefix is dropped.
  ///
  /// Judges each series of snapshots by itself. Snapshots that are dated more than a day ahead of now stay, displace no
  /// other, and are in the report. An incomplete one displaces no complete one.
  ///
  /// - Parameter scope: for a key, drops its archived versions. Otherwise drops states all of whose keys the scope has,
  ///   replaced versions that no state has any more, and archived versions.
  ///   While an import or a copy into the store is under way, or something is lost, drops no versions. Drops nothing
  ///   for a version or state that may still be lost: in a sealed pack whose sync has failed, until gc has stored it
  ///   again; in a bucket, until its process has published it.
  /// - Throws: `invalidArgument` for a policy without rules or with a negative number, and for the empty prefix; `held`
  ///   for a key that is held.
  /// - Durability: durable on return. An interrupted run has dropped a part; the next one continues.
  @discardableResult
  public func keep(
    _ policy: RetentionPolicy, of scope: KeyScope, isDryRun: Bool = false
  ) async throws(BlobStorageError) -> TreeRetentionReport {
    try policy.check()
    return try await work { (engine) throws(BlobStorageError) in
      if case .prefix(let prefix) = scope { _ = try Engine.nonempty(prefix, elseSay: "keep(_:of: .all)") }
      var retention = Retention(engine, scope, policy, isDryRun: isDryRun)
      return try retention.run()
    }
  }
}

/// Versions of a key to drop, and those that stay because of a rule, a state or their age.
private struct Drop {
  var key: [UInt8]
  var versions: [StampedVersion]
  var kept: [Stamp]
}

extension Engine {
  /// Drops versions of keys in one commit, relaxed.
  ///
  /// - Returns: those that were there and not held. Leaves a key to the next run if a version that is kept may be lost
  ///   by now.
  fileprivate func drop(_ drops: [Drop]) throws(BlobStorageError) -> [Drop] {
    guard !drops.isEmpty else { return [] }
    return try folder.withReserve { () throws(BlobStorageError) in
      try KeptVersions(writer).securePacks(of: drops.map(\.key)) {
        (index, name, view) throws(BlobStorageError) in
        let dropped = Set(drops[index].versions.map(\.stamp))
        return try view.versions(of: name).filter { !dropped.contains($0.stamp) }.map(\.row.place)
      }
      return try writer.commit(on: drops.map(\.key)) { (commit) throws(BlobStorageError) in
        var done: [Drop] = []
        for var drop in drops {
          // A hold may have been made meanwhile.
          guard let name = try commit.transaction.nameRow(drop.key), try commit.hold(on: drop.key) == nil
          else {
            continue
          }
          // A delete may have made an archived version the current one.
          let current = InternalKey.isInternal(drop.key) ? nil : name.current?.stamp
          var present: [StampedVersion] = []
          for version in drop.versions where version.stamp != current {
            if try commit.transaction.versionRow(of: name, version.stamp) != nil { present.append(version) }
          }
          if present.isEmpty { continue }
          var isLeft = false
          for stamp in drop.kept {
            guard let row = try commit.transaction.versionRow(of: name, stamp) else { continue }
            if try KeptVersions(writer).isUncertain(row.place, commit.transaction) { isLeft = true }
          }
          // Neither a power cut nor a kill may take the version that stays, and leave the drops of the others.
          if isLeft { continue }
          try commit.drop(present.map(\.stamp), of: drop.key)
          drop.versions = present
          done.append(drop)
        }
        return done
      }.result
    }
  }
}

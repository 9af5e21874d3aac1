import BlobStorage
import Foundation

/// Finds the snapshot that a time or `latest` means.
struct SnapshotChoice {
  /// Oldest first.
  private let states: [TreeState]

  /// Leaves out what is dated ahead of now, unless its series has nothing else: an import under a wrong clock must not
  /// hide the ones after it.
  init(_ states: [TreeState], now: Date) {
    let present = Set(states.filter { !$0.isAhead(of: now) }.map(\.series))
    self.states = states.filter { !$0.isAhead(of: now) || !present.contains($0.series) }
  }

  /// The last snapshot of each series, oldest first.
  ///
  /// - Parameter time: passes over what was made later; nil for no limit.
  private func last(
    until time: Date? = nil, where isWanted: (TreeState) -> Bool
  ) -> [TreeState] {
    var found: [TreeSeries: (index: Int, state: TreeState)] = [:]
    for (index, state) in states.enumerated()
    where state.created <= (time ?? .distantFuture) && isWanted(state) {
      // By the time line, if a time is asked for: a clock that went back has made a later one look earlier.
      if time != nil, let known = found[state.series], state.created < known.state.created { continue }
      found[state.series] = (index, state)
    }
    return found.values.sorted { $0.index < $1.index }.map(\.state)
  }

  func latest(overlapping prefix: KeyPrefix) -> [TreeState] {
    last { $0.overlaps(prefix) }
  }

  func last(of series: TreeSeries, until time: Date?) -> TreeState? {
    last(until: time) { $0.series == series }.last
  }

  /// The last snapshot that can have keys of a prefix.
  ///
  /// - Parameter hasEntries: whether a snapshot has keys of the prefix.
  /// - Throws: `ambiguousSnapshot` if several series fit.
  func last(
    until time: Date?, of prefix: KeyPrefix,
    _ hasEntries: (TreeState) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> TreeState? {
    let fits = last(until: time) { $0.overlaps(prefix) }
    guard let last = fits.last else { return nil }
    let start = prefix.start
    func covers(_ state: TreeState) -> Bool { start.utf8.starts(with: state.prefix.utf8) }
    func isOfPrefix(_ state: TreeState) -> Bool { state.prefix.utf8.elementsEqual(start.utf8) }
    guard covers(last) || !start.isEmpty && fits.contains(where: isOfPrefix) else {
      // A snapshot of a longer prefix does not have all these keys.
      if fits.count > 1 { throw Self.ambiguous(fits) }
      return last
    }
    // One of a shorter prefix must have some of these keys.
    let covering = fits.filter(covers)
    var found: [TreeState] = []
    for state in covering.reversed() {
      if let first = found.first, !first.prefix.utf8.elementsEqual(state.prefix.utf8) { continue }
      if !isOfPrefix(state) {
        guard try hasEntries(state) else { continue }
      }
      found.append(state)
    }
    if found.count > 1 { throw Self.ambiguous(found.reversed()) }
    return found.first ?? covering.last
  }

  private static let shownCountMax = 8

  /// - Parameter states: the last one of each series.
  private static func ambiguous(_ states: [TreeState]) -> BlobStorageError {
    let list = states.suffix(shownCountMax).map { state in
      let prefix = state.prefix.isEmpty ? "without a prefix" : "of “\(state.prefix)”"
      let sources = state.sources.isEmpty ? "" : " from \(state.sources.joined(separator: ", "))"
      let host = state.host.map { " on \($0)" } ?? ""
      return "\(state.id) \(prefix)\(sources)\(host)"
    }
    let more = states.count > shownCountMax ? ", and \(states.count - shownCountMax) more" : ""
    return BlobStorageError(
      .ambiguousSnapshot,
      "There are snapshots of \(states.count) series, whose last ones are \(list.joined(separator: "; "))\(more): give a "
        + "prefix that only one of them has, or name a snapshot by its name or ID.")
  }
}

extension TreeState {
  /// The most seconds that a snapshot's time may be ahead of now. The clock of the store's versions has the same limit.
  static let aheadSecondsMax = Double(Stamp.aheadMillisecondsMax) / 1_000

  /// Whether its time lies so far ahead of now, more than a day, that a clock must have been wrong. Neither `latest` nor
  /// a rule of retention counts it.
  public func isAhead(of now: Date) -> Bool { Self.isAhead(created, of: now) }

  static func isAhead(_ time: Date, of now: Date) -> Bool { time.timeIntervalSince(now) > aheadSecondsMax }

  /// Whether it can have keys of a prefix.
  public func overlaps(_ prefix: KeyPrefix) -> Bool { prefix.overlaps(self.prefix.utf8) }

  /// Whether all its keys are of a prefix.
  public func isWithin(_ prefix: KeyPrefix) -> Bool { prefix.containsAll(beginningWith: self.prefix.utf8) }
}

extension BlobStorageError.Code {
  /// Snapshots of several series fit, and only the caller knows which is meant.
  public static let ambiguousSnapshot = Self(rawValue: "ambiguousSnapshot")
}

extension BlobStore {
  /// The last snapshot until a time that can have keys of a prefix; nil if there is none.
  ///
  /// Passes over snapshots that are dated ahead of now, unless their series has no others.
  ///
  /// - Parameters:
  ///   - time: nil for the snapshot that was recorded last.
  ///   - prefix: the prefix of the keys in question.
  /// - Throws: `ambiguousSnapshot` if several series have such keys; the message lists the last snapshot of each.
  public func snapshot(
    at time: Date? = nil, prefix: some KeyPrefixConvertible = KeyPrefix.all
  ) async throws(BlobStorageError) -> TreeState? {
    let prefix = prefix.keyPrefix
    return try await work { (engine) throws(BlobStorageError) in
      let file = StateFile(engine)
      return try SnapshotChoice(try file.states(), now: file.now).last(until: time, of: prefix) {
        (state) throws(BlobStorageError) in
        let walk = try file.walk(state)
        defer { walk.close() }
        while let entry = try walk.next() { if prefix.contains(entry.key) { return true } }
        return false
      }
    }
  }

  /// The last snapshot of a series until a time; nil if there is none.
  ///
  /// - Parameter time: nil for the snapshot that was recorded last.
  public func snapshot(
    at time: Date? = nil, of series: TreeSeries
  ) async throws(BlobStorageError) -> TreeState? {
    try await read { (engine) throws(BlobStorageError) in
      let file = StateFile(engine)
      return SnapshotChoice(try file.states(), now: file.now).last(of: series, until: time)
    }
  }

  /// Drops chosen snapshots, and then the versions that imports have replaced and no other snapshot has.
  ///
  /// - Returns: those that were there. Names are compared by IDs.
  /// - Throws: `held` if a hold protects one of them; nothing was changed.
  /// - Durability: durable on return.
  @discardableResult
  public func dropSnapshots(_ states: [TreeState]) async throws(BlobStorageError) -> TreeRetentionReport {
    try await work { (engine) throws(BlobStorageError) in
      var retention = Retention(engine, .all, RetentionPolicy(), isDryRun: false)
      return try retention.drop(states)
    }
  }
}

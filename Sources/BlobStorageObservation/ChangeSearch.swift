import BlobStorage
import Synchronization

/// Finds the keys in records that have become visible since the last look.
///
/// A pack only grows, and the view shows how far. So the search remembers only a position in each pack. It detects the
/// three things that can hide a change: a rebuilt catalog, a known pack that was removed before it was read to its end,
/// and an unknown pack that came and went. Numbers of packs are given in order, so a number without a pack shows the
/// last.
final class ChangeSearch: Sendable {
  private struct State {
    /// How far each pack was read, and whether that is its end.
    var positions: [PackName: (end: Int64, isWhole: Bool)] = [:]
    var nextNumber: UInt64 = 0
    var generation: String?
    /// Changed keys that were not looked up yet.
    var keys: Set<[UInt8]> = []
    /// Changes that were not delivered yet.
    var pending: ArraySlice<KeyChange> = []
    var mustReload = false
  }

  private static let keyCountMax = 10_000

  private let prefix: KeyPrefix
  private let state = Mutex(State())
  /// One look at a time, because several loops may share the changes.
  private let turn = IOLock<Void>(())

  init(prefix: KeyPrefix) { self.prefix = prefix }

  private func isObserved(_ key: [UInt8]) -> Bool {
    prefix.contains(key) && !InternalKey.isInternal(key)
  }

  /// Removes and returns the next change to deliver.
  func removePending() -> KeyChange? { state.withLock { $0.pending.popFirst() } }

  /// Finds up to `countMax` changes to deliver; false if there are none. Several keys are looked up in one call.
  func fill(_ engine: Engine, countMax: Int) throws(BlobStorageError) -> Bool {
    try turn.withLock { (_) throws(BlobStorageError) in try fillInTurn(engine, countMax) }
  }

  private func fillInTurn(_ engine: Engine, _ countMax: Int) throws(BlobStorageError) -> Bool {
    try engine.checkOpen()
    // Another loop has just looked.
    if state.withLock({ !$0.pending.isEmpty }) { return true }
    var (keys, mustReload) = removeKeys(countMax)
    if keys.isEmpty, !mustReload {
      try advance(engine)
      (keys, mustReload) = removeKeys(countMax)
    }
    var changes: [KeyChange] = mustReload ? [.reload] : []
    do throws(BlobStorageError) {
      for key in keys {
        let text = String(decoding: key, as: UTF8.self)
        changes.append(try engine.version(text, nil).map { .set($0) } ?? .deleted(text))
      }
    } catch {
      // The next call looks them up again.
      state.withLock { $0.keys.formUnion(keys) }
      throw error
    }
    state.withLock { $0.pending = changes[...] }
    return !changes.isEmpty
  }

  private func removeKeys(_ countMax: Int) -> ([[UInt8]], mustReload: Bool) {
    state.withLock { state in
      if state.mustReload {
        (state.mustReload, state.keys) = (false, [])
        return ([], true)
      }
      let keys = Array(state.keys.prefix(countMax))
      state.keys.subtract(keys)
      return (keys, false)
    }
  }

  /// Reads the records that have become visible since the last look. The first look only sets the positions.
  func advance(_ engine: Engine) throws(BlobStorageError) {
    try engine.checkOpen()
    let generation = engine.catalog.generation
    let (rows, nextNumber) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      (try transaction.packRows(), try transaction.meta(.nextPack))
    }
    var state = state.withLock { $0 }
    let isFirst = state.generation == nil
    if !isFirst, hidesChanges(rows, generation, nextNumber, state) { state.mustReload = true }
    var positions: [PackName: (end: Int64, isWhole: Bool)] = [:]
    for (_, row) in rows where row.state != .retired {
      let known = state.positions[row.name]?.end ?? Int64(PackHeader.byteCount)
      positions[row.name] = (row.appliedByteCount, row.isSealed)
      guard !isFirst, !state.mustReload, row.appliedByteCount > known else { continue }
      if try !add(row, from: known, engine, to: &state.keys) { state.mustReload = true }
      if state.keys.count > Self.keyCountMax { state.mustReload = true }
    }
    (state.positions, state.nextNumber, state.generation) = (positions, nextNumber, generation)
    self.state.withLock { [state] current in
      let pending = current.pending
      current = state
      current.pending = pending
    }
  }

  private func hidesChanges(
    _ rows: [(number: UInt32, row: PackRow)], _ generation: String?, _ nextNumber: UInt64, _ state: State
  ) -> Bool {
    if generation != state.generation { return true }
    let live = rows.filter { $0.row.state != .retired }
    let names = Set(live.map(\.row.name))
    if state.positions.contains(where: { !$1.isWhole && !names.contains($0) }) { return true }
    return live.count { $0.number >= state.nextNumber } < nextNumber - min(nextNumber, state.nextNumber)
  }

  /// Adds the keys that a pack's records name from an offset on; false if they cannot be read.
  private func add(
    _ row: PackRow, from start: Int64, _ engine: Engine, to keys: inout Set<[UInt8]>
  ) throws(BlobStorageError) -> Bool {
    guard let file = try engine.backend.openPack(row.name) else { return false }
    defer { file.close() }
    var isTooMuch = false
    do throws(BlobStorageError) {
      let scanner = try engine.packs.scanner(
        row.name, file, upTo: row.isSealed ? nil : row.appliedByteCount)
      // Refs of the current commit that it does not drop itself, as a put without a key does, and changed keys. A ref
      // that a later commit drops counts: the consumer may have loaded its version between them.
      var added: [[UInt8]: Set<Stamp>] = [:]
      var changed: Set<[UInt8]> = []
      func endCommit() {
        changed.formUnion(added.lazy.filter { !$0.value.isEmpty }.map(\.key))
        added.removeAll()
      }
      func add(_ record: PackRecord) {
        switch record.content {
        case .ref(let ref) where isObserved(ref.key):
          added[ref.key, default: []].insert(ref.version)
          if ref.replaced != .none { changed.insert(ref.key) }
        case .drop(let drop) where isObserved(drop.key):
          let isOfOthers = drop.versions.contains { added[drop.key]?.remove($0) == nil }
          if isOfOthers { changed.insert(drop.key) }
        case .ref, .drop, .chunk, .manifest, .skipped: break
        }
        if record.endsCommit { endCommit() }
        isTooMuch = isTooMuch || added.count + changed.count > Self.keyCountMax
        if isTooMuch { (added, changed) = ([:], []) }
      }
      defer {
        endCommit()
        keys.formUnion(changed)
      }
      // The footer of a sealed pack lists its records without their bytes.
      if row.isSealed {
        return try scanner.scan { if $0.offset >= start { add($0) } }.gaps.isEmpty && !isTooMuch
      }
      let header = try scanner.headerOrSubstitute().header
      return try scanner.scanTail(header, from: start) { add($0) } == row.appliedByteCount && !isTooMuch
    } catch {
      guard error.code == .corrupted || error.code == .packGone else { throw error }
      return false
    }
  }
}

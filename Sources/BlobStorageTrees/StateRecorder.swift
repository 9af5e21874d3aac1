import BlobStorage
import Foundation

/// Collects the entries of a state in any order, and stores the state.
///
/// Stores only the changes since the last state of the prefix if these take at most 64 KiB, or if all changes together
/// take at most half of a whole state.
///
/// - Complexity: memory: an encoded entry for each file, link and folder.
package final class StateRecorder {
  /// The record of a state has no room for a longer prefix.
  package static let prefixByteCountMax = 400
  private static let countOfRun = 1 << 16
  /// Changes up to this many bytes are always stored as changes.
  private static let changesByteCountMin = 64 << 10
  private static let changesByteCountMax = 64 << 20
  /// The longest chain of states that must be read.
  private static let depthMax = 200

  package var state: TreeState
  private let isTakenOver: Bool
  private let states: StateFile
  /// Keeps retentions from dropping versions that are replaced meanwhile.
  private let lock: StatesLock
  private var pending: [StateEntry] = []
  /// Encoded and sorted. The last run comes first, because the last entry of a key counts.
  private var runs: [[UInt8]] = []

  /// - Throws: `invalidArgument` for a prefix or name that is too long, or a name that is taken.
  package init(
    _ engine: Engine, prefix: String, name: String?, origin: TreeOrigin, created: Date
  ) throws(BlobStorageError) {
    states = StateFile(engine)
    lock = try StatesLock.shared(engine.folder)
    state = TreeState(
      id: TreeState.ID(engine.environment.randomNumber()), name: name, prefix: prefix,
      // Rounded to the precision of the record.
      created: Date(timeIntervalSince1970: (created.timeIntervalSince1970 * 1_000).rounded() / 1_000))
    isTakenOver = origin.isTakenOver
    (state.sources, state.host) = (origin.sources, origin.host)
    let kinds = [origin.host.map { "host " + $0 }, isTakenOver ? "taken over" : nil].compactMap { $0 }
    state.series = TreeSeries(prefix: prefix, origin: origin.identity.map { "path " + $0 } + kinds)
    guard prefix.utf8.count <= Self.prefixByteCountMax else {
      throw BlobStorageError(
        .invalidArgument,
        "The prefix of a state has at most \(Self.prefixByteCountMax) bytes: import without a state.")
    }
    if let name { try states.check(name) }
  }

  package func add(_ key: [UInt8], _ version: BlobVersion.ID) {
    append(StateEntry(key: key, content: .version(version.stamp)))
  }

  /// - Parameter metadata: the metadata that an import keeps of the folder.
  package func addFolder(_ key: [UInt8], _ metadata: [UInt8]) {
    append(StateEntry(key: key, content: .folder(metadata)))
  }

  private func append(_ entry: StateEntry) {
    pending.append(entry)
    if pending.count >= Self.countOfRun { endRun() }
  }

  private func endRun() {
    guard !pending.isEmpty else { return }
    // Among entries with one key, the last one added comes first.
    let order = pending.indices.sorted { one, other in
      let (left, right) = (pending[one].key, pending[other].key)
      return left == right ? one > other : left.precedes(right)
    }
    var writer = StateEntryWriter()
    var last: [UInt8]?
    for index in order where pending[index].key != last {
      writer.append(pending[index])
      last = pending[index].key
    }
    runs.insert(writer.bytes, at: 0)
    pending = []
  }

  private func entries() -> StateMerge {
    StateMerge(runs.map { StateEntryReader($0) })
  }

  /// The state of that ID, if it has the entries that were added, and nothing else, and is not known to be lost.
  package func equal(_ id: TreeState.ID) throws(BlobStorageError) -> TreeState? {
    endRun()
    guard let known = try StateList(states.engine).states.first(where: { $0.state.id == id }),
      try states.canBuild(on: known), try changes(since: known, withinBytes: 0) != nil
    else { return nil }
    return known.state
  }

  /// Stores the state. Appends a number to its name if another import has recorded a state of that name meanwhile. A
  /// name that would be too long is left out.
  ///
  /// - Returns: the state, with the caller's counts.
  /// - Throws: `busy` if another import has been naming its state for a minute.
  package func finish(_ durability: Durability = .durable) throws(BlobStorageError) -> TreeState {
    endRun()
    guard let name = state.name else {
      try store(durability)
      return state
    }
    try lock.whileNaming { () throws(BlobStorageError) in
      state.name = try states.freeName(name)
      try store(durability)
    }
    return state
  }

  private func store(_ durability: Durability) throws(BlobStorageError) {
    var record = StateRecord(state)
    record.isTakenOver = isTakenOver
    let known = try StateList(states.engine).states
    let series = known.filter { $0.state.series == state.series }
    if !isTakenOver { record.number = min((series.map(\.number).max() ?? 0) + 1, StateRecord.numberMax) }
    // It differs least from the last of its series, or else of its prefix.
    let parent = series.last ?? known.last { $0.state.prefix.utf8.elementsEqual(state.prefix.utf8) }
    if let parent, let changes = try changes(since: parent) {
      record.parent = parent.state.id
      record.depth = parent.depth + 1
      record.changesByteCount = parent.changesByteCount + Int64(changes.count)
      record.wholeByteCount = parent.wholeByteCount
      try states.put(record, .data(Data(changes)), durability)
    } else {
      var writer = StateEntryWriter()
      var entries = entries()
      while let entry = try entries.next() { writer.append(entry) }
      record.wholeByteCount = Int64(writer.byteCount)
      try states.put(record, .data(Data(writer.bytes)), durability)
    }
    runs = []
  }

  /// The changes since the parent; nil if they are too long, or if the parent cannot be read or may be lost.
  private func changes(since parent: StateRecord) throws(BlobStorageError) -> [UInt8]? {
    guard parent.depth < Self.depthMax, try states.canBuild(on: parent) else { return nil }
    let limit = max(
      Self.changesByteCountMin,
      min(Int(parent.wholeByteCount / 2 - parent.changesByteCount), Self.changesByteCountMax))
    return try changes(since: parent, withinBytes: limit)
  }

  /// The changes since another state; nil if they have more bytes, or if that state cannot be read.
  private func changes(
    since parent: StateRecord, withinBytes limit: Int
  ) throws(BlobStorageError) -> [UInt8]? {
    do throws(BlobStorageError) { return try changes(since: parent, atMost: limit) } catch {
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      return nil
    }
  }

  private func changes(
    since parent: StateRecord, atMost limit: Int
  ) throws(BlobStorageError) -> [UInt8]? {
    let walk = try states.walk(parent)
    defer { walk.close() }
    var entries = entries()
    var writer = StateEntryWriter()
    var (old, new) = (try walk.next(), try entries.next())
    while old != nil || new != nil {
      if let found = new, old.map({ found.key.precedes($0.key) }) ?? true {
        writer.append(found)
        new = try entries.next()
      } else if let known = old, new.map({ known.key.precedes($0.key) }) ?? true {
        writer.append(StateEntry(key: known.key, content: .removed))
        old = try walk.next()
      } else {
        if let found = new, found != old { writer.append(found) }
        (old, new) = (try walk.next(), try entries.next())
      }
      if writer.byteCount > limit { return nil }
    }
    return writer.bytes
  }
}

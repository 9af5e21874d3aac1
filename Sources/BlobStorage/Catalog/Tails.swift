import CLMDB
import Logging
import Synchronization

/// What the open packs have beyond the catalog: the tails. Together with a snapshot of the catalog they make a view.
///
/// Each process reads the tails once, keeps their records, and keeps the rows that settling them would write. Invariants:
/// 1. A view contains every commit that returned before the view was taken, and a commit entirely or not at all.
/// 2. Rows belong to one snapshot of the catalog. Whenever the catalog has changed they are made anew from the records
///    that the catalog still lacks.
/// 3. Every write transaction of the catalog settles all tails first, so few records are left then.
package final class Tails: Sendable {
  /// Records and bytes of payload after which a process settles.
  static let recordCountMax = 4_000
  static let byteCountMax: Int64 = 32 << 20

  private struct Tail {
    var header: PackHeader
    /// Records that the catalog may lack, in the order of the pack.
    var records: [PackRecord]
    /// Where the records end.
    var end: Int64
    var promised: Int64 = 0
    /// How many of the records are among the rows.
    var rowCount = 0
    /// Nil for a pack of this process.
    var file: (any File)?
  }

  private struct State {
    var tails: [PackName: Tail] = [:]
    var rows = TailRows()
    var isEmpty = true
    /// The snapshot that the rows belong to.
    var environment: ObjectIdentifier?
    var snapshot = 0
    /// The count of published lengths that the rows contain.
    var publishCount = UInt64.max
    var recordCount = 0
    var byteCount: Int64 = 0
  }

  private final class Box { var state = State() }
  private let box = Mutex(Unchecked(value: Box()))
  private let backend: any Backend
  private let codecs: CodecPool
  private let store: StoreHeader
  private let logger: Logger

  init(backend: any Backend, codecs: CodecPool, store: StoreHeader, logger: Logger) {
    self.backend = backend
    self.codecs = codecs
    self.store = store
    self.logger = logger
  }

  private func locked<T>(
    _ body: (inout State) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let result: Result<Unchecked<T>, BlobStorageError> = box.withLock { box in
      do throws(BlobStorageError) { return .success(Unchecked(value: try body(&box.value.state))) } catch {
        return .failure(error)
      }
    }
    return try result.get().value
  }

  /// Whether there is so much that somebody should settle.
  var isLong: Bool {
    box.withLock {
      $0.value.state.recordCount >= Self.recordCountMax || $0.value.state.byteCount >= Self.byteCountMax
    }
  }

  /// Takes records of a pack of this process, which are about to be published up to `end`.
  func add(_ records: [PackRecord], of header: PackHeader, upTo end: Int64) throws(BlobStorageError) {
    try locked { state in
      var tail = state.tails.removeValue(forKey: header.name) ?? Tail(header: header, records: [], end: 0)
      // Another commit may have published some of them.
      let new = records.drop { $0.offset < tail.end }
      tail.records += new
      tail.end = end
      state.tails[header.name] = tail
      state.recordCount += new.count
      for record in new { state.byteCount += Int64(record.payloadByteCount) }
    }
  }

  // MARK: Views

  /// The view for a snapshot of the catalog; nil if the snapshot is too old, and a newer one has to be taken.
  func view(
    _ snapshot: Transaction, of environment: Environment, _ live: LiveTable
  ) throws(BlobStorageError) -> Transaction? {
    let id = snapshot.id
    let publishCount = live.publishCount
    let place = ObjectIdentifier(environment)
    let known = try locked { state -> Unchecked<TailRows?>? in
      guard state.environment == place, state.snapshot == id, state.publishCount == publishCount else {
        return nil
      }
      return Unchecked(value: state.isEmpty ? nil : state.rows)
    }
    if let known { return snapshot.with(known.value) }
    let entries = live.entries()
    // What was settled and freed since the snapshot would be missing.
    guard environment.lastTransaction == id else { return nil }
    for entry in entries { try fetch(entry, snapshot) }
    return try locked { (state) throws(BlobStorageError) -> Unchecked<Transaction?> in
      do throws(BlobStorageError) {
        return Unchecked(value: try extend(&state, snapshot, place, entries, publishCount))
      } catch {
        // Rows may be there in part.
        state.environment = nil
        throw error
      }
    }.value
  }

  /// Brings the rows up to the tails.
  private func extend(
    _ state: inout State, _ snapshot: Transaction, _ place: ObjectIdentifier, _ entries: [LiveTable.Entry],
    _ publishCount: UInt64
  ) throws(BlobStorageError) -> Transaction? {
    if state.environment == place, snapshot.id < state.snapshot { return nil }
    let isOther = state.environment != place || state.snapshot != snapshot.id
    if isOther {
      state.rows = TailRows()
      state.isEmpty = true
      state.environment = place
      state.snapshot = snapshot.id
    } else if !isKnownUniquelyReferenced(&state.rows) {
      state.rows = TailRows(copying: state.rows)
    }
    let published = Dictionary(entries.map { ($0.pack, $0.published) }, uniquingKeysWith: { $1 })
    let view = snapshot.with(state.rows)
    for name in Array(state.tails.keys) {
      guard var tail = state.tails.removeValue(forKey: name) else { continue }
      if isOther {
        try forgetSettled(&tail, snapshot)
        tail.rowCount = 0
      }
      // What was not published when the entries were read waits for the next view.
      let end = published[name] ?? tail.end
      if tail.rowCount < tail.records.count {
        guard let (number, known) = try view.pack(tail.header) else {
          state.tails[name] = tail
          state.environment = nil
          return nil
        }
        var row = known
        while tail.rowCount < tail.records.count {
          let record = tail.records[tail.rowCount]
          if record.offset >= end { break }
          if record.offset >= row.appliedByteCount {
            guard record.offset == row.appliedByteCount else {
              // The catalog has got what lies between since the snapshot was taken.
              state.tails[name] = tail
              state.environment = nil
              return nil
            }
            try view.apply(record, from: number, &row, algorithm: store.digestAlgorithm)
          }
          tail.rowCount += 1
        }
        try view.setPackRow(number, row)
        state.isEmpty = false
      }
      // A pack without a slot is sealed, and the catalog has all of it.
      if published[name] != nil || !tail.records.isEmpty { state.tails[name] = tail }
    }
    if isOther {
      state.recordCount = state.tails.values.reduce(0) { $0 + $1.records.count }
      state.byteCount = state.tails.values.reduce(0) { $0 + $1.records.reduce(0) { $0 + Int64($1.payloadByteCount) } }
    }
    state.publishCount = publishCount
    return state.isEmpty ? snapshot : view
  }

  private func forgetSettled(_ tail: inout Tail, _ snapshot: Transaction) throws(BlobStorageError) {
    guard let number = try snapshot.packNumber(tail.header.name),
      let applied = try snapshot.packRow(number)?.appliedByteCount
    else { return }
    let settled = tail.records.prefix { $0.offset < applied }.count
    tail.records.removeFirst(settled)
  }

  /// Reads what a pack of another process has beyond what is known here.
  private func fetch(_ entry: LiveTable.Entry, _ snapshot: Transaction) throws(BlobStorageError) {
    var applied: Int64 = 0
    if let number = try snapshot.packNumber(entry.pack), let row = try snapshot.packRow(number) {
      applied = row.appliedByteCount
      if row.isSealed { return }
    }
    let (known, file) = try locked { (state) throws(BlobStorageError) -> (Int64, (any File)?) in
      state.tails[entry.pack]?.promised = entry.promised
      return (state.tails[entry.pack]?.end ?? 0, state.tails[entry.pack]?.file)
    }
    let start = max(known, applied, Int64(PackHeader.byteCount))
    guard start < entry.published else { return }
    // The census tells of a pack that is not there.
    var opened = file
    if opened == nil { opened = try backend.openPack(entry.pack) }
    guard let file = opened else { return }
    let scanner = try PackScanner(
      file: file, name: entry.pack, codecs: codecs, store: store, upTo: entry.published)
    let header = try scanner.headerOrSubstitute().header
    var records: [PackRecord] = []
    let end = try scanner.scanTail(header, from: start) { (record) in records.append(record) }
    guard end == entry.published else {
      throw BlobStorageError(
        .corrupted,
        "Pack \(entry.pack) cannot be read from \(end) to \(entry.published), where its writer has put the newest "
          + "changes: end the programs that write to the store, and run repair.", pack: entry.pack.description,
        offset: end)
    }
    try locked { state in
      var tail =
        state.tails.removeValue(forKey: entry.pack) ?? Tail(header: header, records: [], end: start)
      defer { state.tails[entry.pack] = tail }
      // Another thread was faster.
      guard tail.end <= start else { return }
      tail.records += records
      tail.end = end
      tail.promised = entry.promised
      tail.file = file
      state.recordCount += records.count
      for record in records { state.byteCount += Int64(record.payloadByteCount) }
    }
  }

  // MARK: Settling

  /// Writes everything that is published to the catalog.
  func settle(_ transaction: Transaction, _ live: LiveTable) throws(BlobStorageError) {
    let entries = live.entries()
    for entry in entries { try fetch(entry, transaction) }
    let tails = try locked { Unchecked(value: $0.tails) }.value
    let promised = Dictionary(entries.map { ($0.pack, $0.promised) }, uniquingKeysWith: { $1 })
    for (name, tail) in tails {
      guard let (number, known) = try transaction.pack(tail.header) else { continue }
      var row = known
      for record in tail.records where record.offset >= row.appliedByteCount {
        guard record.offset == row.appliedByteCount else { break }
        try transaction.apply(record, from: number, &row, algorithm: store.digestAlgorithm)
      }
      row.promisedByteCount = max(row.promisedByteCount, min(promised[name] ?? 0, row.appliedByteCount))
      if row != known { try transaction.setPackRow(number, row) }
    }
  }
}

extension Transaction {
  /// The number and the row of a pack, which is taken in if it is not known.
  fileprivate func pack(_ header: PackHeader) throws(BlobStorageError) -> (number: UInt32, row: PackRow)? {
    if let number = try packNumber(header.name) {
      guard let row = try packRow(number) else { return nil }
      return (number, row)
    }
    let row = PackRow(name: header.name, created: header.created)
    return (try addPack(row), row)
  }
}

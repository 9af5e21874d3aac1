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
  package static let recordCountMax = 4_000
  package static let byteCountMax: Int64 = 32 << 20

  private struct Tail {
    var header: PackHeader
    /// Up to where the pack has published, when it was last looked at. What this process adds counts at once.
    var published: Int64
    /// Records that the catalog may lack, in the order of the pack.
    var records: [PackRecord]
    /// Where the records end.
    var end: Int64
    /// How many of the records are among the rows.
    var rowCount = 0
    /// Nil for a pack of this process.
    var file: (any File)?

    mutating func forget() { (records, rowCount, end) = ([], 0, 0) }
  }

  private struct State {
    /// Few: one for each open pack.
    var tails: [Tail] = []
    var rows = TailRows()
    var isEmpty = true
    /// The snapshot that the rows belong to.
    var environment: UInt64?
    var snapshot = 0
    /// The table that the counts belong to.
    var table: LiveTable?
    /// How often others have published, as far as the rows contain it.
    var othersCount = UInt64.max
    /// How often this process has published.
    var ownCount: UInt64 = 0
    /// Whether there is something that the rows lack.
    var isExtended = true
    var recordCount = 0
    var byteCount: Int64 = 0
    /// So many records are waited for before settling is tried again. It has failed.
    var patience = 0

    func index(_ pack: PackName) -> Int? { tails.firstIndex { $0.header.name == pack } }

    mutating func count(_ records: some Sequence<PackRecord>) {
      for record in records {
        recordCount += 1
        byteCount += Int64(record.payloadByteCount)
      }
    }
  }

  private final class Box { var state = State() }
  private let box = Mutex(Unchecked(value: Box()))
  private let backend: any Backend
  private let codecs: CodecPool
  private let store: StoreHeader

  init(backend: any Backend, codecs: CodecPool, store: StoreHeader) {
    self.backend = backend
    self.codecs = codecs
    self.store = store
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

  /// How much the catalog lacks, as far as is known here.
  package var size: (recordCount: Int, byteCount: Int64) {
    box.withLock { ($0.value.state.recordCount, $0.value.state.byteCount) }
  }

  /// Whether there is so much that somebody should settle.
  package var isLong: Bool {
    box.withLock {
      let state = $0.value.state
      return (state.recordCount >= Self.recordCountMax || state.byteCount >= Self.byteCountMax)
        && state.recordCount >= state.patience
    }
  }

  /// Whether there is so much, because settling fails, that memory has to be protected.
  var isFull: Bool { box.withLock { $0.value.state.recordCount >= 8 * Self.recordCountMax } }

  /// Has ``isLong`` wait for as many records again.
  func noteFailedSettling() { box.withLock { $0.value.state.patience = $0.value.state.recordCount * 5 / 4 } }

  /// Whether the catalog may lack anything.
  var isEmpty: Bool { box.withLock { $0.value.state.recordCount == 0 } }

  /// Notes that the catalog has everything that was published a moment ago.
  func noteSettled() {
    box.withLock { box in
      (box.value.state.recordCount, box.value.state.byteCount, box.value.state.patience) = (0, 0, 0)
    }
  }

  /// Makes records of a pack of this process visible to all processes. The system has their bytes.
  func publish(
    _ records: [PackRecord], of header: PackHeader, upTo end: Int64, in slot: LiveTable.Slot, isPromised: Bool
  ) throws(BlobStorageError) {
    try locked { state in
      let index = state.index(header.name) ?? state.tails.count
      if index == state.tails.count {
        state.tails.append(Tail(header: header, published: 0, records: [], end: 0))
      }
      // Another commit may have published some of them.
      let known = state.tails[index].end
      let new = records.drop { $0.offset < known }
      state.tails[index].records += new
      state.tails[index].end = end
      state.tails[index].published = end
      state.isExtended = true
      state.count(new)
      // Under the lock, so that the two counts go together.
      slot.publish(end, isPromised: isPromised)
      state.ownCount &+= 1
    }
  }

  // MARK: Views

  /// The view for a snapshot of the catalog; nil if the snapshot is too old, and a newer one has to be taken.
  ///
  /// - Parameter catalogCount: what the table counted before the environment was chosen.
  func view(
    _ snapshot: Transaction, of environment: Environment, _ live: LiveTable, catalogCount: UInt64
  ) throws(BlobStorageError) -> Transaction? {
    let place = environment.number
    let (known, othersCount) = try locked {
      (state) throws(BlobStorageError) -> (Unchecked<Transaction>?, UInt64) in
      let othersCount = live.publishCount &- state.ownCount
      guard state.table === live, state.environment == place, state.snapshot == snapshot.id,
        othersCount == state.othersCount
      else { return (nil, othersCount) }
      if state.isExtended {
        guard try extend(&state, snapshot, place) else { return (nil, othersCount) }
      }
      return (Unchecked(value: state.isEmpty ? snapshot : snapshot.with(state.rows)), othersCount)
    }
    if let known { return known.value }
    let entries = live.entries()
    // What was settled and freed since the snapshot would be missing, or recovered in a new catalog.
    guard try environment.newestSnapshot() == snapshot.id, live.catalogCount == catalogCount else {
      return nil
    }
    for entry in entries { try fetch(entry, snapshot) }
    return try locked { (state) throws(BlobStorageError) -> Unchecked<Transaction?> in
      let packs = Set(entries.map(\.pack))
      for entry in entries {
        guard let index = state.index(entry.pack) else { continue }
        state.tails[index].published = max(state.tails[index].published, entry.published)
      }
      guard try extend(&state, snapshot, place) else { return Unchecked(value: nil) }
      // A pack without a slot is sealed, and the catalog has all of it.
      state.tails.removeAll { $0.records.isEmpty && !packs.contains($0.header.name) }
      state.table = live
      state.othersCount = othersCount
      return Unchecked(value: state.isEmpty ? snapshot : snapshot.with(state.rows))
    }.value
  }

  /// Brings the rows up to the tails; false if the snapshot is too old.
  private func extend(
    _ state: inout State, _ snapshot: Transaction, _ place: UInt64
  ) throws(BlobStorageError) -> Bool {
    if state.environment == place, snapshot.id < state.snapshot { return false }
    let isOther = state.environment != place || state.snapshot != snapshot.id
    // Until all is done, rows may be there in part.
    state.environment = nil
    if isOther {
      state.rows = TailRows()
      state.isEmpty = true
      (state.recordCount, state.byteCount) = (0, 0)
    } else if !isKnownUniquelyReferenced(&state.rows) {
      state.rows = TailRows(copying: state.rows)
    }
    var view = snapshot.with(state.rows)
    view.writesRows = true
    for index in state.tails.indices {
      if isOther {
        try forgetSettled(&state.tails[index], snapshot)
        state.count(state.tails[index].records)
      }
      if try !apply(&state.tails[index], view) { return false }
      if state.tails[index].rowCount > 0 { state.isEmpty = false }
    }
    state.environment = place
    state.snapshot = snapshot.id
    state.isExtended = false
    return true
  }

  /// Adds the rows of the records that are published; false if the snapshot lacks what lies before them.
  private func apply(_ tail: inout Tail, _ view: Transaction) throws(BlobStorageError) -> Bool {
    guard tail.rowCount < tail.records.count, tail.records[tail.rowCount].offset < tail.published else {
      return true
    }
    guard let (number, known) = try view.openPack(tail.header.name) else {
      // It is read again if the pack was begun since the snapshot.
      tail.forget()
      return true
    }
    var row = known
    while tail.rowCount < tail.records.count {
      let record = tail.records[tail.rowCount]
      if record.offset >= tail.published { break }
      if record.offset >= row.appliedByteCount {
        guard record.offset == row.appliedByteCount else {
          // The catalog was made anew and lacks what lies between: the pack is read again.
          tail.forget()
          return false
        }
        try view.apply(record, from: number, &row, algorithm: store.digestAlgorithm)
      }
      tail.rowCount += 1
    }
    try view.setPackRow(number, row)
    return true
  }

  private func forgetSettled(_ tail: inout Tail, _ snapshot: Transaction) throws(BlobStorageError) {
    tail.rowCount = 0
    guard let (_, row) = try snapshot.openPack(tail.header.name) else {
      tail.forget()
      return
    }
    let settled = tail.records.prefix { $0.offset < row.appliedByteCount }.count
    tail.records.removeFirst(settled)
  }

  /// Reads what a pack of another process has beyond what is known here.
  private func fetch(_ entry: LiveTable.Entry, _ snapshot: Transaction) throws(BlobStorageError) {
    guard let (_, row) = try snapshot.openPack(entry.pack) else { return }
    guard entry.isPossible else { throw Self.unreadable(entry, from: row.appliedByteCount) }
    let (known, file) = try locked { (state) throws(BlobStorageError) -> (Int64, (any File)?) in
      guard let index = state.index(entry.pack) else { return (0, nil) }
      return (state.tails[index].end, state.tails[index].file)
    }
    let start = max(known, row.appliedByteCount)
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
    guard end == entry.published, !(records.last?.continues ?? false) else {
      throw Self.unreadable(entry, from: end)
    }
    try locked { state in
      let index = state.index(entry.pack) ?? state.tails.count
      if index == state.tails.count {
        state.tails.append(Tail(header: header, published: 0, records: [], end: start))
      }
      // Another thread may have been faster.
      guard state.tails[index].end <= start else { return }
      state.tails[index].records += records
      state.tails[index].end = end
      state.tails[index].file = file
      state.isExtended = true
      state.count(records)
    }
  }

  private static func unreadable(_ entry: LiveTable.Entry, from end: Int64) -> BlobStorageError {
    BlobStorageError(
      .corrupted,
      "Pack \(entry.pack) cannot be read from \(end) to \(entry.published), where its writer has put the newest "
        + "changes: end the programs that write to the store, and run repair.", pack: entry.pack.description,
      offset: end)
  }

  // MARK: Settling

  /// Writes what is published to the catalog.
  ///
  /// - Parameter countMax: about how many records at most; whole commits.
  /// - Returns: whether that was all.
  @discardableResult
  func settle(
    _ transaction: Transaction, _ live: LiveTable, atMost countMax: Int = .max
  ) throws(BlobStorageError) -> Bool {
    let entries = live.entries()
    let promised = Dictionary(entries.map { ($0.pack, $0.promised) }, uniquingKeysWith: { $1 })
    var rest = countMax
    for attempt in 0..<2 {
      for entry in entries { try fetch(entry, transaction) }
      let tails = try locked { Unchecked(value: $0.tails) }.value
      var isWhole = true
      for tail in tails where !tail.records.isEmpty && rest > 0 {
        if try !settle(tail, promised[tail.header.name] ?? 0, transaction, &rest) {
          isWhole = false
          // It is read again from where the catalog ends.
          try locked { state in
            if let index = state.index(tail.header.name) { state.tails[index].forget() }
            state.environment = nil
          }
        }
      }
      if isWhole { return rest > 0 }
      if attempt == 1 { break }
    }
    throw BlobStorageError(.catalogDamaged, "The catalog lacks what open packs have published before.")
  }

  /// False if the catalog lacks what lies before the tail.
  private func settle(
    _ tail: Tail, _ promised: Int64, _ transaction: Transaction, _ rest: inout Int
  ) throws(BlobStorageError) -> Bool {
    guard let (number, known) = try transaction.openPack(tail.header.name) else { return true }
    var row = known
    var isInCommit = false
    for record in tail.records where record.offset >= row.appliedByteCount {
      if rest <= 0, !isInCommit { break }
      guard record.offset == row.appliedByteCount else { return false }
      try transaction.apply(record, from: number, &row, algorithm: store.digestAlgorithm)
      isInCommit = record.continues
      rest -= 1
    }
    row.promisedByteCount = max(row.promisedByteCount, min(promised, row.appliedByteCount))
    if row != known { try transaction.setPackRow(number, row) }
    return true
  }
}

extension Transaction {
  /// A pack whose tail can count: the catalog knows it, and it is neither sealed nor about to go.
  fileprivate func openPack(
    _ name: PackName
  ) throws(BlobStorageError) -> (number: UInt32, row: PackRow)? {
    guard let number = try packNumber(name), let row = try packRow(number), row.state == .live, !row.isSealed
    else { return nil }
    return (number, row)
  }
}

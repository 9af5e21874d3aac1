/// The tails: the records of open packs that the catalog has not applied yet. A view is a catalog snapshot plus the
/// tails.
///
/// Each process reads a tail once. It keeps the records, and the rows that settling them would write. Invariants:
/// 1. A view contains every commit that returned before the view was taken. It contains a commit entirely or not at
///    all.
/// 2. Rows belong to one catalog snapshot. When the catalog has changed, they are rebuilt from the records that it
///    still lacks.
/// 3. Every write transaction of the catalog first settles all tails, so few records remain afterwards.
package final class Tails: Sendable {
  /// Records and bytes of packs after which a process settles.
  package static let recordCountMax = 4_000
  package static let byteCountMax: Int64 = 32 << 20
  /// Seconds after which a process settles. A process that opens the store then reads less.
  package static let ageMax = 1.0

  private struct Tail {
    var header: PackHeader
    /// The published length when it was last read. What this process publishes counts at once.
    var published: Int64
    /// Records that the catalog may lack, in the order of the pack.
    var records: [PackRecord]
    /// Where the records end.
    var end: Int64
    /// How many of the records the rows contain.
    var rowCount = 0
    /// The pack's number in the snapshot that the rows belong to, once it was looked up.
    var number: UInt32?
    /// Nil for a pack of this process.
    var file: (any File)?

    /// Where the records begin.
    var start: Int64 { records.first?.offset ?? end }

    /// Whether the records are all that a catalog lacks if it has applied the pack up to `applied`.
    func covers(from applied: Int64) -> Bool { published <= applied || start <= applied && end >= published }

    mutating func forget() { (records, rowCount, end, published) = ([], 0, 0, 0) }
  }

  private struct State {
    /// Few: one for each open pack.
    var tails: [Tail] = []
    var rows = TailRows()
    var isEmpty = true
    /// The snapshot that the rows belong to.
    var database: UInt64 = 0
    var snapshot = 0
    /// Whether the rows are complete; false after records were forgotten.
    var isMade = false
    /// The table that the counts belong to.
    var table: LiveTable?
    /// How often others had published when the rows were made.
    var othersCount = UInt64.max
    /// How often this process has published.
    var ownCount: UInt64 = 0
    /// Whether the rows lack a record.
    var isExtended = true
    var recordCount = 0
    var byteCount: Int64 = 0
    /// Approximate memory of the records: keys, metadata and digests.
    var memoryByteCount = 0
    /// When the oldest unsettled record appeared.
    var since: Double?
    /// After settling failed: the number of records at which a process tries again.
    var patience = 0
    /// Whether a thread settles because the tails are due.
    var isSettling = false

    func index(_ pack: PackName) -> Int? { tails.firstIndex { $0.header.name == pack } }

    mutating func count(_ records: some Sequence<PackRecord>, at time: PassingTime) {
      for record in records {
        recordCount += 1
        byteCount += Int64(record.byteCount)
        memoryByteCount += record.memoryByteCount
      }
      if recordCount > 0, since == nil { since = time.now() }
    }

    /// Whether the tails are long enough to settle.
    var isLong: Bool {
      (recordCount >= Tails.recordCountMax || byteCount >= Tails.byteCountMax) && recordCount >= patience
    }

    /// Whether they are so long that memory must be protected.
    var isFull: Bool {
      recordCount >= 8 * Tails.recordCountMax || memoryByteCount >= Tails.byteCountMax
    }

    mutating func countNone() { (recordCount, byteCount, memoryByteCount, since) = (0, 0, 0, nil) }
  }

  private let state = IOLock(State())
  private let backend: any Backend
  private let codecs: CodecPool
  private let store: StoreHeader
  private let time: PassingTime
  let weaknesses: Weaknesses

  package init(
    backend: any Backend, codecs: CodecPool, store: StoreHeader, time: PassingTime,
    weaknesses: Weaknesses = []
  ) {
    self.weaknesses = weaknesses
    self.time = time
    self.backend = backend
    self.codecs = codecs
    self.store = store
  }

  /// The size of what the catalog lacks, as far as this process knows.
  package var size: (recordCount: Int, byteCount: Int64) {
    state.withLock { ($0.recordCount, $0.byteCount) }
  }

  /// Whether the tails are long enough to settle.
  package var isLong: Bool { state.withLock { $0.isLong } }

  /// Whether the tails are long or old enough for the caller to settle. Returns true to one thread at a time, so that
  /// the others need not wait. That thread calls ``endSettling()``.
  func beginSettling() -> Bool {
    if weaknesses.contains(.growsTails) { return false }
    return state.withLock { state in
      guard !state.isSettling, let since = state.since else { return false }
      guard state.isLong || !(0..<Self.ageMax ~= time.now() - since) else { return false }
      state.isSettling = true
      return true
    }
  }

  func endSettling() { state.withLock { $0.isSettling = false } }

  /// Whether settling has failed for so long that memory must be protected: then each commit settles, or fails.
  var isFull: Bool {
    if weaknesses.contains(.growsTails) { return false }
    return state.withLock { $0.isFull }
  }

  /// Postpones the next attempt after a failure: ``beginSettling()`` waits for more records, or for ``ageMax`` again.
  func postponeSettling() {
    state.withLock { state in
      state.patience = state.recordCount * 5 / 4
      state.since = time.now()
    }
  }

  /// Whether the catalog may lack anything.
  var isEmpty: Bool { state.withLock { $0.recordCount == 0 } }

  /// Resets the counts after the catalog has applied everything that was published.
  func resetCounts() {
    state.withLock { state in
      state.countNone()
      state.patience = 0
    }
  }

  /// Publishes records of a pack of this process to all processes. The system must have their bytes.
  package func publish(
    _ records: some Sequence<PackRecord>, of header: PackHeader, upTo end: Int64, in slot: LiveTable.Slot,
    isPromised: Bool
  ) throws(BlobStorageError) {
    try state.withLock { (state) throws(BlobStorageError) in
      // Under the lock, so that both counts change together.
      guard slot.publish(end, isPromised: isPromised) else {
        throw BlobStorageError(.closed, "The store was closed.")
      }
      state.ownCount &+= 1
      let index = state.index(header.name) ?? state.tails.count
      if index == state.tails.count {
        state.tails.append(Tail(header: header, published: 0, records: [], end: 0))
      }
      // Another commit may have published some of them.
      let known = state.tails[index].end
      let firstNew = state.tails[index].records.count
      state.tails[index].records += records.lazy.filter { $0.offset >= known }
      state.tails[index].end = end
      state.tails[index].published = end
      state.isExtended = true
      state.count(state.tails[index].records[firstNew...], at: time)
    }
  }

  // MARK: Views

  /// Returns the view of a catalog snapshot; nil if the snapshot is too old and the caller must take a newer one.
  ///
  /// - Parameters:
  ///   - catalogCount: the table's count of catalog replacements before the database was chosen.
  ///   - isAtOnce: whether to return nil instead of reading what other processes have published.
  func view(
    _ snapshot: ReadTransaction, of database: Database, _ live: LiveTable, catalogCount: UInt64,
    isAtOnce: Bool = false
  ) throws(BlobStorageError) -> ReadTransaction? {
    let place = database.number
    let (known, othersCount) = try state.withLock {
      (state) throws(BlobStorageError) -> (ReadTransaction?, UInt64) in
      let othersCount = live.publishCount &- state.ownCount
      guard state.table === live, state.isMade, state.database == place, state.snapshot == snapshot.id,
        othersCount == state.othersCount || weaknesses.contains(.skipsExtending)
      else { return (nil, othersCount) }
      if state.isExtended {
        guard try extend(&state, snapshot, place) else { return (nil, othersCount) }
      }
      return (state.isEmpty ? snapshot : snapshot.with(state.rows), othersCount)
    }
    if let known { return known }
    if isAtOnce { return nil }
    let entries = live.entries()
    // An older snapshot may lack records that were settled and freed since, or recovered in a new catalog.
    func isNewest() throws(BlobStorageError) -> Bool {
      if weaknesses.contains(.viewsOldSnapshots) { return true }
      return try database.isNewest(snapshot.id) && live.catalogCount == catalogCount
    }
    guard try isNewest() else { return nil }
    var gone: Set<PackName> = []
    do throws(BlobStorageError) {
      for entry in entries where try !fetch(entry, snapshot) { gone.insert(entry.pack) }
    } catch {
      // Records that were settled meanwhile need not be read, and their pack may be gone.
      guard try isNewest() else { return nil }
      if error.code == .corrupted { live.askAgain() }
      throw error
    }
    return try state.withLock { (state) throws(BlobStorageError) -> ReadTransaction? in
      let packs = Set(entries.map(\.pack))
      for entry in entries where !gone.contains(entry.pack) {
        guard let index = state.index(entry.pack) else { continue }
        state.tails[index].published = max(state.tails[index].published, entry.published)
      }
      guard try extend(&state, snapshot, place) else { return nil }
      // A pack without a slot is sealed, and the catalog has all of it.
      state.tails.removeAll { $0.records.isEmpty && !packs.contains($0.header.name) }
      state.table = live
      state.othersCount = othersCount
      return state.isEmpty ? snapshot : snapshot.with(state.rows)
    }
  }

  /// Extends the rows to the end of the tails; false if the snapshot is too old.
  private func extend(
    _ state: inout State, _ snapshot: ReadTransaction, _ place: UInt64
  ) throws(BlobStorageError) -> Bool {
    // Records that a newer snapshot has were forgotten.
    if state.database == place, snapshot.id < state.snapshot { return false }
    let isOther = !state.isMade || state.database != place || state.snapshot != snapshot.id
    // Until the end the rows are incomplete.
    state.isMade = false
    (state.database, state.snapshot) = (place, snapshot.id)
    if isOther {
      state.rows = TailRows()
      state.isEmpty = true
      // The transaction that made the snapshot settled all tails.
      state.countNone()
    } else if !isKnownUniquelyReferenced(&state.rows) {
      state.rows = TailRows(copying: state.rows)
    }
    let rows = WriteTransaction(state.rows, over: snapshot)
    for index in state.tails.indices {
      if isOther {
        guard try forgetSettled(&state.tails[index], snapshot) else { return false }
        state.count(state.tails[index].records, at: time)
      }
      if try !apply(&state.tails[index], to: rows) { return false }
      if state.tails[index].rowCount > 0 { state.isEmpty = false }
    }
    state.isMade = true
    state.isExtended = false
    return true
  }

  /// Adds the rows of published records; false if the snapshot lacks the records before them.
  private func apply(_ tail: inout Tail, to rows: WriteTransaction) throws(BlobStorageError) -> Bool {
    guard tail.rowCount < tail.records.count, tail.records[tail.rowCount].offset < tail.published else {
      return true
    }
    if tail.number == nil { tail.number = try rows.packNumber(tail.header.name) }
    guard let number = tail.number, let known = try rows.openPackRow(number) else {
      // If the pack was begun after the snapshot, it is read again.
      tail.forget()
      return true
    }
    var row = known
    while tail.rowCount < tail.records.count {
      let record = tail.records[tail.rowCount]
      if record.offset >= tail.published { break }
      if record.offset >= row.appliedByteCount {
        guard record.offset == row.appliedByteCount else {
          // The catalog was rebuilt and lacks the records between: the pack is read again.
          tail.forget()
          return false
        }
        try rows.apply(record, from: number, &row)
      }
      tail.rowCount += 1
    }
    try rows.setPackRow(number, row, insteadOf: known)
    return true
  }

  /// Forgets records that the snapshot has; false if it lacks others that are not in memory, so that the pack is read
  /// again.
  private func forgetSettled(_ tail: inout Tail, _ snapshot: ReadTransaction) throws(BlobStorageError) -> Bool
  {
    (tail.rowCount, tail.number) = (0, nil)
    guard let (_, row) = try snapshot.openPack(tail.header.name) else {
      tail.forget()
      return true
    }
    guard tail.covers(from: row.appliedByteCount) else {
      tail.forget()
      return false
    }
    let settled = tail.records.prefix { $0.offset < row.appliedByteCount }.count
    tail.records.removeFirst(settled)
    return true
  }

  /// Whether the file of an open pack is there.
  func hasFile(_ name: PackName) throws(BlobStorageError) -> Bool {
    guard let file = try backend.openLocalPack(name) else { return false }
    file.close()
    return true
  }

  /// Reads the published records of another process's pack that this process lacks.
  ///
  /// - Returns: false if the pack was set aside because it can never be published. A rebuild of the catalog follows.
  private func fetch(
    _ entry: LiveTable.Entry, _ snapshot: ReadTransaction
  ) throws(BlobStorageError) -> Bool {
    guard let (_, row) = try snapshot.openPack(entry.pack) else { return true }
    guard entry.isValid else { throw Self.unreadable(entry, from: row.appliedByteCount) }
    let (known, file, knownHeader) = state.withLock { (state) -> (Int64, (any File)?, PackHeader?) in
      guard let index = state.index(entry.pack) else { return (0, nil, nil) }
      if state.tails[index].start > row.appliedByteCount {
        // The catalog was rebuilt and lacks records that had been settled: the pack is read again.
        state.tails[index].forget()
        state.isMade = false
      }
      return (state.tails[index].end, state.tails[index].file, state.tails[index].header)
    }
    let start = max(known, row.appliedByteCount)
    guard start < entry.published else { return true }
    var opened = file
    if opened == nil { opened = try backend.openLocalPack(entry.pack) }
    guard let file = opened else {
      if try backend.isUnpublishable(entry.pack) { return false }
      throw Self.unreadable(entry, from: start)
    }
    // A process that has read the pack before reads a short tail with one call.
    let scanner = PackScanner(
      file: file, name: entry.pack, codecs: codecs, store: store, publishedUpTo: entry.published)
    let header = if let knownHeader { knownHeader } else { try scanner.headerOrSubstitute().header }
    var records: [PackRecord] = []
    let end = try scanner.scanTail(header, from: start) { (record) in records.append(record) }
    guard end == entry.published, !(records.last?.continues ?? false) else {
      throw Self.unreadable(entry, from: end)
    }
    state.withLock { state in
      let index = state.index(entry.pack) ?? state.tails.count
      if index == state.tails.count {
        state.tails.append(Tail(header: header, published: 0, records: [], end: start))
      }
      // Another thread may have been faster, and may have read less.
      let known = state.tails[index].end
      guard known < end else { return }
      let added = records.filter { $0.offset >= known }
      state.tails[index].records += added
      state.tails[index].end = end
      state.tails[index].file = file
      state.isExtended = true
      state.count(added, at: time)
    }
    return true
  }

  /// The error for a tail that cannot be read. It goes away once the writer has settled.
  static func unreadable(_ entry: LiveTable.Entry, from end: Int64) -> BlobStorageError {
    BlobStorageError(
      .corrupted,
      "The newest changes in pack \(entry.pack), from \(end) on, cannot be read: try again, or end the programs that "
        + "write to the store, and run repair.", pack: entry.pack.description,
      offset: end)
  }

  // MARK: Settling

  /// Applies all published records to the catalog.
  ///
  /// - Parameter countMax: about how many records to apply at most; a commit is never split.
  /// - Returns: whether everything was applied.
  @discardableResult
  func settle(
    _ transaction: WriteTransaction, _ live: LiveTable, atMost countMax: Int = .max
  ) throws(BlobStorageError) -> Bool {
    if weaknesses.contains(.skipsSettling) { return true }
    let entries = live.entries()
    var known = Dictionary(entries.map { ($0.pack, $0) }, uniquingKeysWith: { $1 })
    var rest = countMax
    for attempt in 0..<4 {
      for entry in entries where try !fetch(entry, transaction) { known[entry.pack] = nil }
      let tails = state.withLock { $0.tails }
      var isWhole = true
      for var tail in tails where rest > 0 {
        let entry = known[tail.header.name]
        // Another thread may have forgotten it meanwhile.
        tail.published = max(tail.published, entry?.published ?? 0)
        if try !settle(tail, entry?.promised ?? 0, transaction, &rest) {
          isWhole = false
          // The pack is read again from where the catalog ends.
          state.withLock { state in
            if let index = state.index(tail.header.name) { state.tails[index].forget() }
            state.isMade = false
          }
        }
      }
      if isWhole { return rest > 0 }
      if attempt == 3 { break }
    }
    throw BlobStorageError(.catalogDamaged, "The catalog lacks what open packs have published before.")
  }

  /// Applies a tail; false if records before it or in it are missing.
  private func settle(
    _ tail: Tail, _ promised: Int64, _ transaction: WriteTransaction, _ rest: inout Int
  ) throws(BlobStorageError) -> Bool {
    guard let (number, known) = try transaction.openPack(tail.header.name) else { return true }
    guard tail.covers(from: known.appliedByteCount) else { return false }
    var row = known
    var isBetweenCommits = true
    var isWhole = true
    for record in tail.records where record.offset >= row.appliedByteCount {
      // A tail begins with a commit, because refs name the chunks of their own commit by places.
      if rest <= 0, isBetweenCommits { break }
      // The commits between were forgotten. What is applied counts, so that the next attempt goes on from there.
      guard record.offset == row.appliedByteCount else {
        isWhole = false
        break
      }
      try transaction.apply(record, from: number, &row)
      isBetweenCommits = record.endsCommit
      rest -= 1
    }
    row.promisedByteCount = max(row.promisedByteCount, min(promised, row.appliedByteCount))
    if row != known { try transaction.setPackRow(number, row, insteadOf: known) }
    return isWhole
  }
}

import Logging
import Synchronization
import SystemPackage

/// Opens and rebuilds a catalog. Opening waits for other processes only if the catalog needs a
/// rebuild, the live table is not valid, or a process died in a commit: only recovery of its pack decides whether that
/// commit counts.
extension Catalog {
  /// Opens the catalog that all processes share.
  func openShared() throws(BlobStorageError) {
    var isLocked = try lock(.exclusive, wait: false)
    if !isLocked {
      // Other processes use it.
      try openLive(mayCreate: false)
      var isInvalid = false
      if let table = live.table {
        if try table.hasDeadCommit() { isLocked = try lockWithPatience() }
      } else if hasBoot {
        // Another process is about to create the table again, or it was damaged.
        isInvalid = try LiveTable.isThere(in: folder, files)
      }
      if !isLocked, !isInvalid {
        do throws(BlobStorageError) {
          if try adopt(isAlone: false) != nil { return try becomeUser(wait: false) }
        } catch {
          guard error.code == .catalogDamaged else { throw error }
        }
      }
      // If it is not open yet, it needs a rebuild, or another process is rebuilding it.
      if !isLocked { isLocked = try lockWithPatience() }
      if !isLocked { return try makeOwn() }
    }
    defer { unlock() }
    try openLive(mayCreate: true)
    try openLocked()
  }

  /// Opens the live table. Only a process that is alone creates one.
  ///
  /// Without a table every commit settles at once. That is slower, and correct as long as no process has a table.
  ///
  /// - Parameter mayCreate: whether `lock` is held exclusively.
  /// - Throws: `corrupted` when others use a table that is no longer valid.
  func openLive(mayCreate: Bool) throws(BlobStorageError) {
    guard live.table == nil, hasBoot else { return }
    var isAlone = false
    if mayCreate, let usersFile { isAlone = try usersFile.lock(.exclusive, wait: false) }
    defer { if isAlone { do { try usersFile?.unlock() } catch {} } }
    do throws(BlobStorageError) {
      live.table = try LiveTable.open(in: folder, files, identity, isAlone: isAlone)
      // The known count came from another table.
      if live.table != nil { current.withLock { $0?.stateCount = nil } }
    } catch {
      let reasons = [Errno.notSupported, .isDirectory, .invalidArgument].map(\.rawValue)
      guard error.code == .noSpace || reasons.contains(error.errno ?? 0) else { throw error }
      logger.warning("Small changes take longer.", metadata: ["reason": "\(error.message)"])
    }
    if mayCreate, !isAlone, live.table == nil, try LiveTable.isThere(in: folder, files) {
      throw BlobStorageError(
        .corrupted,
        "The live table \(folder)/live is damaged, so the newest changes cannot be found: "
          + "end all programs that use the store.", path: folder.entry("live").string)
    }
  }

  /// Whether the boot has an identity, so that its tables can be distinguished from those of other boots.
  private var hasBoot: Bool { !identity.boot.isEmpty }

  /// Frees the slots of dead writers whose packs the catalog has sealed or that have no file. A writer claims a slot
  /// only after its pack has a name.
  func reap(_ database: Database) throws(BlobStorageError) {
    // While the catalog is being replaced, `database` may be the old one.
    guard let live = live.table, live.catalogCount & 1 == 0 else { return }
    try database.read { (transaction) throws(BlobStorageError) in
      try live.reap { (entry) throws(BlobStorageError) in
        if try transaction.pack(entry.pack)?.row.isSealed ?? false { return true }
        return try !tails.hasFile(entry.pack)
      }
    }
  }

  /// Takes `lock` exclusively. In a folder, returns false after some seconds: the process that holds it may be stopped.
  func lockWithPatience() throws(BlobStorageError) -> Bool {
    // Without all packs there is no private catalog to read meanwhile.
    if !hasAllPacks { return try lock(.exclusive, wait: true) }
    return try lockFile?.lock(.exclusive, withinSeconds: patienceSeconds) ?? false
  }

  func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool {
    guard let lockFile else { throw refused() }
    return try lockFile.lock(kind, wait: wait)
  }

  /// The error for changes to a store that cannot be written.
  func refused() -> BlobStorageError {
    refusal.withLock { refusal in
      BlobStorageError(
        refusal?.code ?? .readOnly, "The store can only be read: \(refusal?.message ?? "").",
        path: refusal?.path, errno: refusal?.errno)
    }
  }

  /// Makes a private catalog from the packs and leaves the packs as they are.
  func makeOwn() throws(BlobStorageError) {
    let database: Database
    do throws(BlobStorageError) {
      database = try Database.temporary(for: self)
      try begin(database)
      try fill(database, false)
    } catch {
      guard error.code == .noSpace else { throw error }
      // Not `noSpace`: no room in the store's own folder would help.
      throw BlobStorageError(
        .io, "The folder for temporary files has no room for a private catalog: set TMPDIR to one that has.",
        path: error.path, errno: error.errno)
    }
    let generation = "own-" + Hex.text(randomNumber())
    use(Current(database: database, generation: generation, state: nil))
  }

  /// Rebuilds a private catalog, because gc has removed a pack that it names. Leaves a shared catalog alone.
  package func renewOwn() throws(BlobStorageError) {
    if current.withLock({ $0 != nil && $0?.state == nil }) { try makeOwn() }
  }

  func begin(_ database: Database) throws(BlobStorageError) {
    try database.write { (transaction) throws(BlobStorageError) in
      try transaction.put(.meta, Array("store".utf8), store.storeID)
      // Pack numbers start at random, so that a number of the previous catalog finds no pack.
      try transaction.setMeta(.nextPack, randomNumber() >> 33)
    }
  }

  /// Opens the catalog, and rebuilds it if necessary. `lock` is held exclusively.
  func openLocked() throws(BlobStorageError) {
    do throws(BlobStorageError) {
      if try adopt(isAlone: true) != nil {
        try becomeUser(wait: false)
        return try recoverLocked(try ownDatabase())
      }
    } catch {
      guard error.code == .catalogDamaged else { throw error }
      logger.warning("The catalog cannot be used and is rebuilt.", metadata: ["reason": "\(error.message)"])
    }
    if current.withLock({ $0 == nil }), let usersFile, try usersFile.lock(.exclusive, wait: false) {
      // No process uses it. On a full disk, it has the room that the new one needs.
      // Whatever happens, the exclusive lock becomes a shared one below.
      do throws(BlobStorageError) { try generations.removeAll(except: nil) } catch {
        logger.debug("The old catalog is not removed.", metadata: ["reason": "\(error.message)"])
      }
    }
    try becomeUser(wait: false)
    do { try rebuildLocked() } catch { throw Self.final(error) }
  }

  /// Recovers dead writers' packs. `lock` is held exclusively.
  func recoverLocked(_ database: Database) throws(BlobStorageError) {
    mustRecover.store(false, ordering: .relaxed)
    endReplacement()
    do throws(BlobStorageError) {
      try recoverDeadPacks(database) { () throws(BlobStorageError) in try markWritten() }
      try reap(database)
    } catch {
      // Views still show what a dead writer published, so reading need not wait for room.
      guard error.code == .noSpace || error.code == .readOnly else { throw error }
      logger.warning("Packs are not taken in yet.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Ends a replacement of `state` whose process died. `lock` is held exclusively.
  func endReplacement() {
    if let table = live.table, table.catalogCount & 1 == 1 { table.endNewCatalog() }
  }

  /// Whether the store cannot be written.
  var isReadOnly: Bool { refusal.withLock { $0 != nil } }

  /// Takes `users` shared. Without `wait`, fails while another process leaves the catalog clean.
  func becomeUser(wait: Bool) throws(BlobStorageError) {
    if isUser.withLock({ $0 }) { return }
    guard let usersFile else { throw refused() }
    let isTaken = try usersFile.lock(.shared, wait: wait)
    isUser.withLock { $0 = isTaken }
  }

  /// The database in use, opened again if another process has rebuilt it.
  ///
  /// - Parameter isShared: whether a private one will not do; then `lock` is held.
  func database(isShared: Bool = false) throws(BlobStorageError) -> Database {
    if let database = try unchangedDatabase() { return database }
    let own = current.withLock { isShared || $0?.state != nil ? nil : $0?.database }
    do throws(BlobStorageError) {
      if let database = try adopt(isAlone: false) { return database }
    } catch {
      guard own != nil, error.code == .catalogDamaged else { throw error }
    }
    if let own { return own }
    throw BlobStorageError(.catalogDamaged, "The catalog was removed while it was in use: try again.")
  }

  /// Returns the database in use if `state` is still the file that was read last; else nil.
  func unchangedDatabase() throws(BlobStorageError) -> Database? {
    try anchor?.checkNotEnded()
    guard let current = current.withLock({ $0 }) else {
      throw BlobStorageError(.closed, "The store was closed.")
    }
    // With a live table, `isUnchanged` looks.
    if current.stateCount == nil, isLookDue() { try anchor?.look() }
    guard let state = current.state else { return isReadOnly ? current.database : nil }
    try openLive(mayCreate: false)
    let table = live.table
    let stateCount = table?.catalogCount
    if let known = current.stateCount, known.table === table, try isUnchanged(known) {
      return current.database
    }
    guard try files.names(folder.entry("state"), state.file), !(try current.database.isSuperseded(files))
    else {
      return nil
    }
    let known = table.flatMap { table in stateCount.map { (table: table, count: $0) } }
    self.current.withLock {
      // The check may just have changed to another table, whose count is not known yet.
      if $0?.generation == current.generation, live.table === table { $0?.stateCount = known }
    }
    return current.database
  }

  /// Whether no process has replaced `state` since `known` was counted. Usually costs no system call.
  func isUnchanged(_ known: StateCount) throws(BlobStorageError) -> Bool {
    try anchor?.checkNotEnded()
    guard known.count & 1 == 0, known.table.catalogCount == known.count else { return false }
    if tails.weaknesses.contains(.ignoresCounts) { return false }
    // Now and then checks whether the path still names the store's folder, and whether the whole catalog was removed:
    // then the table is no longer valid.
    guard isLookDue() else { return true }
    try anchor?.look()
    guard try known.table.isRemoved() else { return true }
    changeTable(insteadOf: known.table)
    // Cleared, so that the next access makes the full check.
    current.withLock { if $0?.stateCount?.table === known.table { $0?.stateCount = nil } }
    return false
  }

  /// Changes to the table that another process has made in place of a removed one, perhaps while this one opened the
  /// store. A process that publishes in the removed one leaves it with its next commit.
  private func changeTable(insteadOf removed: LiveTable) {
    guard live.table === removed, !removed.hasOwnSlots else { return }
    do throws(BlobStorageError) {
      if let table = try LiveTable.open(in: folder, files, identity, isAlone: false) { live.table = table }
    } catch {
      // The next check tries again.
    }
  }

  /// Whether a tenth of a second has passed since the last check. True for only one thread, which then makes the check.
  private func isLookDue() -> Bool {
    let (now, last) = (PassingTime.coarseMilliseconds(), lastLook.load(ordering: .relaxed))
    if now >= last, now - last < 100 { return false }
    return lastLook.compareExchange(expected: last, desired: now, ordering: .relaxed).exchanged
  }

  /// Opens the generation that `state` names; nil if it cannot be used. Needs no lock.
  ///
  /// - Parameter isAlone: whether `lock` is held exclusively.
  func adopt(isAlone: Bool) throws(BlobStorageError) -> Database? {
    var last: String?
    while let found = try generations.readState(), let state = try trusted(found, isAlone: isAlone) {
      let generation = state.value.generation
      if let known = current.withLock({ $0 }), known.generation == generation,
        !(try known.database.isSuperseded(files))
      {
        // Another thread may have changed to another generation meanwhile.
        setState(state, of: generation)
        return known.database
      }
      if let state = try generations.verified(state, isAlone: isAlone), let database = try opened(generation)
      {
        use(Current(database: database, generation: generation, state: state))
        return database
      }
      // Either it was replaced and `state` names another by now, or it is missing.
      if last == generation { return nil }
      last = generation
    }
    return nil
  }

  /// Remembers a newer `state` of the generation in use. The old file is closed outside the lock.
  private func setState(_ state: Generations.OpenState, of generation: String) {
    _ = current.withLock { current -> Generations.OpenState? in
      guard current?.generation == generation else { return nil }
      defer { current?.state = state }
      return current?.state
    }
  }

  /// Opens the database of a generation; nil if it is missing.
  func opened(_ generation: String) throws(BlobStorageError) -> Database? {
    let place = folder.entry(generation)
    guard try files.status(of: place)?.kind == .directory,
      try files.status(of: generations.databaseFile(generation))?.kind == .regular
    else { return nil }
    let database: Database
    do {
      database = try SharedDatabases.open(place, for: self)
    } catch {
      guard error.isMissingName else { throw error }
      return nil
    }
    if try database.isSuperseded(files) { return nil }
    let (storeID, root) = try database.read { (transaction) throws(BlobStorageError) in
      (
        try transaction.value(.meta, Array("store".utf8)).map { Array($0) },
        try transaction.value(.meta, Database.outerRowsKey).map { Array($0) }
      )
    }
    // Removed before it was opened, it was created again.
    if storeID == nil { return nil }
    guard storeID == store.storeID else {
      throw BlobStorageError(.catalogDamaged, "The catalog belongs to another store.")
    }
    if let root, database.outerRows == nil {
      guard let outerRowsSource else {
        throw BlobStorageError(.catalogDamaged, "The catalog relies on rows that are not in the store.")
      }
      database.setOuterRows(try outerRowsSource.open(root))
    }
    return database
  }

  // MARK: Rebuilding and compacting

  func rebuildLocked() throws(BlobStorageError) {
    // They may take the room that this rebuild needs.
    generations.removeLeftovers()
    do throws(BlobStorageError) { try generations.removeAll(except: try makeGeneration()) } catch {
      generations.removeLeftovers()
      throw error
    }
  }

  /// Fills a new generation from the packs, uses it, and returns its name. `lock` is held exclusively.
  private func makeGeneration() throws(BlobStorageError) -> String {
    let poisoned = poisonedPacks()
    let suspects = suspectChunks()
    let generation = "g" + Hex.text(randomNumber())
    let place = folder.entry(generation)
    try files.createPart(place)
    try files.open(place.entry("data.mdb"), .create).close()
    let database = try SharedDatabases.open(place, for: self)
    try begin(database)
    try fill(database, true)
    try database.write { (transaction) throws(BlobStorageError) in
      for name in poisoned { try transaction.poison(name) }
      for suspect in suspects {
        // Unless the new catalog has a row for another copy.
        guard let row = try transaction.chunkRow(suspect.digest), row.place.offset == suspect.offset,
          try transaction.packRow(row.place.pack)?.name == suspect.pack
        else { continue }
        try transaction.setSuspect(suspect.digest, row)
      }
    }
    let state = try generations.writeState(
      CatalogState(
        generation: generation, mark: identity.mark, folder: generations.place, inode: try database.inode()))
    use(Current(database: database, generation: generation, state: state))
    mustRecover.store(false, ordering: .relaxed)
    try reap(database)
    return generation
  }

  /// Returns the packs that the catalog in use marks as poisoned. The packs themselves do not record a failed sync, and
  /// until the next boot the system returns all their bytes.
  private func poisonedPacks() -> [PackName] {
    known("What could not be synced is forgotten.") { (transaction) throws(BlobStorageError) in
      try transaction.packRows().filter(\.row.isPoisoned).map(\.row.name)
    }
  }

  /// Returns the chunks that reads found damaged, among the own rows of the catalog in use. Footers, from which
  /// catalogs are built, do not record this. Returns none for a store in a folder: there a rebuild follows a repair or
  /// a restored file, which has ended the damage.
  ///
  /// - Complexity: reads every chunk of the database, if any was marked since the catalog was made.
  private func suspectChunks() -> [(digest: BlobDigest, pack: PackName, offset: Int64)] {
    if outerRowsSource == nil { return [] }
    return known("What was found damaged is forgotten.") { (transaction) throws(BlobStorageError) in
      var suspects: [(digest: BlobDigest, pack: PackName, offset: Int64)] = []
      guard try transaction.hasSuspects() else { return suspects }
      try transaction.forEachChunk(ownOnly: true) { (digest, row) throws(BlobStorageError) in
        if row.isSuspect, let pack = try transaction.packRow(row.place.pack) {
          suspects.append((digest, pack.name, row.place.offset))
        }
        return true
      }
      return suspects
    }
  }

  /// Reads the catalog in use; returns nothing if there is none, or if it cannot be read.
  private func known<T>(
    _ loss: String, _ body: (ReadTransaction) throws(BlobStorageError) -> [T]
  ) -> [T] {
    guard let database = current.withLock({ $0?.database }) else { return [] }
    do throws(BlobStorageError) { return try database.read(body) } catch {
      logger.warning("\(loss)", metadata: ["reason": "\(error.message)"])
      return []
    }
  }

  /// The database in use, in files without another name: what a copy of the store shares by hard links is copied first.
  /// `lock` is held exclusively.
  func ownDatabase() throws(BlobStorageError) -> Database {
    let database = try database(isShared: true)
    guard let known = current.withLock({ $0?.state?.value }), try generations.isShared(known.generation)
    else {
      return database
    }
    let generation = "g" + Hex.text(randomNumber())
    do throws(BlobStorageError) {
      try files.createPart(folder.entry(generation))
      let file = try generations.copy(known.generation, to: generation)
      defer { file.close() }
      if known.clean != nil {
        try file.synchronize()
        try files.syncDirectory(folder.entry(generation))
      }
      guard let copy = try opened(generation) else {
        throw BlobStorageError(.catalogDamaged, "The catalog was removed while it was in use: try again.")
      }
      let state = try generations.writeState(
        CatalogState(
          generation: generation, mark: identity.mark(with: known.mark), folder: generations.place,
          inode: try file.status().inode, clean: try known.clean == nil ? nil : CleanFile(file)))
      use(Current(database: copy, generation: generation, state: state))
      try generations.removeAll(except: generation)
      return copy
    } catch {
      generations.removeLeftovers()
      // No other store uses these files: without room for a copy, they serve as well.
      guard error.code == .noSpace, self.generation == known.generation else { throw error }
      return database
    }
  }

  /// Returns the database in use, after `state` records that it is written to. Returns with `lock` held.
  func lockedToWrite() throws(BlobStorageError) -> Database {
    if isReadOnly { throw refused() }
    try becomeUser(wait: true)
    if mustRecover.load(ordering: .relaxed), try lock(.exclusive, wait: false) {
      try recoverLocked(try ownDatabase())
    }
    _ = try lock(.shared, wait: true)
    let database = try database(isShared: true)
    if let state = current.withLock({ $0?.state?.value }), state.clean == nil,
      try !generations.isShared(state.generation)
    {
      return database
    }
    // No process writes, so the exclusive lock is soon free.
    _ = try lock(.exclusive, wait: true)
    let marked = try ownDatabase()
    try markWritten()
    return marked
  }

  /// Records in `state` that the generation is not clean, before the first write to it. `lock` is held exclusively.
  func markWritten() throws(BlobStorageError) {
    guard let now = current.withLock({ $0 }), let known = now.state?.value, known.clean != nil else { return }
    let written = CatalogState(
      generation: known.generation, mark: identity.mark, folder: generations.place,
      inode: try now.database.inode())
    let state: Generations.OpenState
    do throws(BlobStorageError) { state = try generations.writeState(written) } catch {
      guard error.code == .noSpace else { throw error }
      state = try generations.overwriteState(known, with: written)
    }
    setState(state, of: known.generation)
  }

  /// Returns `state` if a power cut cannot have torn its generation; else nil.
  ///
  /// A mark of this boot with other mounts may come from another container that shares the file system. Or the disk was
  /// removed meanwhile, and the catalog is torn. It is whole if a process that trusts it has it open.
  func trusted(
    _ state: Generations.OpenState, isAlone: Bool
  ) throws(BlobStorageError) -> Generations.OpenState? {
    var value = state.value
    if value.clean != nil || identity.trusts(value.mark) { return state }
    guard identity.isOfThisBoot(value.mark) else { return nil }
    if isUser.withLock({ $0 }) { return state }
    // Only processes that trust it hold `users`, and none can join while this one holds `lock`.
    guard isAlone, let usersFile else { return nil }
    if try usersFile.lock(.exclusive, wait: false) {
      try usersFile.unlock()
      return nil
    }
    value.mark = identity.mark(with: value.mark)
    return try generations.writeState(value)
  }
}

/// Commits that are published in the live table.
extension Catalog {
  /// Whether a change of these keys would only wait for another process. Then keeps it until it can begin.
  ///
  /// - Parameters:
  ///   - keys: nil for any.
  ///   - resume: called once, with an error if the change has waited for too long.
  package func isDeferred(
    _ keys: [[UInt8]]?, _ resume: @escaping @Sendable (BlobStorageError?) -> Void
  ) -> Bool {
    stripeTurns.isDeferred(LiveTable.stripes(keys), patienceSeconds: stripePatienceSeconds, resume)
  }

  /// Continues without a live table that was removed together with the catalog: other processes do not see it.
  func leaveRemovedTable() throws(BlobStorageError) {
    guard let table = live.table, try table.isRemoved() else { return }
    // No commit publishes in the table while it is left.
    try publishingTurns.withTurn(nil) { (_) throws(BlobStorageError) in
      guard live.table === table else { return }
      // Another catalog is in use by now: the next access looks for it.
      current.withLock { $0?.stateCount = nil }
      try settle()
      live.table = nil
      current.withLock { $0?.stateCount = nil }
    }
  }

  /// Whether commits are published in the live table.
  var hasTails: Bool { live.table != nil && current.withLock { $0?.state != nil } }
}

import CLMDB
import Logging
import Synchronization
import SystemPackage

/// The generations of a catalog, and the file `state`, which names the generation in use.
extension Catalog {
  func rebuildLocked() throws(BlobStorageError) {
    // They may take the room that this rebuild needs.
    removeLeftGenerations()
    do throws(BlobStorageError) { try removeGenerations(except: try makeGeneration()) } catch {
      removeLeftGenerations()
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
    let state = try writeState(
      CatalogState(generation: generation, mark: identity.mark, inode: try database.inode()))
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

  /// Removes all generations but one. `lock` is held exclusively.
  func removeGenerations(except kept: String?) throws(BlobStorageError) {
    for name in try files.list(folder) where name.hasPrefix("g") && name != kept {
      try removeGeneration(name)
    }
  }

  /// Removes the generations that killed or failed rebuilds and copies have left: `state` does not name them. `lock` is
  /// held exclusively.
  func removeLeftGenerations() {
    do throws(BlobStorageError) { try removeGenerations(except: try readState()?.value.generation) } catch {
      logger.debug("Old catalogs are not removed yet.", metadata: ["reason": "\(error.message)"])
    }
  }

  private func removeGeneration(_ name: String) throws(BlobStorageError) {
    var place = folder.entry(name)
    guard try files.status(of: place)?.kind == .directory else {
      try files.remove(place)
      return
    }
    if !name.hasSuffix(".old") {
      // Renamed first: another process that has read an older `state` may open the folder now, and LMDB would create
      // the files again.
      let old = folder.entry(name + ".old")
      try files.rename(place, to: old)
      place = old
    }
    do throws(BlobStorageError) {
      for file in try files.list(place) { try files.remove(place.entry(file)) }
      try files.removeDirectory(place)
    } catch {
      // The folder contains a foreign file and may stay. Other processes only check that `data.mdb` is gone.
      guard try files.status(of: place.entry("data.mdb")) == nil else { throw error }
      logger.warning("\(place) cannot be removed.", metadata: ["reason": "\(error.message)"])
    }
  }

  // MARK: The state file

  func readState() throws(BlobStorageError) -> OpenState? {
    let path = folder.entry("state")
    guard try files.status(of: path)?.kind == .regular, let file = try files.openIfThere(path, .read),
      let state = CatalogState(String(decoding: try file.bytesThere(at: 0, 2_048), as: UTF8.self))
    else { return nil }
    return OpenState(value: state, file: file)
  }

  /// Replaces `state` durably, before anything that depends on it is written. `lock` is held exclusively.
  func writeState(_ state: CatalogState) throws(BlobStorageError) -> OpenState {
    let table = live.table
    table?.beginNewCatalog()
    // Even on failure: the new file may already be in place.
    defer { table?.endNewCatalog() }
    let file = try files.replace(folder.entry("state"), with: Array(state.text.utf8))
    return OpenState(value: state, file: file)
  }

  /// Records in `state` that the generation is not clean, before the first write to it. `lock` is held exclusively.
  func markWritten() throws(BlobStorageError) {
    guard let now = current.withLock({ $0 }), let known = now.state?.value, known.clean != nil else { return }
    let written = CatalogState(
      generation: known.generation, mark: identity.mark, inode: try now.database.inode())
    let state: OpenState
    do throws(BlobStorageError) { state = try writeState(written) } catch {
      guard error.code == .noSpace else { throw error }
      state = try overwriteState(known, with: written)
    }
    current.withLock { $0?.state = state }
  }

  /// Overwrites `state` in place, which needs no space on a full disk. If a power cut tears it, it is invalid or still
  /// has the old checksum, which a changed catalog does not match.
  private func overwriteState(
    _ known: CatalogState, with state: CatalogState
  ) throws(BlobStorageError) -> OpenState {
    let file = try files.open(folder.entry("state"), .readWrite)
    do throws(BlobStorageError) {
      var bytes = Array(state.text.utf8)
      bytes += Array(repeating: UInt8(ascii: "\n"), count: max(0, known.text.utf8.count - bytes.count))
      try file.put(bytes, at: 0)
      try file.synchronize()
    } catch {
      file.close()
      throw error
    }
    return OpenState(value: state, file: file)
  }

  /// Returns `state` if a power cut cannot have torn its generation; else nil.
  ///
  /// A mark of this boot with other mounts may come from another container that shares the file system. Or the disk was
  /// removed meanwhile, and the catalog is torn. It is whole if a process that trusts it has it open.
  func trusted(_ state: OpenState, isAlone: Bool) throws(BlobStorageError) -> OpenState? {
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
    return try writeState(value)
  }

  /// Returns `state` if the database's file is the one that it describes; else nil.
  ///
  /// While processes write to the file, only its inode is compared. A clean file must match its checksum. It is not
  /// read again while its mark, inode, length and ctime show that nothing changed it in this boot.
  ///
  /// - Complexity: O(1) within a boot. Reads the whole file after another boot, for a copy, and after any change to it.
  func verified(_ state: OpenState, isAlone: Bool) throws(BlobStorageError) -> OpenState? {
    var value = state.value
    let path = databaseFile(value.generation)
    guard try files.status(of: path)?.kind == .regular, let file = try files.openIfThere(path, .read) else {
      return nil
    }
    defer { file.close() }
    let status = try file.status()
    guard let clean = value.clean else { return status.inode == value.inode ? state : nil }
    let isUntouched =
      identity.trusts(value.mark) && status.inode == value.inode && status.byteCount == clean.byteCount
      && status.changed == clean.changed
    // A change in the clock tick in which `state` was written would leave the same time.
    if isUntouched, clean.changed < (try state.file.status().changed) { return state }
    var found: CleanFile?
    do throws(BlobStorageError) {
      if status.byteCount == clean.byteCount { found = try CleanFile(file) }
    } catch {
      // LMDB reads through a map, where the same I/O error would end the process.
      guard error.code == .io else { throw error }
    }
    guard let found, found.byteCount == clean.byteCount, found.checksum == clean.checksum else {
      // Without `lock`, another process may have started to write meanwhile.
      if isAlone { logger.warning("The catalog's file does not match its checksum: it is rebuilt.") }
      return nil
    }
    guard isAlone, !isUntouched else { return state }
    value = CatalogState(
      generation: value.generation, mark: identity.mark(with: value.mark), inode: status.inode, clean: found)
    do throws(BlobStorageError) { return try writeState(value) } catch {
      logger.debug("The catalog will be read whole again.", metadata: ["reason": "\(error.message)"])
      return state
    }
  }

  /// The database's file of a generation.
  func databaseFile(_ generation: String) -> FilePath { folder.entry(generation).entry("data.mdb") }
}

/// Compacts the catalog's file. LMDB reuses free pages but never shortens the file, and rows inserted in random order
/// fill their pages to about 69 %. The last process to close the catalog copies it into full pages if that is worth it.
extension Catalog {
  /// Smaller files are not copied.
  private static let compactedByteCountMin: Int64 = 256 << 10

  /// Copies the catalog durably into a new generation with full pages and returns its name. Returns nil if no copy is
  /// needed or the copy fails: the generation in use is as good.
  func compacted(_ database: Database) -> String? {
    let generation = "g" + Hex.text(randomNumber())
    let place = folder.entry(generation)
    do throws(BlobStorageError) {
      let byteCount = try database.byteCount()
      guard byteCount >= Self.compactedByteCountMin,
        try database.hasChangedSinceCopy()
      else { return nil }
      try files.createPart(place)
      try files.open(place.entry("data.mdb"), .create).close()
      try database.copy(to: place)
      try SharedDatabases.open(place, for: self).storeCounts()
      let file = try files.open(place.entry("data.mdb"), .read)
      defer { file.close() }
      try file.synchronize()
      try files.syncDirectory(place)
      return generation
    } catch {
      logger.debug("The catalog was not made smaller.", metadata: ["reason": "\(error.message)"])
      do throws(BlobStorageError) { try removeGeneration(generation) } catch {
        // The next rebuild removes it.
      }
      return nil
    }
  }
}

extension Database {
  /// A file that grew by fewer pages is not copied: each change adds a few pages that later changes reuse.
  private static let addedPageCountMin: UInt64 = 64

  /// Whether the file has grown by a twenty-fifth, or lost a twenty-fifth of its rows, since it was last copied. A file
  /// that was never copied counts as grown from nothing. So a chunk without features and base takes at most 60 bytes.
  fileprivate func hasChangedSinceCopy() throws(BlobStorageError) -> Bool {
    try read { (transaction) throws(BlobStorageError) in
      let (pageCount, rowCount) = try counts(transaction)
      let (fullPageCount, fullRowCount) = (try transaction.meta(.fullPages), try transaction.meta(.fullRows))
      let addedPageCount = pageCount - min(pageCount, fullPageCount)
      return addedPageCount > max(Self.addedPageCountMin, fullPageCount / 25)
        || rowCount < fullRowCount - fullRowCount / 25
    }
  }

  /// Stores in a copy its numbers of pages and rows.
  fileprivate func storeCounts() throws(BlobStorageError) {
    try write { (transaction) throws(BlobStorageError) in
      let (pageCount, rowCount) = try counts(transaction)
      try transaction.setMeta(.fullPages, pageCount)
      try transaction.setMeta(.fullRows, rowCount)
    }
  }

  /// Pages of the file, and rows of all tables.
  private func counts(
    _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> (pages: UInt64, rows: UInt64) {
    var information = MDB_envinfo()
    try Self.check(mdb_env_info(handle, &information), "inspect")
    var rowCount = 0
    for table in Table.allCases { rowCount += try transaction.count(table) }
    return (UInt64(information.me_last_pgno), UInt64(rowCount))
  }

  /// Writes all rows in order to the empty file in `folder`, so that they fill their pages.
  func copy(to folder: FilePath) throws(BlobStorageError) {
    var target: OpaquePointer?
    try Self.check(mdb_env_create(&target), "copy")
    defer { mdb_env_close(target) }
    try Self.check(mdb_env_set_maxdbs(target, UInt32(Table.allCases.count)), "copy")
    try Self.check(mdb_env_set_mapsize(target, try sizes().map), "copy")
    try Self.check(mdb_env_open(target, folder.string, UInt32(MDB_NOSYNC | MDB_NOLOCK), 0o600), "copy")
    try read { (transaction) throws(BlobStorageError) in
      for table in Table.allCases {
        try transaction.withHandle(table) { (cursor) throws(BlobStorageError) in
          try Self.append(cursor, to: table, of: target)
        }
      }
    }
  }

  /// Rows that one transaction of a copy holds in memory.
  private static let rowCountOfCopy = 50_000

  /// Appends the rows of a cursor to an empty table.
  private static func append(
    _ cursor: OpaquePointer, to table: Table, of target: OpaquePointer?
  ) throws(BlobStorageError) {
    var (key, value) = (MDB_val(), MDB_val())
    var code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST)
    repeat {
      var transaction: OpaquePointer?
      try check(mdb_txn_begin(target, nil, 0, &transaction), "copy")
      var ended = false
      defer { if !ended { mdb_txn_abort(transaction) } }
      var number: MDB_dbi = 0
      try check(mdb_dbi_open(transaction, table.name, table.flags | UInt32(MDB_CREATE), &number), "copy")
      var copy: OpaquePointer?
      try check(mdb_cursor_open(transaction, number, &copy), "copy")
      defer { if !ended { mdb_cursor_close(copy) } }
      let flags = UInt32(table.packedKeyByteCount == nil ? MDB_APPEND : MDB_APPENDDUP)
      var count = 0
      while code != MDB_NOTFOUND, count < rowCountOfCopy {
        try check(code, "copy")
        try check(mdb_cursor_put(copy, &key, &value, flags), "copy")
        count += 1
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)
      }
      mdb_cursor_close(copy)
      ended = true
      try check(mdb_txn_commit(transaction), "copy")
    } while code != MDB_NOTFOUND
  }
}

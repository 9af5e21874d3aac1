import CLMDB
import Foundation
import Synchronization
import SystemPackage

/// One LMDB database file, opened once in this process. It is written without syncs, because it can be rebuilt.
///
/// Transactions run on any thread and hold a gate shared. Growing the map holds the gate exclusively, because LMDB may
/// move the map only while no transaction of the process is open. LMDB 0.9 manual, `mdb_env_set_mapsize`.
package final class Database: @unchecked Sendable {
  private static let count = Atomic<UInt64>(0)
  /// Unique among the databases of the process.
  let number = Database.count.add(1, ordering: .relaxed).newValue
  // Unchecked: the handle is only used under LMDB's own rules, which the gate keeps.
  let handle: OpaquePointer
  let tables: [MDB_dbi]
  private let gate = ReadWriteLock()
  /// False once the system had no room for a larger map: LMDB has none then. The gate guards it.
  private var isMapped = true
  /// Ended read transactions, kept for reuse without an allocation.
  private let spareReaders = Mutex<[Spare]>([])
  private let dataFile: any File
  private let readerTable: ReaderTable
  let pageByteCount: Int
  /// Nil for a private database.
  private let place: SharedDatabases.Place?
  private let folder: FilePath
  private let files: any FileSystem
  package let clock: WallClock
  /// The algorithm of all digests in the database.
  let algorithm: BlobDigest.Algorithm

  private let knownOuterRows = Mutex<(any OuterRows)?>(nil)
  private let hasOuterRows = Atomic<Bool>(false)

  /// Rows that the database lacks; nil in most catalogs.
  var outerRows: (any OuterRows)? {
    hasOuterRows.load(ordering: .acquiring) ? knownOuterRows.withLock { $0 } : nil
  }

  func setOuterRows(_ rows: any OuterRows) {
    knownOuterRows.withLock { $0 = rows }
    hasOuterRows.store(true, ordering: .releasing)
  }

  private struct Spare: @unchecked Sendable { let transaction: OpaquePointer }

  /// Opens or creates the database in `folder`, which exists.
  ///
  /// - Throws: `catalogDamaged` if the file cannot be used.
  fileprivate init(
    folder: FilePath, place: SharedDatabases.Place?, files: any FileSystem, for catalog: Catalog
  ) throws(BlobStorageError) {
    self.place = place
    self.folder = folder
    self.files = files
    clock = catalog.clock
    algorithm = catalog.store.digestAlgorithm
    readerTable = try ReaderTable(Self.allocatedLock(folder.entry("lock.mdb"), files))
    var handle: OpaquePointer?
    try Database.check(mdb_env_create(&handle), "create")
    guard let handle else { throw Self.failure(Self.outOfMemory, "create") }
    var opened = false
    defer { if !opened { mdb_env_close(handle) } }
    try Database.check(mdb_env_set_maxdbs(handle, UInt32(Table.allCases.count)), "set up")
    try Database.check(mdb_env_set_maxreaders(handle, 1_022), "set up")
    try Database.check(mdb_env_set_mapsize(handle, catalog.mapByteCount), "set up")
    // No syncs: after a power cut the catalog is rebuilt. No thread-local readers: pool threads share transactions.
    let flags = UInt32(MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD)
    try Self.openEnvironment(handle, folder, files, flags, "open")
    dataFile = try files.open(folder.entry("data.mdb"), .read)
    try Database.checkOpened(handle, dataFile, files)
    var information = MDB_envinfo()
    var statistics = MDB_stat()
    try Database.check(mdb_env_info(handle, &information), "inspect")
    try Database.check(mdb_env_stat(handle, &statistics), "inspect")
    pageByteCount = Int(statistics.ms_psize)
    // A page beyond the end of the file would be a SIGBUS, not an error.
    guard Int64(information.me_last_pgno + 1) * Int64(pageByteCount) <= (try dataFile.status()).byteCount
    else {
      throw BlobStorageError(.catalogDamaged, "The catalog's file is shorter than it says.")
    }
    var dead: Int32 = 0
    mdb_reader_check(handle, &dead)
    try Self.lockProcessID(handle)
    try readerTable.takeOver(processID: Int64(getpid()))
    do { tables = try Database.openTables(handle) } catch {
      throw Self.explained(error, folder, files, pageByteCount: pageByteCount)
    }
    self.handle = handle
    opened = true
  }

  /// Creates an empty database without a name, which disappears with this object.
  static func temporary(for catalog: Catalog) throws(BlobStorageError) -> Database {
    let files = SystemFiles()
    let folder = FilePath(FileManager.default.temporaryDirectory.path)
      .appending("blobstorage-" + Hex.text(randomUInt64()))
    try files.createDirectory(folder)
    defer {
      do throws(BlobStorageError) {
        for name in try files.list(folder) { try files.remove(folder.entry(name)) }
        try files.removeDirectory(folder)
      } catch {
        // Empty files of a temporary folder may stay.
      }
    }
    return try Database(folder: folder, place: nil, files: files, for: catalog)
  }

  deinit {
    for spare in spareReaders.withLock({ $0 }) { mdb_txn_abort(spare.transaction) }
    mdb_env_close(handle)
    dataFile.close()
    // Before another thread may open the database again, which needs the same locks.
    readerTable.close()
    if let place { SharedDatabases.closed(place, number) }
  }

  /// Has LMDB open its files.
  private static func openEnvironment(
    _ handle: OpaquePointer?, _ folder: FilePath, _ files: any FileSystem, _ flags: UInt32, _ tried: String
  ) throws(BlobStorageError) {
    let code = try files.withSystemPath(folder) { path in
      keepingStandardDescriptors { mdb_env_open(handle, path, flags, 0o600) }
    }
    guard code != outOfMemory else { throw lacksAddressSpace }
    try check(code, tried)
    // LMDB leaves this one file to the programs that the process starts.
    var descriptor: Int32 = -1
    try check(mdb_env_get_fd(handle, &descriptor), tried)
    closeOnExec(descriptor)
  }

  /// Begins and ends a read: with its first one, LMDB takes the lock of the process ID for good.
  private static func lockProcessID(_ handle: OpaquePointer) throws(BlobStorageError) {
    var transaction: OpaquePointer?
    let code = mdb_txn_begin(handle, nil, UInt32(MDB_RDONLY), &transaction)
    // Another process has grown the database. LMDB notices that after it has taken the lock.
    if code == MDB_MAP_RESIZED { return }
    try check(code, "begin")
    mdb_txn_abort(transaction)
  }

  /// - Throws: an error if LMDB, which opens its file by a path, has opened another one.
  private static func checkOpened(
    _ handle: OpaquePointer, _ file: any File, _ files: any FileSystem
  ) throws(BlobStorageError) {
    var descriptor: mdb_filehandle_t = -1
    try check(mdb_env_get_fd(handle, &descriptor), "inspect")
    var raw = stat()
    if fstat(descriptor, &raw) == 0, UInt64(raw.st_ino) == (try file.status()).inode { return }
    try files.anchor?.check()
    throw BlobStorageError(.busy, "The catalog was replaced while it was opened: try again.")
  }

  /// Allocates LMDB's table of readers before it is mapped. On a full disk, touching a page of it that was never
  /// written would end the process. Another process that opens the database now does the same.
  private static func allocatedLock(
    _ path: FilePath, _ files: any FileSystem
  ) throws(BlobStorageError) -> any File {
    let status = try files.status(of: path)
    guard status == nil || status?.kind == .regular else {
      throw BlobStorageError(.catalogDamaged, "The catalog's table of readers is not a file.")
    }
    let file = try files.open(path, .openOrCreate)
    // LMDB takes as many readers as fit. An existing length stays, because other processes have the file mapped.
    let known = status?.byteCount ?? 0
    if known > 0, let status, status.allocatedByteCount >= known { return file }
    try file.allocate(byteCount: known > 0 ? known : 68 << 10)
    return file
  }

  /// Opens the tables. Only an empty database needs a write transaction, which waits for other writers.
  private static func openTables(_ handle: OpaquePointer) throws(BlobStorageError) -> [MDB_dbi] {
    var information = MDB_envinfo()
    try check(mdb_env_info(handle, &information), "inspect")
    let isEmpty = information.me_last_txnid == 0
    var transaction: OpaquePointer?
    var code = mdb_txn_begin(handle, nil, isEmpty ? 0 : UInt32(MDB_RDONLY), &transaction)
    while code == MDB_MAP_RESIZED {
      // Another process has grown the database since it was opened here.
      try check(mdb_env_set_mapsize(handle, 0), "grow")
      code = mdb_txn_begin(handle, nil, isEmpty ? 0 : UInt32(MDB_RDONLY), &transaction)
    }
    try check(code, "begin")
    var committed = false
    defer { if !committed { mdb_txn_abort(transaction) } }
    var tables: [MDB_dbi] = []
    for table in Table.allCases {
      var number: MDB_dbi = 0
      let code = mdb_dbi_open(
        transaction, table.name, isEmpty ? table.flags | UInt32(MDB_CREATE) : 0, &number)
      if code == MDB_NOTFOUND {
        throw BlobStorageError(.catalogDamaged, "The catalog lacks the table \(table).")
      }
      try check(code, "open a table of")
      tables.append(number)
    }
    committed = true
    try check(mdb_txn_commit(transaction), "commit to")
    return tables
  }

  /// Whether a rebuilt catalog has replaced the file, which has lost its name.
  ///
  /// - Parameter files: those of the caller, because several share this object.
  package func isSuperseded(_ files: any FileSystem) throws(BlobStorageError) -> Bool {
    try !files.names(dataFile.path, dataFile)
  }

  /// The inode of the database's file.
  func inode() throws(BlobStorageError) -> UInt64 { try dataFile.status().inode }

  fileprivate func isNameless(_ files: any FileSystem) -> Bool { (try? isSuperseded(files)) ?? false }

  /// Allocated bytes of the database's file.
  package func byteCount() throws(BlobStorageError) -> Int64 { try dataFile.status().allocatedByteCount }

  /// Whether a reader would get the snapshot with this number now. Only inside of ``read(_:)``.
  ///
  /// Not what LMDB's pages say: a writer that was stopped in the middle of a commit has written those already.
  func isNewest(_ snapshot: Int) throws(BlobStorageError) -> Bool {
    // The next reader adopts a map that another process has grown: no snapshot may be open then.
    guard let reader = try beginReader(adoptsMap: false) else { return false }
    defer { endReader(reader) }
    return mdb_txn_id(reader) == snapshot
  }

  /// Forces everything to the medium.
  package func synchronize() throws(BlobStorageError) { try dataFile.synchronize() }

  /// Runs `body` on a snapshot. Never waits for writers.
  package func read<T>(_ body: (ReadTransaction) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T
  {
    gate.lockShared()
    defer { gate.unlockShared() }
    guard let reader = try beginReader() else { throw Self.failure(Self.outOfMemory, "read") }
    defer { endReader(reader) }
    return try body(ReadTransaction(reader, of: self))
  }

  /// The row of a pack; nil if the catalog does not know the pack.
  func packRow(_ name: PackName) throws(BlobStorageError) -> PackRow? {
    try read { (transaction) throws(BlobStorageError) in try transaction.pack(name)?.row }
  }

  /// Runs `body` as the one write transaction of all processes, and commits what it did unless it throws. Runs it again
  /// for as long as its changes do not fit into the map, which grows each time.
  ///
  /// - Parameter undo: called before `body` runs again, so that it does not find what it has done elsewhere.
  package func write<T>(
    _ body: (WriteTransaction) throws(BlobStorageError) -> T, undo: (BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> T {
    for _ in 0..<16 {
      try growIfNeeded()
      do throws(BlobStorageError) { return try writeInGate(body) } catch {
        guard error.code == .mapFull else { throw error }
        undo(error)
        try grow(beyond: 0)
      }
    }
    throw BlobStorageError(.io, "A change of the catalog is too large: change less at once.")
  }

  private func writeInGate<T>(
    _ body: (WriteTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    gate.lockShared()
    defer { gate.unlockShared() }
    guard let transaction = try begun(0) else { throw Self.failure(Self.outOfMemory, "begin") }
    var ended = false
    defer { if !ended { mdb_txn_abort(transaction) } }
    do throws(BlobStorageError) {
      let result = try body(WriteTransaction(transaction, of: self))
      ended = true
      try Self.check(mdb_txn_commit(transaction), "commit to")
      return result
    } catch { throw Self.explained(error, folder, files, pageByteCount: pageByteCount) }
  }

  /// LMDB writes up to this many pages at once, and reports an I/O error if the disk has room for only some of them.
  private static let pageCountOfWrite = 64

  /// Returns `noSpace` if a full file system cut a write short; else the error itself. LMDB 0.9, `mdb_page_flush`.
  private static func explained(
    _ error: BlobStorageError, _ folder: FilePath, _ files: any FileSystem, pageByteCount: Int
  ) -> BlobStorageError {
    // An error with a path comes from a file, not from LMDB.
    guard error.errno == Errno.ioError.rawValue, error.path == nil else { return error }
    do throws(BlobStorageError) {
      // The folder of a private catalog, or of one that was replaced, is gone.
      guard try files.availableByteCount(at: folder.folder) < Int64(pageCountOfWrite * pageByteCount) else {
        return error
      }
    } catch { return error }
    return failure(Errno.noSpace.rawValue, "write to")
  }

  /// Frees the reader slots of dead processes, so that they keep no pages alive.
  package func clearDeadReaders() {
    var count: Int32 = 0
    mdb_reader_check(handle, &count)
  }

  private func beginReader(adoptsMap: Bool = true) throws(BlobStorageError) -> OpaquePointer? {
    if let spare = spareReaders.withLock({ $0.popLast() }) {
      if mdb_txn_renew(spare.transaction) == MDB_SUCCESS { return spare.transaction }
      mdb_txn_abort(spare.transaction)
    }
    return try begun(UInt32(MDB_RDONLY), adoptsMap: adoptsMap)
  }

  /// Begins a transaction; nil if another process has grown the map and `adoptsMap` is false. The gate is held shared.
  private func begun(_ flags: UInt32, adoptsMap: Bool = true) throws(BlobStorageError) -> OpaquePointer? {
    var transaction: OpaquePointer?
    while true {
      try checkMap()
      let code = mdb_txn_begin(handle, nil, flags, &transaction)
      guard code == MDB_MAP_RESIZED else {
        try Self.check(code, "begin")
        return transaction
      }
      guard adoptsMap else { return nil }
      // Another process has grown the map. Resizing needs the gate alone.
      gate.unlockShared()
      defer { gate.lockShared() }
      try resize { _ in 0 }
    }
  }

  private func endReader(_ transaction: OpaquePointer) {
    mdb_txn_reset(transaction)
    let kept = spareReaders.withLock { spares in
      guard spares.count < 16 else { return false }
      spares.append(Spare(transaction: transaction))
      return true
    }
    if !kept { mdb_txn_abort(transaction) }
  }

  /// Grows the map unless a quarter of it, and at least 64 pages, are free for the next transaction.
  private func growIfNeeded() throws(BlobStorageError) {
    var (used, mapByteCount) = try sizes()
    if used > mapByteCount {
      // Another process has grown it.
      try resize { _ in 0 }
      (used, mapByteCount) = try sizes()
    }
    if used + max(mapByteCount / 4, 64 * pageByteCount) > mapByteCount { try grow(beyond: used) }
  }

  /// The bytes of the map that the newest snapshot uses, and all bytes of the map.
  func sizes() throws(BlobStorageError) -> (used: Int, map: Int) {
    // LMDB looks at the map, which another thread may move meanwhile.
    gate.lockShared()
    defer { gate.unlockShared() }
    try checkMap()
    var information = MDB_envinfo()
    try Self.check(mdb_env_info(handle, &information), "inspect")
    return (Int(information.me_last_pgno + 1) * pageByteCount, Int(information.me_mapsize))
  }

  private func grow(beyond used: Int) throws(BlobStorageError) { try resize { max(used, $0) * 2 } }

  /// Sets the length of the map to what `byteCount` returns for its current length. 0 adopts that of other processes.
  private func resize(_ byteCount: (Int) -> Int) throws(BlobStorageError) {
    gate.lock()
    defer { gate.unlock() }
    try checkMap()
    dropSpareReaders()
    var information = MDB_envinfo()
    try Self.check(mdb_env_info(handle, &information), "inspect")
    let code = mdb_env_set_mapsize(handle, byteCount(Int(information.me_mapsize)))
    // LMDB has removed the old map before it asks for the new one.
    isMapped = code == MDB_SUCCESS
    try Self.check(code, "grow")
  }

  private func checkMap() throws(BlobStorageError) {
    if !isMapped { throw Self.lacksAddressSpace }
  }

  private static let lacksAddressSpace = BlobStorageError(
    .io,
    "The catalog needs more address space than this process has: raise its limit, and open the store again.")

  private func dropSpareReaders() {
    for spare in spareReaders.withLock({ spares in
      defer { spares = [] }; return spares
    }) {
      mdb_txn_abort(spare.transaction)
    }
  }

  static let outOfMemory = Errno.noMemory.rawValue

  static func check(_ code: Int32, _ tried: String) throws(BlobStorageError) {
    guard code == MDB_SUCCESS else { throw failure(code, tried) }
  }

  static func failure(_ code: Int32, _ tried: String) -> BlobStorageError {
    if code == Errno.resourceTemporarilyUnavailable.rawValue {
      // LMDB's readers lock the byte of their process ID.
      return BlobStorageError(
        .busy,
        "A program in another container has the same process ID and uses the store: let the containers share IDs.",
        errno: code)
    }
    let reason = String(cString: mdb_strerror(code))
    let kind: BlobStorageError.Code =
      switch code {
      case MDB_INVALID, MDB_CORRUPTED, MDB_PAGE_NOTFOUND, MDB_PANIC, MDB_VERSION_MISMATCH, MDB_INCOMPATIBLE,
        MDB_BAD_DBI, MDB_BAD_VALSIZE, MDB_CURSOR_FULL:
        .catalogDamaged
      case MDB_READERS_FULL: .busy
      case MDB_MAP_FULL: .mapFull
      case Errno.noSpace.rawValue, Errno.diskQuotaExceeded.rawValue: .noSpace
      case Errno.permissionDenied.rawValue, Errno.notPermitted.rawValue: .permissionDenied
      case Errno.readOnlyFileSystem.rawValue: .readOnly
      default: .io
      }
    return BlobStorageError(kind, "Cannot \(tried) the catalog: \(reason).", errno: code > 0 ? code : nil)
  }
}

/// The databases that this process has open: LMDB must not open one twice.
enum SharedDatabases {
  private struct Weak: Sendable {
    weak var database: Database?
    let number: UInt64
  }
  /// A database stays here until it has been closed.
  private static let known = IOLock<[Place: Weak]>([:])

  /// Identifies a folder, whatever its path.
  struct Place: Hashable, Sendable {
    let device: UInt64
    let inode: UInt64
  }

  /// Returns the database in `folder`, which exists. All callers in this process share it.
  static func open(_ folder: FilePath, for catalog: Catalog) throws(BlobStorageError) -> Database {
    guard let status = try catalog.files.status(of: folder) else {
      throw BlobStorageError(
        .catalogDamaged, "The catalog's folder is not there.", errno: Errno.noSuchFileOrDirectory.rawValue)
    }
    let place = Place(device: status.device, inode: status.inode)
    while true {
      // Kept beyond the lock: the end of a database takes it.
      var kept: Database?
      defer { withExtendedLifetime(kept) {} }
      let database = try known.withLock { (known) throws(BlobStorageError) -> Database? in
        if let entry = known[place] {
          kept = entry.database
          // An entry without a database is being closed on another thread.
          // The folder may have the inode of a removed one whose database is still open here.
          if !(kept?.isNameless(catalog.files) ?? false) { return kept }
        }
        let database = try Database(folder: folder, place: place, files: catalog.files, for: catalog)
        known[place] = Weak(database: database, number: database.number)
        return database
      }
      if let database { return database }
      Thread.sleep(forTimeInterval: 0.000_2)
    }
  }

  fileprivate static func closed(_ place: Place, _ number: UInt64) {
    // By its number: to look at another database here could end that one, too.
    known.withLock { if $0[place]?.number == number { $0[place] = nil } }
  }
}

/// Relies on outer rows, and copies a database into full pages.
extension Database {
  /// The key under which a catalog stores the root of its outer rows.
  static let outerRowsKey = Array("index".utf8)

  /// Stores the root of outer rows, runs `body` in the same transaction, and then relies on the rows.
  package func adopt<T>(
    _ rows: any OuterRows, _ body: (WriteTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let result = try write { (transaction) throws(BlobStorageError) in
      try transaction.put(.meta, Self.outerRowsKey, rows.root)
      return try body(transaction)
    }
    setOuterRows(rows)
    return result
  }

  /// A file that grew by fewer pages is not copied: each change adds a few pages that later changes reuse.
  private static let addedPageCountMin: UInt64 = 64

  /// Whether the file has grown by a twenty-fifth, or lost a twenty-fifth of its rows, since it was last copied. A file
  /// that was never copied counts as grown from nothing. So a chunk without features and base takes at most 60 bytes.
  func hasChangedSinceCopy() throws(BlobStorageError) -> Bool {
    try read { (transaction) throws(BlobStorageError) in
      let (pageCount, rowCount) = try counts(transaction)
      let (fullPageCount, fullRowCount) = (try transaction.meta(.fullPages), try transaction.meta(.fullRows))
      let addedPageCount = pageCount - min(pageCount, fullPageCount)
      return addedPageCount > max(Self.addedPageCountMin, fullPageCount / 25)
        || rowCount < fullRowCount - fullRowCount / 25
    }
  }

  /// Stores in a copy its numbers of pages and rows.
  func storeCounts() throws(BlobStorageError) {
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
    try Self.openEnvironment(target, folder, files, UInt32(MDB_NOSYNC | MDB_NOLOCK), "copy")
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

import CLMDB
import Foundation
import Synchronization
import SystemPackage

/// One LMDB database file, opened once in this process, without syncs: it is derived and can be made again.
///
/// Transactions on it run on any thread. Readers share a gate that growing the map holds alone, because LMDB may
/// move the map only while no transaction of the process is open. LMDB 0.9 manual, `mdb_env_set_mapsize`.
package final class Environment: @unchecked Sendable {
  // Unchecked: the handle is only used under LMDB's own rules, which the gate keeps.
  let handle: OpaquePointer
  let tables: [MDB_dbi]
  private let gate = ReadWriteLock()
  /// Ended read transactions that can be begun again without an allocation.
  private let spareReaders = Mutex<[Spare]>([])
  private let dataFile: any File
  let pageByteCount: Int
  private let place: SharedEnvironments.Place
  private let clock: WallClock

  private struct Spare: @unchecked Sendable { let transaction: OpaquePointer }

  /// Opens or creates the database in `folder`, which exists.
  ///
  /// - Parameter mapByteCount: how large the map is at first; it grows by itself.
  /// - Throws: `catalogDamaged` when the file is not one that can be used.
  fileprivate init(
    folder: FilePath, place: SharedEnvironments.Place, files: any FileSystem, mapByteCount: Int,
    clock: WallClock
  ) throws(BlobStorageError) {
    self.place = place
    self.clock = clock
    var handle: OpaquePointer?
    try Environment.check(mdb_env_create(&handle), "create")
    guard let handle else { throw Self.failure(Self.outOfMemory, "create") }
    var opened = false
    defer { if !opened { mdb_env_close(handle) } }
    try Environment.check(mdb_env_set_maxdbs(handle, UInt32(Table.allCases.count)), "set up")
    try Environment.check(mdb_env_set_maxreaders(handle, 1_022), "set up")
    try Environment.check(mdb_env_set_mapsize(handle, mapByteCount), "set up")
    if try files.status(of: folder.appending("data.mdb"))?.kind == .regular {
      let file = try files.open(folder.appending("data.mdb"), .read)
      defer { file.close() }
      try CatalogInspection.check(file)
    }
    try Self.allocateLock(folder.appending("lock.mdb"), files)
    // No syncs: power cuts are answered by rebuilding. No thread-local readers: pool threads share transactions.
    let flags = UInt32(MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD)
    try Environment.check(mdb_env_open(handle, folder.string, flags, 0o600), "open")
    dataFile = try files.open(folder.appending("data.mdb"), .read)
    var information = MDB_envinfo()
    var statistics = MDB_stat()
    try Environment.check(mdb_env_info(handle, &information), "inspect")
    try Environment.check(mdb_env_stat(handle, &statistics), "inspect")
    pageByteCount = Int(statistics.ms_psize)
    // A page beyond the end of the file would be a SIGBUS, not an error.
    guard Int64(information.me_last_pgno + 1) * Int64(pageByteCount) <= (try dataFile.status()).byteCount
    else {
      throw BlobStorageError(.catalogDamaged, "The catalog's file is shorter than it says.")
    }
    var dead: Int32 = 0
    mdb_reader_check(handle, &dead)
    tables = try Environment.openTables(handle)
    self.handle = handle
    opened = true
  }

  deinit {
    for spare in spareReaders.withLock({ $0 }) { mdb_txn_abort(spare.transaction) }
    mdb_env_close(handle)
    dataFile.close()
    SharedEnvironments.closed(place)
  }

  /// Makes room for LMDB's table of readers before it is mapped: on a full disk, touching a page of it that was never
  /// written would end the process. Nobody else opens the environment meanwhile.
  private static func allocateLock(_ path: FilePath, _ files: any FileSystem) throws(BlobStorageError) {
    let status = try files.status(of: path)
    guard status == nil || status?.kind == .regular else {
      throw BlobStorageError(.catalogDamaged, "The catalog's table of readers is not a file.")
    }
    let file = try files.open(path, .openOrCreate)
    defer { file.close() }
    // LMDB takes as many readers as fit; the length is not changed under those that have it mapped.
    let byteCount = max(status?.byteCount ?? 0, 68 << 10)
    if let status, status.byteCount > 0, status.allocatedByteCount >= status.byteCount { return }
    try file.allocate(byteCount: status.map { $0.byteCount > 0 ? $0.byteCount : byteCount } ?? byteCount)
  }

  private static func openTables(_ handle: OpaquePointer) throws(BlobStorageError) -> [MDB_dbi] {
    var transaction: OpaquePointer?
    try check(mdb_txn_begin(handle, nil, 0, &transaction), "begin")
    var committed = false
    defer { if !committed { mdb_txn_abort(transaction) } }
    var tables: [MDB_dbi] = []
    for table in Table.allCases {
      var number: MDB_dbi = 0
      try check(mdb_dbi_open(transaction, table.name, UInt32(MDB_CREATE), &number), "open a table of")
      tables.append(number)
    }
    committed = true
    try check(mdb_txn_commit(transaction), "commit to")
    return tables
  }

  /// Whether the file was put out of use: a rebuilt catalog has taken its place.
  package func isSuperseded() throws(BlobStorageError) -> Bool { try dataFile.status().linkCount == 0 }

  /// Bytes of the database's file.
  package func byteCount() throws(BlobStorageError) -> Int64 { try dataFile.status().allocatedByteCount }

  /// Forces everything to the medium.
  package func synchronize() throws(BlobStorageError) { try Self.check(mdb_env_sync(handle, 1), "sync") }

  /// Runs `body` on a snapshot. Never waits for writers.
  package func read<T>(_ body: (Transaction) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    gate.lockShared()
    defer { gate.unlockShared() }
    let reader = try beginReader()
    defer { endReader(reader) }
    return try body(Transaction(handle: reader, tables: tables, wallClock: clock))
  }

  /// Runs `body` as the one write transaction of all processes, and commits what it did unless it throws.
  package func write<T>(_ body: (Transaction) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try growIfNeeded()
    gate.lockShared()
    defer { gate.unlockShared() }
    var transaction: OpaquePointer?
    try Self.check(mdb_txn_begin(handle, nil, 0, &transaction), "begin")
    guard let transaction else { throw Self.failure(Self.outOfMemory, "begin") }
    var ended = false
    defer { if !ended { mdb_txn_abort(transaction) } }
    let result = try body(Transaction(handle: transaction, tables: tables, wallClock: clock))
    ended = true
    try Self.check(mdb_txn_commit(transaction), "commit to")
    return result
  }

  /// Clears the places of readers whose process died, so that they keep no pages alive.
  package func clearDeadReaders() {
    var count: Int32 = 0
    mdb_reader_check(handle, &count)
  }

  private func beginReader() throws(BlobStorageError) -> OpaquePointer {
    if let spare = spareReaders.withLock({ $0.popLast() }) {
      if mdb_txn_renew(spare.transaction) == MDB_SUCCESS { return spare.transaction }
      mdb_txn_abort(spare.transaction)
    }
    var transaction: OpaquePointer?
    var code = mdb_txn_begin(handle, nil, UInt32(MDB_RDONLY), &transaction)
    if code == MDB_MAP_RESIZED {
      // Another process has grown the map: take its size. Done alone, so the gate is let go in between.
      gate.unlockShared()
      defer { gate.lockShared() }
      try adoptMapSize()
      code = mdb_txn_begin(handle, nil, UInt32(MDB_RDONLY), &transaction)
    }
    try Self.check(code, "read")
    guard let transaction else { throw Self.failure(Self.outOfMemory, "read") }
    return transaction
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

  /// Leaves a quarter of the map, and never less than 64 pages, free for the next transaction.
  private func growIfNeeded() throws(BlobStorageError) {
    var information = MDB_envinfo()
    try Self.check(mdb_env_info(handle, &information), "inspect")
    let used = Int(information.me_last_pgno + 1) * pageByteCount
    if used > information.me_mapsize {
      try adoptMapSize()
    }
    let spare = max(Int(information.me_mapsize) / 4, 64 * pageByteCount)
    guard used + spare > information.me_mapsize else { return }
    gate.lock()
    defer { gate.unlock() }
    dropSpareReaders()
    try Self.check(mdb_env_set_mapsize(handle, max(used, Int(information.me_mapsize)) * 2), "grow")
  }

  private func adoptMapSize() throws(BlobStorageError) {
    gate.lock()
    defer { gate.unlock() }
    dropSpareReaders()
    try Self.check(mdb_env_set_mapsize(handle, 0), "grow")
  }

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
    let reason = String(cString: mdb_strerror(code))
    let kind: BlobStorageError.Code =
      switch code {
      case MDB_INVALID, MDB_CORRUPTED, MDB_PAGE_NOTFOUND, MDB_PANIC, MDB_VERSION_MISMATCH, MDB_INCOMPATIBLE,
        MDB_BAD_DBI, MDB_BAD_VALSIZE, MDB_CURSOR_FULL:
        .catalogDamaged
      case MDB_READERS_FULL: .busy
      case Errno.noSpace.rawValue: .noSpace
      case Errno.permissionDenied.rawValue, Errno.notPermitted.rawValue: .permissionDenied
      case Errno.readOnlyFileSystem.rawValue: .readOnly
      default: .io
      }
    return BlobStorageError(kind, "Cannot \(tried) the catalog: \(reason).", errno: code > 0 ? code : nil)
  }
}

/// The environments that this process has open: LMDB must not open one twice.
enum SharedEnvironments {
  private struct Weak: Sendable { weak var environment: Environment? }
  /// An environment stays here until it has been closed.
  private static let known = Mutex<[Place: Weak]>([:])

  /// Which folder it is, by whatever path.
  struct Place: Hashable, Sendable {
    let device: UInt64
    let inode: UInt64
  }

  /// The environment in `folder`, which exists, shared by all of this process that ask for it.
  static func open(
    _ folder: FilePath, files: any FileSystem, mapByteCount: Int, clock: WallClock
  ) throws(BlobStorageError) -> Environment {
    guard let status = try files.status(of: folder) else {
      throw BlobStorageError(.catalogDamaged, "The catalog's folder is not there.")
    }
    let place = Place(device: status.device, inode: status.inode)
    while true {
      let result: Result<Environment?, BlobStorageError> = known.withLock { known in
        // An entry without an environment is being closed on another thread.
        if let entry = known[place] { return .success(entry.environment) }
        do throws(BlobStorageError) {
          let environment = try Environment(
            folder: folder, place: place, files: files, mapByteCount: mapByteCount, clock: clock)
          known[place] = Weak(environment: environment)
          return .success(environment)
        } catch { return .failure(error) }
      }
      if let environment = try result.get() { return environment }
      Thread.sleep(forTimeInterval: 0.000_2)
    }
  }

  fileprivate static func closed(_ place: Place) {
    known.withLock { $0[place] = nil }
  }
}

extension BlobStorageError.Code {
  /// The catalog is not usable; it is rebuilt from the packs. Never leaves the library.
  package static let catalogDamaged = Self("catalogDamaged")
}

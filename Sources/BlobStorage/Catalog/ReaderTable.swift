import SystemPackage

/// LMDB's file `lock.mdb`, in which the processes that use a database have a lock each.
///
/// LMDB takes locks of the process (`F_SETLK`), and the system drops all of them once any descriptor of the file is
/// closed in the process: by a backup that reads the store's folder, for example. Another process then takes the file
/// for unused and initialises it again, under those that have it mapped. So this object repeats the locks on an open
/// file of its own, where nothing but its own close ends them. LMDB 0.9 source, `mdb_env_setup_locks` and
/// `mdb_reader_pid`:
///
/// | byte | LMDB's lock |
/// |---|---|
/// | 0 | shared while the database is open; who gets it alone initialises the file |
/// | process ID | held while the process is alive: otherwise others free its readers' slots |
struct ReaderTable: Sendable {
  /// Nil where a test stands between the store and the system, and on systems where it was not tried whether both kinds
  /// of locks respect each other.
  private let file: SystemFile?
  /// Far behind LMDB's bytes. Who opens the database holds it, so that no process opens it between LMDB's locks and
  /// those of this object.
  private static let opening: Range<Int64> = 1 << 40..<1 << 40 + 1

  /// Waits until no other process is opening the database, or for a second: one that is stopped meanwhile does not close
  /// the file either.
  init(_ file: any File) throws(BlobStorageError) {
    #if os(Linux)
      self.file = file as? SystemFile
      _ = try self.file?.lock(bytes: Self.opening, withinSeconds: 1)
    #else
      self.file = nil
    #endif
  }

  /// Repeats LMDB's locks, and lets other processes open the database. Call it when LMDB has both locks, and no slot of
  /// the table belongs to this process.
  ///
  /// - Throws: `busy` if another process has the same process ID.
  func takeOver(processID: Int64) throws(BlobStorageError) {
    guard let file else { return }
    guard try file.share(bytes: 0..<1) else {
      throw BlobStorageError(
        .busy, "\(file.path) is locked by a program that does not belong to this store: end it.",
        path: file.path.string)
    }
    let own = processID..<processID + 1
    // LMDB asks for this lock once only.
    try file.endProcessLock(bytes: own)
    guard try file.lock(bytes: own, wait: false) else {
      throw Database.failure(Errno.resourceTemporarilyUnavailable.rawValue, "read")
    }
    try file.unlock(bytes: Self.opening)
  }

  /// Ends the locks. LMDB has closed the file.
  func close() { file?.close() }
}

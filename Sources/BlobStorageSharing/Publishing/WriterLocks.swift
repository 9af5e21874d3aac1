import BlobStorage
import SystemPackage

/// Locks one file for each registered writer of this state folder, so that other processes detect dead writers.
///
/// The next opening ends the registrations of dead writers, so that no collector waits for them.
///
/// The file names the boot in which the writer lived. After a power cut, the medium may have the writer's last records
/// without earlier ones.
struct WriterLocks: Sendable {
  let folder: FilePath
  let files: any FileSystem
  let bootIdentity: String

  /// Creates and locks the file of a writer that is about to register. Closing it releases the lock.
  func make(_ writer: UInt64) throws(BlobStorageError) -> any File {
    try owned.create(Hex.text(writer)) { (file) throws(BlobStorageError) in
      try file.put(Array(bootIdentity.utf8), at: 0)
    }
  }

  /// Whether the machine has not restarted since the writer began; false if unknown.
  func isOfThisBoot(_ writer: UInt64) throws(BlobStorageError) -> Bool {
    guard let file = try files.openIfThere(path(writer), .read) else { return false }
    defer { file.close() }
    let identity = Array(bootIdentity.utf8)
    if identity.isEmpty { return false }
    return try file.bytesThere(at: 0, identity.count + 1) == identity
  }

  /// Calls `body` unless the writer lives. Meanwhile no other process takes the writer for dead.
  ///
  /// A writer without a file has ended, or a power cut lost the file.
  ///
  /// - Returns: false if the writer lives.
  func ifDead(_ writer: UInt64, _ body: () throws(BlobStorageError) -> Void) throws(BlobStorageError) -> Bool
  {
    var isDone: Bool?
    try owned.visit(Hex.text(writer)) { (_, isDead) throws(BlobStorageError) in
      isDone = isDead
      if isDead { try body() }
    }
    if isDone == nil { try body() }
    return isDone ?? true
  }

  func remove(_ writer: UInt64) {
    // A file that stays costs only a lookup of a registration.
    files.discard(path(writer))
  }

  /// Calls `body` with each dead writer. No other process handles the same writer at the same time.
  func forEachDead(_ body: (UInt64) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    for name in try files.list(folder) {
      guard let writer = Hex.integer(UInt64.self, name.prefix(16)) else { continue }
      try owned.visit(name) { (_, isDead) throws(BlobStorageError) in
        guard isDead else { return }
        // A longer name is temporary: its writer never registered.
        if name.count > 16 { files.discard(folder.entry(name)) } else { try body(writer) }
      }
    }
  }

  private var owned: OwnedFiles { OwnedFiles(folder: folder, files: files) }
  private func path(_ writer: UInt64) -> FilePath { folder.entry(Hex.text(writer)) }
}

import SystemPackage

/// Files of a folder, each locked for as long as the process lives that created it. A free lock proves that the owner
/// is dead.
struct OwnedFiles: Sendable {
  let folder: FilePath
  let files: any FileSystem

  private static let attemptCount = 8

  /// Creates a file that is locked, and complete, before it gets its name. It belongs to this process until it is
  /// closed.
  ///
  /// - Parameter name: a name that no file has. Until it is renamed, the file's name ends with `.new` instead.
  func create(
    _ name: String, _ write: (any File) throws(BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> any File {
    let stem = name.prefix { $0 != "." }
    var attempt = 1
    while true {
      let temporary = folder.appending(stem + (attempt == 1 ? ".new" : "-\(attempt).new"))
      let file = try files.open(temporary, .create)
      do throws(BlobStorageError) {
        // A scan that found the file before it was locked may hold it, and may be stopped: use another name.
        guard try file.lock(.exclusive, wait: false) else {
          throw BlobStorageError(
            .io, "\(temporary) is held by another process.", errno: Errno.noSuchFileOrDirectory.rawValue)
        }
        try write(file)
        try files.rename(temporary, to: folder.appending(name))
        return file
      } catch {
        file.close()
        guard error.isMissingName, attempt < Self.attemptCount else {
          // The next scan removes what stays.
          files.discard(temporary)
          throw error
        }
        // A scan came before the lock, took the file for a dead process's, and removed it.
        attempt += 1
      }
    }
  }

  /// Calls `body` with a file and whether its owner is dead. Does nothing if the file lost its name.
  ///
  /// - Parameter intent: to write, if no other process may find the owner dead meanwhile.
  func visit(
    _ name: String, _ intent: OpenIntent = .readWrite,
    _ body: (_ file: any File, _ isDead: Bool) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let path = folder.appending(name)
    guard let file = try files.openIfThere(path, intent) else { return }
    defer { file.close() }
    let isDead = try file.lock(intent == .read ? .shared : .exclusive, wait: false)
    // Another scan may have come before, or its owner has given it another name and ended.
    if isDead { guard try file.status().linkCount > 0, try files.status(of: path) != nil else { return } }
    try body(file, isDead)
  }
}

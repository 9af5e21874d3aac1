import SystemPackage

/// Which writers of this state folder are registered: a file each, named by the number and locked for as long as its
/// process lives. So whoever opens the folder next can end the registrations of the dead, and no collector waits for
/// them.
///
/// A file says in which start of the machine its writer lived: of one that a power cut has ended, what it wrote last may
/// be on the medium without what it wrote before.
struct MemberMarks: Sendable {
  let folder: FilePath
  let files: any FileSystem
  let bootIdentity: String

  /// Marks a writer that is about to register, until the file is closed.
  func make(_ writer: UInt64) throws(BlobStorageError) -> any File {
    let temporary = folder.appending(Hex.text(writer) + ".new")
    var attempt = 0
    while true {
      attempt += 1
      let file = try files.open(temporary, .create)
      do throws(BlobStorageError) {
        // The name appears only once the lock is held: a number that can be alive is never taken for a dead one's.
        _ = try file.lock(.exclusive, wait: true)
        try file.put(Array(bootIdentity.utf8), at: 0)
        try files.rename(temporary, to: path(writer))
        return file
      } catch {
        file.close()
        // Somebody who looked before the lock has removed it.
        if error.errno == Errno.noSuchFileOrDirectory.rawValue, attempt < 8 { continue }
        throw error
      }
    }
  }

  /// Whether the machine has been on ever since that writer began: false also where nobody can tell.
  func isOfThisBoot(_ writer: UInt64) throws(BlobStorageError) -> Bool {
    let file: any File
    do { file = try files.open(path(writer), .read) } catch {
      guard error.errno == Errno.noSuchFileOrDirectory.rawValue else { throw error }
      return false
    }
    defer { file.close() }
    let identity = Array(bootIdentity.utf8)
    if identity.isEmpty { return false }
    return try file.bytesThere(at: 0, identity.count + 1) == identity
  }

  func remove(_ writer: UInt64) {
    do throws(BlobStorageError) { try files.remove(path(writer)) } catch {
      // What stays says that a registration may be there that is not.
    }
  }

  /// Calls `body` with each writer whose process is dead, while nobody else does.
  func forEachDead(_ body: (UInt64) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    for name in try files.list(folder) {
      guard let writer = Hex.integer(UInt64.self, name.prefix(16)) else { continue }
      let file: any File
      do { file = try files.open(folder.appending(name), .readWrite) } catch {
        guard error.errno == Errno.noSuchFileOrDirectory.rawValue else { throw error }
        continue
      }
      defer { file.close() }
      guard try file.lock(.exclusive, wait: false), try file.status().linkCount > 0 else { continue }
      if name.count > 16 {
        // It never came to register.
        do throws(BlobStorageError) { try files.remove(folder.appending(name)) } catch {}
      } else {
        try body(writer)
      }
    }
  }

  private func path(_ writer: UInt64) -> FilePath { folder.appending(Hex.text(writer)) }
}

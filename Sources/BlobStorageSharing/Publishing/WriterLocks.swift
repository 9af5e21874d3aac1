import BlobStorage
import SystemPackage

/// The registered writers of this state folder: one file each, named by the writer's number and locked while its process
/// lives. The next opening ends the registrations of dead writers, so that no collector waits for them.
///
/// A file names the boot in which its writer lived. After a power cut the writer's last records may be on the medium
/// without earlier ones.
struct WriterLocks: Sendable {
  let folder: FilePath
  let files: any FileSystem
  let bootIdentity: String

  /// Marks a writer that is about to register, until the file is closed.
  func make(_ writer: UInt64) throws(BlobStorageError) -> any File {
    try owned.create(Hex.text(writer)) { (file) throws(BlobStorageError) in
      try file.put(Array(bootIdentity.utf8), at: 0)
    }
  }

  /// Whether the machine has been on ever since that writer began: false also if that is unknown.
  func isOfThisBoot(_ writer: UInt64) throws(BlobStorageError) -> Bool {
    guard let file = try files.openIfThere(path(writer), .read) else { return false }
    defer { file.close() }
    let identity = Array(bootIdentity.utf8)
    if identity.isEmpty { return false }
    return try file.bytesThere(at: 0, identity.count + 1) == identity
  }

  func remove(_ writer: UInt64) {
    // What stays says that a registration may be there that is not.
    files.discard(path(writer))
  }

  /// Calls `body` with each writer whose process is dead, while no other process does.
  func forEachDead(_ body: (UInt64) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    for name in try files.list(folder) {
      guard let writer = Hex.integer(UInt64.self, name.prefix(16)) else { continue }
      try owned.visit(name) { (_, isDead) throws(BlobStorageError) in
        guard isDead else { return }
        // With a longer name it never came to register.
        if name.count > 16 { files.discard(folder.appending(name)) } else { try body(writer) }
      }
    }
  }

  private var owned: OwnedFiles { OwnedFiles(folder: folder, files: files) }
  private func path(_ writer: UInt64) -> FilePath { folder.appending(Hex.text(writer)) }
}

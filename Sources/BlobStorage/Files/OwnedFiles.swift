import Foundation
import SystemPackage

/// Files of a folder that are each locked for as long as the process lives that made them: a lock that can be taken is
/// the proof of death.
package struct OwnedFiles: Sendable {
  private let folder: FilePath
  private let files: any FileSystem

  private static let attemptCount = 64
  /// Scans that follow each other without a pause must not come before the lock every time.
  private static let pauseSecondsMax = 0.01

  package init(folder: FilePath, files: any FileSystem) {
    self.folder = folder
    self.files = files
  }

  /// Makes a file that is locked, and has what `write` writes, before it has its name. It belongs to this process until
  /// it is closed.
  ///
  /// - Parameter name: one that no file has. Until it has it, the file's name ends with `.new` instead.
  package func create(
    _ name: String, _ write: (any File) throws(BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> any File {
    let stem = name.prefix { $0 != "." }
    var attempt = 1
    while true {
      let temporary = folder.entry(stem + (attempt == 1 ? ".new" : "-\(attempt).new"))
      let file = try files.open(temporary, .create)
      do throws(BlobStorageError) {
        // A scan that found the file before it was locked may hold it, and may be stopped: use another name.
        guard try file.lock(.exclusive, wait: false) else {
          throw BlobStorageError(
            .io, "\(temporary) is held by another process.", errno: Errno.noSuchFileOrDirectory.rawValue)
        }
        try write(file)
        try files.rename(temporary, to: folder.entry(name))
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
        if attempt > 4 { Thread.sleep(forTimeInterval: .random(in: 0...Self.pauseSecondsMax)) }
      }
    }
  }

  /// Calls `body` with a file and whether its owner is dead. Does nothing if the file lost its name.
  ///
  /// - Parameter intent: to write, if no other process may find the owner dead meanwhile.
  package func visit(
    _ name: String, _ intent: OpenIntent = .readWrite,
    _ body: (_ file: any File, _ isDead: Bool) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let path = folder.entry(name)
    guard let file = try files.openIfThere(path, intent) else { return }
    defer { file.close() }
    let isDead = try file.lock(intent == .read ? .shared : .exclusive, wait: false)
    // Another scan may have come before, or its owner has given it another name and ended.
    if isDead { guard try file.status().linkCount > 0, try files.status(of: path) != nil else { return } }
    try body(file, isDead)
  }
}

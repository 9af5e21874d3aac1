import Foundation
import SystemPackage

/// Files of a folder that their process locks while it lives. A process that can take a file's lock knows that the
/// owner is dead.
package struct OwnedFiles: Sendable {
  private let folder: FilePath
  private let files: any FileSystem

  private static let attemptCount = 64
  /// The longest pause between attempts, so that back-to-back scans do not beat the lock every time.
  private static let pauseSecondsMax = 0.01

  package init(folder: FilePath, files: any FileSystem) {
    self.folder = folder
    self.files = files
  }

  /// Creates a file, locks it, calls `write`, and only then gives it its name. This process owns the file until it
  /// closes it.
  ///
  /// - Parameter name: an unused name. Until the rename, the file has a name with the ending `.new`.
  package func create(
    _ name: String, _ write: (any File) throws(BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> any File {
    let stem = name.prefix { $0 != "." }
    var attempt = 1
    while true {
      let temporary = folder.entry(stem + (attempt == 1 ? ".new" : "-\(attempt).new"))
      let file = try files.open(temporary, .create)
      do throws(BlobStorageError) {
        // A scan that opened the file before it was locked may hold the lock, and may be suspended: use another name.
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
          // If it stays, the next scan removes it.
          files.discard(temporary)
          throw error
        }
        // A scan came before the lock, took the owner for dead, and removed the file.
        attempt += 1
        if attempt > 4 { Thread.sleep(forTimeInterval: .random(in: 0...Self.pauseSecondsMax)) }
      }
    }
  }

  /// Calls `body` with a file and whether its owner is dead. Does nothing if the file lost its name, or if something
  /// else than a file has the name.
  ///
  /// - Parameter intent: `.read` lets other processes find the owner dead at the same time. Other intents lock
  ///   exclusively.
  package func visit(
    _ name: String, _ intent: OpenIntent = .readWrite,
    _ body: (_ file: any File, _ isDead: Bool) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let path = folder.entry(name)
    guard let file = try files.openIfRegular(path, intent) else { return }
    defer { file.close() }
    let isDead = try file.lock(intent == .read ? .shared : .exclusive, wait: false)
    // Another scan may have removed it, or its owner may have renamed it and ended.
    if isDead { guard try files.names(path, file) else { return } }
    try body(file, isDead)
  }
}

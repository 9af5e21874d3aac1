import BlobStorage
import Foundation
import SystemPackage

/// A lock between processes, in a file beside the store's own. It ends with its holder.
struct FolderLock {
  private let file: any File

  /// Waits until no other process holds the lock with that name.
  init(_ name: String, in folder: URL) throws(BlobStorageError) {
    file = try SystemFiles().open(FilePath(folder.appendingPathComponent(name).path), .openOrCreate)
    do throws(BlobStorageError) { _ = try file.lock(.exclusive, wait: true) } catch {
      file.close()
      throw error
    }
  }

  func release() { file.close() }
}

import BlobStorage
import Foundation

/// Finds the place of the store in an original's folder.
///
/// It is `.blobstore`, unless the original has used that very name for a file or a key. Then it is `.blobstore-2` and
/// so on. A store stays the store, whatever is added to it later.
enum StoreLocation {
  private static let name = ".blobstore"
  /// The entries of a store while it is being created.
  private static let namesAtFirst: Set<String> = [
    ".init.lock", "store.new", "store", "packs", "catalog", "leases",
  ]

  static func of(_ folder: URL) -> URL {
    var candidate = folder.appendingPathComponent(name, isDirectory: true)
    var number = 2
    while !BlobStore.exists(at: candidate.path), isOriginal(candidate) {
      candidate = folder.appendingPathComponent("\(name)-\(number)", isDirectory: true)
      number += 1
    }
    return candidate
  }

  private static func isOriginal(_ url: URL) -> Bool {
    var isDirectory: ObjCBool = false
    guard FileManager.default.fileExists(atPath: url.path, isDirectory: &isDirectory) else { return false }
    guard isDirectory.boolValue else { return true }
    // A folder that cannot be listed does not count as a key's folder: opening the store reports the error.
    let names = (try? FileManager.default.contentsOfDirectory(atPath: url.path)) ?? []
    // Another process may have made the store since the caller looked.
    return !namesAtFirst.isSuperset(of: names) && !BlobStore.exists(at: url.path)
  }
}

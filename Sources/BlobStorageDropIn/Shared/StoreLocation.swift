import BlobStorage
import Foundation

/// Where in an original's folder the store lies.
///
/// It is `.blobstore`, unless the original has used that very name: for a file, or for a key. Then it is
/// `.blobstore-2` and so on. What is a store stays the store, whatever comes to lie in it later.
enum StoreLocation {
  private static let name = ".blobstore"
  /// What lies in a store while it is being made.
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
    // A folder that cannot be listed is no key's folder that could be read: opening the store will say why.
    let names = (try? FileManager.default.contentsOfDirectory(atPath: url.path)) ?? []
    // Another process may have made the store since the caller looked.
    return !namesAtFirst.isSuperset(of: names) && !BlobStore.exists(at: url.path)
  }
}

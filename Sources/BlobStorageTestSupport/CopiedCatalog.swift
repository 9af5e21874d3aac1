import BlobStorage
import Foundation
import SystemPackage

/// A copy of a catalog that replaces the original: what a killed process left, in a folder that a test may damage.
package enum CopiedCatalog {
  /// Makes the `state` in a catalog's folder name that folder and the copied database's file, and the live table itself, as they named
  /// the originals.
  ///
  /// A store does not trust a copy of a catalog that a process was writing to. Does nothing to a clean catalog, which
  /// has a checksum, and nothing where there is none.
  package static func adopt(_ folder: String) throws {
    try LiveWords(in: FilePath(folder)).adopt()
    let path = folder + "/state"
    guard let text = try? String(contentsOfFile: path, encoding: .utf8), var state = CatalogState(text),
      state.clean == nil,
      let status = try SystemFiles().status(of: FilePath("\(folder)/\(state.generation)/data.mdb")),
      let place = try SystemFiles().status(of: FilePath(folder))
    else { return }
    state.folder = place.inode
    state.inode = status.inode
    try Data(state.text.utf8).write(to: URL(fileURLWithPath: path))
  }

  /// The lock that writers of a catalog share; nil before a process has opened the catalog.
  package static func lock(in folder: FilePath) throws -> FilePath? {
    guard let place = try SystemFiles().status(of: folder)?.inode else { return nil }
    let path = folder.appending("locks-" + Hex.text(place)).appending("lock")
    return try SystemFiles().status(of: path) == nil ? nil : path
  }
}

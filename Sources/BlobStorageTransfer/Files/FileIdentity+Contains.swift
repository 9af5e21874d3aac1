import BlobStorage
import SystemPackage

extension FileIdentity {
  /// Whether the path leads to this folder or below it. The path need not exist.
  ///
  /// The search ends at a parent folder that cannot be read.
  package func contains(_ path: FilePath) -> Bool {
    let files = SystemFiles()
    func identity(_ path: FilePath) -> FileIdentity? {
      do throws(BlobStorageError) { return try files.status(of: path)?.identity } catch { return nil }
    }
    if identity(path) == self { return true }
    // Only a folder has an entry `.`; for anything else, the search begins at its folder.
    var path = path
    while identity(path.appending(".")) == nil, path.removeLastComponent() {}
    var folder = path.appending(".")
    var last: FileIdentity?
    while let found = identity(folder), found != last {
      if found == self { return true }
      last = found
      folder.append("..")
    }
    return false
  }
}

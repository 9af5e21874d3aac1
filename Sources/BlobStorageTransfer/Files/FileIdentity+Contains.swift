import BlobStorage
import SystemPackage

extension FileIdentity {
  /// Whether the path leads to this folder, or to a folder or file below it, which need not exist.
  ///
  /// A folder on the way up that cannot be looked at ends the search.
  package func contains(_ path: FilePath) -> Bool {
    let files = SystemFiles()
    func identity(_ path: FilePath) -> FileIdentity? {
      do throws(BlobStorageError) { return try files.status(of: path)?.identity } catch { return nil }
    }
    if identity(path) == self { return true }
    // Only a folder has a name `.`; the folder of a file is the one before its name.
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

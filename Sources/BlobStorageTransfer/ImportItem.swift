import BlobStorage

/// An item that an import finds below its paths.
enum ImportItem: Sendable {
  case source(ImportSource)
  case folder(ImportedFolder)
}

/// A folder below the paths, or the only path itself.
struct ImportedFolder: Sendable {
  /// The path that messages name.
  var path: String
  /// The prefix and the path; that of the root is the prefix, all others end in '/'.
  var key: String
  var mark: FileMark
}

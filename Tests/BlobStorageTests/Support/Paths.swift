import BlobStorage
import BlobStorageTransfer

extension OutputFile {
  init(in folder: OutputFolder, relativePath: String) throws(BlobStorageError) {
    var trail = FolderTrail()
    try self.init(in: folder, relativePath: Array(relativePath.utf8), through: &trail)
  }
}

extension InputFolder {
  func open(_ relativePath: String) throws(BlobStorageError) -> InputFile {
    var trail = FolderTrail()
    return try open(Array(relativePath.utf8), through: &trail)
  }
}

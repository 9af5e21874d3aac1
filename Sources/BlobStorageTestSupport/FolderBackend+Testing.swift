import BlobStorage
import BlobStorageSharing
import SystemPackage

extension FolderBackend {
  /// A backend for the packs in `folder`, without a census there.
  package init(folder: FilePath, asideFolder: FilePath, files: any FileSystem) {
    self.init(folder: folder, asideFolder: asideFolder, files: files, census: PublishedCensus())
  }
}

import BlobStorage
import BlobStorageSharing
import SystemPackage

extension FolderBackend {
  /// Packs in `folder` of which no census is kept.
  package init(folder: FilePath, asideFolder: FilePath, files: any FileSystem) {
    self.init(folder: folder, asideFolder: asideFolder, files: files, census: PublishedCensus())
  }
}

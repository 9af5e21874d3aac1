import BlobStorage
import Foundation

/// What an original has left in a folder, taken into the store once and left as it is.
struct OldData {
  /// One file that becomes one version.
  struct Item {
    let key: String
    let file: URL
    /// Its name, which the version remembers: an import that was interrupted goes on after it.
    var name: String { file.lastPathComponent }
  }

  let library: Library
  let folder: URL
  let store: BlockingBlobStore

  /// Imports, unless that was done before; two processes that come at once do it one after the other.
  ///
  /// - Durability: the marker that says it is done is written when everything is on the medium.
  func importOnce() throws(BlobStorageError) {
    let marker = library.importMarker()
    let location = URL(fileURLWithPath: store.store.information.path, isDirectory: true)
    guard library != .documents, try store.data(forKey: marker) == nil else { return }
    let lock = try FolderLock("drop-in-import.lock", in: location)
    defer { lock.release() }
    guard try store.data(forKey: marker) == nil else { return }
    let items =
      library == .archive ? ArchivedFiles.items(in: folder, except: location) : PlainFiles.items(in: folder)
    if !items.isEmpty {
      // Its end forces everything to the medium at once.
      let session = try BlockingBlobStore.open(at: location.path)
      do throws(BlobStorageError) { try put(items, into: session) } catch {
        try? session.close()
        throw error
      }
      try session.close()
    }
    try store.put(marker, .data(Data()))
  }

  private func put(_ items: [Item], into session: BlockingBlobStore) throws(BlobStorageError) {
    for item in items where FileManager.default.isReadableFile(atPath: item.file.path) {
      let key = library.storeKey(item.key)
      guard key.utf8.count <= Limits.keyByteCountMax else { continue }
      let isThere = try session.versions(of: key).contains { $0.metadata == Array(item.name.utf8) }
      guard !isThere else { continue }
      let options = PutOptions(
        durability: .relaxed, replacement: .archiveCurrent, metadata: Array(item.name.utf8))
      try session.put(key, .file(item.file.path), options: options)
    }
  }
}

/// A file's place in time and kind, as far as the import wants to know it.
struct FoundFile {
  let url: URL
  let modified: Date
  let isFolder: Bool
  let isRegular: Bool

  /// What a folder holds; nothing for a folder that cannot be listed. Links are not followed.
  static func list(_ folder: URL) -> [FoundFile] {
    let manager = FileManager.default
    let names = (try? manager.contentsOfDirectory(atPath: folder.path)) ?? []
    return names.sorted().compactMap { name in
      let url = folder.appendingPathComponent(name)
      guard let attributes = try? manager.attributesOfItem(atPath: url.path) else { return nil }
      let kind = attributes[.type] as? FileAttributeType
      return FoundFile(
        url: url, modified: attributes[.modificationDate] as? Date ?? .distantPast,
        isFolder: kind == .typeDirectory, isRegular: kind == .typeRegular)
    }
  }
}

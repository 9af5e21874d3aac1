import BlobStorage
import Foundation
import Synchronization
import SystemPackage

/// The document of one type: in the store, or before its import in the original's file.
struct Document {
  let fileName: String
  let file: URL
  private let store: DropInStore

  init(fileName: String, file: URL) {
    self.fileName = fileName
    self.file = file
    store = Self.keptStore(UserFolders.documents)
  }

  private var key: String { Library.documents.storeKey(fileName) }
  /// Its presence marks a deleted document: then the original's file must be ignored.
  private var marker: String { Library.documents.importMarker(fileName) }

  /// The bytes of the document; nil when there is none.
  func read() throws -> Data? {
    if let data = try stored() { return data }
    guard let old = try oldFile(), try !isDeleted() else { return nil }
    return try locked { document in
      // Another thread or process may have imported or deleted it meanwhile.
      if let data = try document.stored() { return data }
      if try document.isDeleted() { return nil }
      let data = try Data(contentsOf: old)
      try document.write(data)
      return data
    }
  }

  /// The original's file, here or where the original keeps it on this platform; nil if there is none.
  ///
  /// - Throws: if that cannot be determined: a document that may exist must not be overwritten.
  private func oldFile() throws -> URL? {
    let others = UserFolders.otherDocuments.map { [$0.appendingPathComponent(file.lastPathComponent)] } ?? []
    for candidate in [file] + others {
      if try SystemFiles().status(of: FilePath(candidate.path)) != nil { return candidate }
    }
    return nil
  }

  /// The bytes of the document.
  ///
  /// - Throws: if there is no document, the error of the original for a missing file.
  func existing() throws -> Data {
    guard let data = try read() else {
      throw CocoaError(.fileReadNoSuchFile, userInfo: [NSFilePathErrorKey: file.path])
    }
    return data
  }

  /// Replaces the document.
  func write(_ data: Data) throws {
    try store.perform(.documents) { (store) throws(BlobStorageError) in
      _ = try store.put(.data(data), forKey: key)
      self.store.space.put(data.count)
    }
  }

  /// Removes the document. An interrupted removal leaves the document, never the original's file in its place.
  func delete() throws {
    try locked { document in
      try store.perform(.documents) { (store) throws(BlobStorageError) in
        let versions = try store.versions(of: key)
        _ = try store.put(.data(Data()), forKey: marker)
        _ = try store.delete(key)
        self.store.space.dropped(versions)
      }
    }
  }

  /// Runs `body` while no other thread or process changes a document of the folder.
  ///
  /// Reentrant: an encoder can save documents of other types.
  func locked<T>(_ body: (Document) throws -> T) throws -> T {
    let store = try store.opened(for: .documents)
    Self.gate.lock()
    defer { Self.gate.unlock() }
    Self.depth += 1
    defer { Self.depth -= 1 }
    guard Self.depth == 1 else { return try body(self) }
    let lock = try FolderLock("drop-in-documents.lock", in: store.folder)
    defer { lock.release() }
    return try body(self)
  }

  private func stored() throws -> Data? {
    try store.perform(.documents) { (store) throws(BlobStorageError) in try store.data(forKey: key) }
  }

  private func isDeleted() throws -> Bool {
    try store.perform(.documents) { (store) throws(BlobStorageError) in try store.data(forKey: marker) != nil
    }
  }

  /// One lock for all types: with one each, two savers that save each other's type could deadlock.
  private static let gate = NSRecursiveLock()
  /// How often this thread holds the lock, which guards it.
  nonisolated(unsafe) private static var depth = 0

  /// Keeps the store of the folder used last open: no instance holds it.
  private static func keptStore(_ folder: URL) -> DropInStore {
    let store = DropInStore.of(folder)
    kept.withLock { $0 = store }
    return store
  }

  private static let kept = Mutex<DropInStore?>(nil)
}

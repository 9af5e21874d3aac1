import BlobStorage
import Foundation
import Synchronization

/// The document of one type: in the store, and until it was taken in, in the original's file.
struct Document {
  let fileName: String
  let file: URL
  private let store: SharedStore

  init(fileName: String, file: URL) {
    self.fileName = fileName
    self.file = file
    store = Self.keptStore(UserFolders.documents)
  }

  private var key: String { Library.documents.storeKey(fileName) }
  /// Present once the original's file must not be looked at any more.
  private var marker: PutItem { PutItem(key: Library.documents.importMarker(fileName), data: Data()) }

  /// The bytes of the document; nil when there is none.
  func read() throws -> Data? {
    let (data, isImported) = try store.perform(.documents) { (store) throws(BlobStorageError) in
      // In this order: whoever writes the marker has written the document before.
      let isImported = try store.data(forKey: marker.key) != nil
      return (try store.data(forKey: key), isImported)
    }
    if data != nil || isImported || !FileManager.default.fileExists(atPath: file.path) { return data }
    return try locked { document in try document.takeIn() }
  }

  /// The bytes of the document.
  ///
  /// - Throws: what the original's reading of a missing file throws, when there is none.
  func existing() throws -> Data {
    guard let data = try read() else {
      throw CocoaError(.fileReadNoSuchFile, userInfo: [NSFilePathErrorKey: file.path])
    }
    return data
  }

  /// Replaces the document.
  func write(_ data: Data) throws {
    try store.perform(.documents) { (store) throws(BlobStorageError) in
      _ = try store.put([PutItem(key: key, data: data), marker])
    }
  }

  /// Removes the document. Interrupted, it leaves the document, never the original's file in its place.
  func delete() throws {
    try locked { document in
      if try document.read() == nil { return }
      try store.perform(.documents) { (store) throws(BlobStorageError) in _ = try store.delete(key) }
    }
  }

  /// Runs `body` while nobody else, in whichever process, changes a document of the folder.
  ///
  /// It may be called again from inside: an encoder can save documents of other types.
  func locked<T>(_ body: (Document) throws -> T) throws -> T {
    let store = try store.opened(for: .documents).store
    Self.gate.lock()
    defer { Self.gate.unlock() }
    guard Self.depth.withLock({ depth in defer { depth += 1 }; return depth }) == 0 else {
      defer { Self.depth.withLock { $0 -= 1 } }
      return try body(self)
    }
    defer { Self.depth.withLock { $0 -= 1 } }
    let folder = URL(fileURLWithPath: store.information.path, isDirectory: true)
    let lock = try FolderLock("drop-in-documents.lock", in: folder)
    defer { lock.release() }
    return try body(self)
  }

  /// Takes the original's file in, unless another has done it meanwhile.
  private func takeIn() throws -> Data? {
    let isThere = try store.perform(.documents) { (store) throws(BlobStorageError) in
      try store.data(forKey: marker.key) != nil
    }
    if isThere {
      return try store.perform(.documents) { (store) throws(BlobStorageError) in try store.data(forKey: key) }
    }
    let data = try Data(contentsOf: file)
    try write(data)
    return data
  }

  /// One lock for all types: with one each, two savers that save each other's type could wait for ever.
  private static let gate = NSRecursiveLock()
  private static let depth = Mutex(0)

  /// The store of the folder used last stays open: there is no instance that would hold it.
  private static func keptStore(_ folder: URL) -> SharedStore {
    let store = SharedStore.of(folder)
    kept.withLock { $0 = store }
    return store
  }

  private static let kept = Mutex<SharedStore?>(nil)
}

import BlobStorage
import Foundation
import Synchronization

/// The store of one folder, shared by everything in this process that uses the folder.
///
/// Nothing is touched before the first operation; then the store is opened, or created, and what the original
/// has left in the folder is taken in. When the last user is gone, the store is closed.
final class SharedStore: Sendable {
  /// The original's folder.
  let folder: URL
  /// Order for operations on one key, across all instances on the folder.
  let lanes = Lanes()

  private struct State {
    var store: BlockingBlobStore?
    var imported: Set<Library> = []
  }

  private let state = Mutex(State())

  private init(_ folder: URL) { self.folder = folder }

  deinit {
    guard let store = state.withLock({ $0.store }) else { return }
    // Closing waits for the medium, and the last user may be on the main thread. A store that is not closed
    // in time has lost nothing.
    DispatchQueue.global(qos: .utility).async { try? store.close() }
  }

  private struct Weak { weak var store: SharedStore? }
  private static let known = Mutex<[String: Weak]>([:])

  /// The store of that folder. No I/O.
  static func of(_ folder: URL) -> SharedStore {
    let path = folder.standardized.path
    return known.withLock { known in
      if let store = known[path]?.store { return store }
      known = known.filter { $0.value.store != nil }
      let store = SharedStore(URL(fileURLWithPath: path, isDirectory: true))
      known[path] = Weak(store: store)
      return store
    }
  }

  /// The store, opened, with the library's old data in it.
  func opened(for library: Library) throws(BlobStorageError) -> BlockingBlobStore {
    try state.withLock { (state) throws(BlobStorageError) in
      let store: BlockingBlobStore
      if let open = state.store { store = open } else { store = try openOrCreate() }
      state.store = store
      if !state.imported.contains(library) {
        try OldData(library: library, folder: folder, store: store).importOnce()
        state.imported.insert(library)
      }
      return store
    }
  }

  /// Runs `body` on the opened store. A store that cannot go on is opened anew for the next operation.
  func perform<T>(
    _ library: Library, _ body: (BlockingBlobStore) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let store = try opened(for: library)
    do throws(BlobStorageError) { return try body(store) } catch {
      if error.code == .poisoned || error.code == .closed { forget(store) }
      throw error
    }
  }

  private func forget(_ store: BlockingBlobStore) {
    state.withLock { if $0.store?.store === store.store { $0.store = nil } }
  }

  private func openOrCreate() throws(BlobStorageError) -> BlockingBlobStore {
    do { try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true) } catch {
      throw BlobStorageError(
        .io, "The folder \(folder.path) cannot be made: \(error.localizedDescription)", path: folder.path)
    }
    // One path for one folder, however it was reached: the catalog must not be opened twice in a process.
    let path = StoreLocation.of(folder.resolvingSymlinksInPath()).path
    while true {
      do throws(BlobStorageError) { return try .open(at: path) } catch {
        guard error.code == .noStore else { throw error }
      }
      do throws(BlobStorageError) { return try .create(at: path) } catch {
        // Another process was faster.
        guard error.code == .storeExists else { throw error }
      }
    }
  }
}

/// Who has data in a store: each has keys of its own, so that libraries can share a folder.
enum Library: String, Sendable, Hashable {
  case archive = "a"
  case data = "d"
  case documents = "p"

  /// What the store's keys of this library begin with.
  var prefix: String { rawValue + "/" }

  /// The store's key for a key of the library.
  func storeKey(_ key: String) -> String { prefix + key }

  /// The library's key for one of the store's. By bytes: a key may begin with a letter's accent.
  func key(ofStoreKey storeKey: String) -> String {
    String(decoding: storeKey.utf8.dropFirst(prefix.utf8.count), as: UTF8.self)
  }

  /// The store's key whose presence says that old data, or one old document, has been taken in.
  func importMarker(_ name: String = "") -> String { "m/" + prefix + name }
}

extension BlockingBlobStore {
  /// All keys of a library, in byte order.
  func keys(of library: Library) throws(BlobStorageError) -> [String] {
    let pageCount = 1_000
    var result: [String] = []
    var last: String?
    while true {
      let page = try keys(prefix: library.prefix, after: last, limit: pageCount)
      result.append(contentsOf: page.map { library.key(ofStoreKey: $0.key) })
      if page.count < pageCount { return result }
      last = page.last?.key
    }
  }
}

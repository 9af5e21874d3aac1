import BlobStorage
import Foundation
import Synchronization

/// The store of one folder, shared by everything in this process that uses the folder.
///
/// Nothing is touched before the first operation; then the store is opened, or created, and what the original
/// has left in the folder is taken in. When the last user is gone, the store is closed.
final class DropInStore: Sendable {
  /// The original's folder.
  let folder: URL
  /// Order for operations on one key, across all instances on the folder.
  let lanes = Lanes()
  /// Gives disk space back by itself.
  let space: SpaceKeeper
  /// Where the original would have put the folder, if that is elsewhere.
  private let other: URL?
  /// What tests put in place of the system.
  private let environment = StoreEnvironment.current

  private struct State {
    var store: BlockingBlobStore?
    /// What has been taken in, and which keys of it could not be.
    var leftOut: [Library: [Left]] = [:]
  }

  /// Keys that could not be imported from one folder.
  private struct Left {
    var folder: URL
    /// Distinguishes the folder in the store's marker.
    var name: String
    var keys: [String]
  }

  private let state = Mutex(State())

  private init(_ folder: URL, other: URL?) {
    self.folder = folder
    self.other = other.flatMap { $0.standardized.path.utf8.elementsEqual(folder.path.utf8) ? nil : $0 }
    space = SpaceKeeper()
  }

  deinit {
    guard let store = state.withLock({ $0.store }) else { return }
    let space = space
    // Closing waits for the medium, and the last user may be on the main thread. A store that is not closed
    // in time has lost nothing.
    DispatchQueue.global(qos: .utility).async {
      space.end()
      try? store.close()
    }
  }

  private struct Weak { weak var store: DropInStore? }
  /// By the paths' bytes: composed and decomposed letters can name different folders.
  private static let known = Mutex<[[UInt8]: Weak]>([:])

  /// The store of that folder. No I/O.
  ///
  /// - Parameter other: another folder in which the original may have left data.
  static func of(_ folder: URL, other: URL? = nil) -> DropInStore {
    let path = folder.standardized.path
    return known.withLock { known in
      let name = Array(path.utf8)
      if let store = known[name]?.store { return store }
      known = known.filter { $0.value.store != nil }
      let store = DropInStore(URL(fileURLWithPath: path, isDirectory: true), other: other)
      known[name] = Weak(store: store)
      return store
    }
  }

  /// The store, opened, with the library's old data in it.
  func opened(for library: Library) throws(BlobStorageError) -> BlockingBlobStore {
    try state.withLock { (state) throws(BlobStorageError) in
      let store: BlockingBlobStore
      if let open = state.store {
        store = open
      } else {
        store = try openOrCreate()
        space.begin(store)
      }
      state.store = store
      if state.leftOut[library] == nil {
        var left: [Left] = []
        for (folder, name) in [(folder, "")] + (other.map { [($0, $0.path)] } ?? []) {
          let old = OldData(library: library, folder: folder, store: store)
          left.append(Left(folder: folder, name: name, keys: try old.importOnce(name: name)))
        }
        state.leftOut[library] = left
        // What was taken in counts like what is put.
        space.measure()
      }
      return store
    }
  }

  /// The files of the original that could not be taken in; opens the store if nothing has yet.
  func leftOut(_ library: Library) -> [URL] {
    // A store that cannot be opened says so at each operation.
    _ = try? opened(for: library)
    return state.withLock { state in
      (state.leftOut[library] ?? []).flatMap { left in
        left.keys.map { left.folder.appendingPathComponent($0) }
      }
    }
  }

  /// - Throws: `io` for a key without a value of which the original has left files that could not be taken in.
  func requireTaken(_ key: String, by library: Library) throws(BlobStorageError) {
    let left = state.withLock { $0.leftOut[library] ?? [] }
    guard let place = left.first(where: { OldData.contains($0.keys, key) }) else { return }
    let path = place.folder.appendingPathComponent(key).path
    throw BlobStorageError(
      .io, "The original's files at \(path) could not be imported: make them readable and open them again.",
      key: key, path: path)
  }

  /// Leaves files of a deleted key out for good, if they were left out. Returns whether they were.
  func forget(_ key: String, of library: Library) throws(BlobStorageError) -> Bool {
    try forget(library) { $0.utf8.elementsEqual(key.utf8) }
  }

  /// Leaves everything out for good that was left out.
  func forgetAll(of library: Library) throws(BlobStorageError) { _ = try forget(library) { _ in true } }

  private func forget(
    _ library: Library, _ isForgotten: (String) -> Bool
  ) throws(BlobStorageError) -> Bool {
    try state.withLock { (state) throws(BlobStorageError) in
      guard let store = state.store, let left = state.leftOut[library],
        left.contains(where: { $0.keys.contains(where: isForgotten) })
      else { return false }
      var rest = left
      for index in left.indices where !left[index].keys.isEmpty {
        rest[index].keys = try OldData(library: library, folder: left[index].folder, store: store)
          .forget(name: left[index].name, isForgotten)
      }
      state.leftOut[library] = rest
      return true
    }
  }

  /// Runs `body` on the opened store. A store that cannot go on is opened again for the next operation.
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
        .io, "The folder \(folder.path) cannot be created: \(error.localizedDescription)", path: folder.path)
    }
    // One path for one folder, however it was reached: the catalog must not be opened twice in a process.
    let path = StoreLocation.of(folder.resolvingSymlinksInPath()).path
    let environment = environment ?? Engine.Environment()
    while true {
      do throws(BlobStorageError) { return try .open(at: path, in: environment) } catch {
        guard error.code == .noStore else { throw error }
      }
      do throws(BlobStorageError) { return try .create(at: path, in: environment) } catch {
        // Another process was faster.
        guard error.code == .storeExists else { throw error }
      }
    }
  }
}

/// The libraries that can share a folder. Each has keys of its own.
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

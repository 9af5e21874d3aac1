import BlobStorage
import Foundation
import Synchronization
import SystemPackage

/// The store of one folder, shared by everything in this process that uses the folder.
///
/// The first operation opens or creates the store, and imports what the original has left in the folder. The store
/// closes after its last user is gone.
final class DropInStore: Sendable {
  /// The original's folder.
  let folder: URL
  /// Orders the operations on one key, across all instances on the folder.
  let lanes = Lanes()
  /// Frees disk space in the background.
  let space: SpaceKeeper
  /// Where the original keeps the folder, if that is elsewhere.
  private let other: URL?
  /// The environment that tests set.
  private let environment = StoreEnvironment.current

  private struct State {
    var store: BlockingBlobStore?
    /// For each imported library, its folders and the keys that could not be imported from them.
    var leftOut: [Library: [(old: OldData, keys: [String])]] = [:]
  }

  /// A thread that opens the store holds it: all others wait for the open store.
  private let state = IOLock(State())

  private init(_ folder: URL, other: URL?) {
    self.folder = folder
    self.other = other.flatMap { $0.standardized.path.utf8.elementsEqual(folder.path.utf8) ? nil : $0 }
    space = SpaceKeeper()
  }

  deinit {
    guard let store = state.withLock({ $0.store }) else { return }
    let space = space
    // Closing waits for the medium, and the last user may be on the main thread. A store that is not closed in time
    // loses nothing.
    DispatchQueue.global(qos: .utility).async {
      space.end()
      try? store.close()
    }
  }

  private struct Weak { weak var store: DropInStore? }
  /// By the paths' bytes: composed and decomposed letters can name different folders.
  private static let known = Mutex<[[UInt8]: Weak]>([:])

  /// The store of that folder. Does no I/O.
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

  /// Opens the store, and imports the library's old data.
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
        var left: [(old: OldData, keys: [String])] = []
        for (folder, name) in [(folder, "")] + (other.map { [($0, $0.path)] } ?? []) {
          let old = OldData(library: library, folder: folder, name: name, environment: environment)
          left.append((old, try old.importOnce(into: store)))
        }
        state.leftOut[library] = left
        // Imported data counts like data that was put.
        space.begin(store)
      }
      return store
    }
  }

  /// The files of the original that could not be imported. Opens the store if necessary.
  func leftOut(_ library: Library) -> [URL] {
    // A store that cannot be opened reports it at each operation.
    _ = try? opened(for: library)
    return state.withLock { state in
      (state.leftOut[library] ?? []).flatMap { left in
        left.keys.map { left.old.folder.appendingPathComponent($0) }
      }
    }
  }

  /// - Throws: `io` if the original has left files for the key that could not be imported.
  func requireTaken(_ key: String, by library: Library) throws(BlobStorageError) {
    let left = state.withLock { $0.leftOut[library] ?? [] }
    guard let place = left.first(where: { OldData.contains($0.keys, key) }) else { return }
    let path = place.old.folder.appendingPathComponent(key).path
    throw BlobStorageError(
      .io, "The original's files at \(path) could not be imported: make them readable and open them again.",
      key: key, path: path)
  }

  /// Leaves out for good the files of a deleted key, or of all keys for nil, if they were left out. Returns whether
  /// they were.
  func forget(_ key: String?, of library: Library) throws(BlobStorageError) -> Bool {
    func isForgotten(_ name: String) -> Bool { key.map { name.utf8.elementsEqual($0.utf8) } ?? true }
    return try state.withLock { (state) throws(BlobStorageError) in
      guard let store = state.store, let left = state.leftOut[library],
        left.contains(where: { $0.keys.contains(where: isForgotten) })
      else { return false }
      var rest = left
      for index in left.indices where !left[index].keys.isEmpty {
        rest[index].keys = try left[index].old.forget(in: store, isForgotten)
      }
      state.leftOut[library] = rest
      return true
    }
  }

  /// Runs `body` on the opened store. If the store is poisoned or closed, the next operation opens it again.
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
    state.withLock { state in
      guard state.store?.store === store.store else { return }
      state.store = nil
      // While anything holds the store, the next opening cannot recover what it could not sync.
      space.release()
    }
  }

  private func openOrCreate() throws(BlobStorageError) -> BlockingBlobStore {
    do { try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true) } catch {
      throw BlobStorageError(
        .io, "The folder \(folder.path) cannot be created: \(error.localizedDescription)", path: folder.path)
    }
    // One path for one folder, however it was reached: a process must not open the catalog twice.
    let path = StoreLocation.of(folder.resolvingSymlinksInPath()).path
    let environment = environment ?? Engine.Environment()
    while true {
      do throws(BlobStorageError) {
        return try BlobStore.open(at: path, StoreConfiguration(), in: environment).blocking
      } catch {
        guard error.code == .noStore else { throw error }
      }
      do throws(BlobStorageError) {
        try Engine.create(at: path, options: StoreOptions(), environment: environment)
      } catch {
        // Another process created it first.
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

  /// The prefix of this library's keys in the store.
  var prefix: String { rawValue + "/" }

  /// The store's key for a key of the library.
  func storeKey(_ key: String) -> String { prefix + key }

  /// The library's key for a key of the store. By bytes: a key may begin with a combining accent.
  func key(ofStoreKey storeKey: String) -> String {
    String(decoding: storeKey.utf8.dropFirst(prefix.utf8.count), as: UTF8.self)
  }

  /// The store's key whose presence marks old data, or one old document, as imported.
  func importMarker(_ name: String = "") -> String { "m/" + prefix + name }
}

extension BlockingBlobStore {
  /// The store's folder.
  var folder: URL { URL(fileURLWithPath: store.information.path, isDirectory: true) }

  /// All keys of a library, in byte order.
  func keys(of library: Library) throws(BlobStorageError) -> [String] {
    var result: [String] = []
    try store.engine.forEachPage(prefix: .bytes(library.prefix)) { page in
      result += page.map { library.key(ofStoreKey: $0.key) }
    }
    return result
  }
}

/// A lock between processes, in a file beside the store's own. It ends with its holder.
struct FolderLock {
  private let file: any File

  /// Waits until no other process holds the lock with that name.
  init(_ name: String, in folder: URL) throws(BlobStorageError) {
    file = try SystemFiles().open(FilePath(folder.appendingPathComponent(name).path), .openOrCreate)
    do throws(BlobStorageError) { _ = try file.lock(.exclusive, wait: true) } catch {
      file.close()
      throw error
    }
  }

  func release() { file.close() }
}

/// The environment that tests set for the stores of the libraries.
package enum StoreEnvironment {
  /// Applies to all stores that are first named while it is set; nil is the system.
  @TaskLocal package static var current: Engine.Environment?
}

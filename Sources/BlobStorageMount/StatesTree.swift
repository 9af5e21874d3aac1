import BlobStorage
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import Synchronization

/// Shows a folder for each state, by its name or else its ID, with the tree that was imported.
package final class StatesTree: MountedTree {
  private static let keptCountMax = 4
  private static let idByteCount = 16

  private let engine: Engine
  /// The states that were loaded last, the latest one last.
  private let known = Mutex<[(id: TreeState.ID, keys: StateKeys)]>([])
  /// The metadata of the states' own folders, by their names; empty for none.
  private let rootMetadata = Mutex<[[UInt8]: [UInt8]]>([:])
  /// A state never changes, but it can be dropped.
  package let nameSeconds: Double = 60

  package init(_ engine: Engine) { self.engine = engine }

  package func item(named name: [UInt8], in folder: [UInt8]) throws(BlobStorageError) -> MountedItem? {
    guard let (id, path) = Self.parts(folder) else {
      return try namedStates().first { $0.name == name }.map { .folder(Self.root(of: $0.state)) }
    }
    return try tree(id)?.item(named: name, in: path).map { Self.item($0, id) }
  }

  package func page(of folder: [UInt8], after place: [UInt8]?) throws(BlobStorageError) -> MountedPage {
    guard let (id, path) = Self.parts(folder) else {
      return MountedPage(
        children: try namedStates().map { ($0.name, .folder(Self.root(of: $0.state))) })
    }
    guard var page = try tree(id)?.page(of: path, after: place) else { return MountedPage() }
    page.children = page.children.map { ($0.name, Self.item($0.item, id)) }
    return page
  }

  package func mark(ofFolder folder: [UInt8]) throws(BlobStorageError) -> FileMark? {
    guard let (id, path) = Self.parts(folder) else { return nil }
    if let metadata = rootMetadata.withLock({ $0[folder] }) { return FileMark(metadata: metadata) }
    let isLoaded = known.withLock { $0.contains { $0.id == id } }
    let file = StateFile(engine)
    guard !isLoaded, let state = try file.states().first(where: { Self.root(of: $0) == folder }) else {
      return try tree(id)?.keys.mark(ofFolder: path)
    }
    // A list of all states asks for each. The folder's entry comes first, so the others need not be read.
    let walk = try file.walk(state)
    defer { walk.close() }
    var found: [UInt8] = []
    while let entry = try walk.next(), !path.lexicographicallyPrecedes(entry.key) {
      if entry.key == path, case .folder(let metadata) = entry.content { found = metadata }
    }
    let metadata = found
    rootMetadata.withLock { $0[folder] = metadata }
    return FileMark(metadata: metadata)
  }

  /// The states, with the names of their folders. A copy can bring states of one name: all but the first have their
  /// IDs.
  private func namedStates() throws(BlobStorageError) -> [(name: [UInt8], state: TreeState)] {
    var seen: Set<[UInt8]> = []
    return try StateFile(engine).states().map { state in
      let name = Self.name(of: state)
      return (seen.insert(name).inserted ? name : Array(state.id.description.utf8), state)
    }
  }

  /// The name of a state's folder: its name, or else its ID. A forged state may have a name that no folder can have.
  private static func name(of state: TreeState) -> [UInt8] {
    let name = Array(state.text.utf8)
    let isName =
      name.count <= ComponentName.byteCountMax && !name.contains(UInt8(ascii: "/")) && !name.contains(0)
      && state.text != "." && state.text != ".."
    return isName ? name : Array(state.id.description.utf8)
  }

  /// The tree's name for the root of a state: the ID, and the prefix of all its keys up to a slash.
  private static func root(of state: TreeState) -> [UInt8] {
    let prefix = Array(state.prefix.utf8)
    let end = prefix.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0
    return Array(state.id.description.utf8) + prefix[..<end]
  }

  /// Nil for the root of all states.
  private static func parts(_ folder: [UInt8]) -> (id: TreeState.ID, path: [UInt8])? {
    TreeState.ID(String(decoding: folder.prefix(idByteCount), as: UTF8.self)).map {
      ($0, Array(folder.dropFirst(idByteCount)))
    }
  }

  private static func item(_ item: MountedItem, _ id: TreeState.ID) -> MountedItem {
    guard case .folder(let path) = item else { return item }
    return .folder(Array(id.description.utf8) + path)
  }

  /// Nil if the state was dropped.
  private func tree(_ id: TreeState.ID) throws(BlobStorageError) -> KeyTree<StateKeys>? {
    if let keys = known.withLock({ $0.first { $0.id == id }?.keys }) {
      return KeyTree(keys, nameSeconds: nameSeconds)
    }
    let file = StateFile(engine)
    guard let state = try file.states().first(where: { $0.id == id }) else { return nil }
    let walk = try file.walk(state)
    defer { walk.close() }
    let keys = StateKeys(engine: engine, index: try StateIndex(walk))
    known.withLock { known in
      // Another thread may have loaded it meanwhile.
      known.removeAll { $0.id == id }
      known.append((id, keys))
      if known.count > Self.keptCountMax { known.removeFirst() }
    }
    return KeyTree(keys, nameSeconds: nameSeconds)
  }
}

/// The keys of a state. Hides a version that was deleted since.
struct StateKeys: OrderedKeys {
  let engine: Engine
  let index: StateIndex

  func version(of key: String) throws(BlobStorageError) -> BlobVersion? {
    let bytes = Array(key.utf8)
    guard case .version(let stamp) = try index.entry(bytes)?.content else { return nil }
    return try version(bytes, stamp)
  }

  private func version(_ key: [UInt8], _ stamp: Stamp) throws(BlobStorageError) -> BlobVersion? {
    let version = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.keptVersion(ofKey: key, stamp)
    }
    return version.map {
      BlobVersion(key: String(decoding: key, as: UTF8.self), stamp: $0.stamp, row: $0.row)
    }
  }

  func entries(
    prefix: [UInt8], after place: [UInt8]?, limit: Int
  ) throws(BlobStorageError) -> [OrderedKey] {
    var found: [OrderedKey] = []
    for entry in try index.entries(prefix: prefix, after: place, limit: limit) {
      guard case .version(let stamp) = entry.content else {
        found.append(OrderedKey(key: entry.key, version: nil, isFolder: true))
        continue
      }
      found.append(OrderedKey(key: entry.key, version: try version(entry.key, stamp), isFolder: false))
    }
    return found
  }

  func mark(ofFolder path: [UInt8]) throws(BlobStorageError) -> FileMark? {
    guard case .folder(let metadata) = try index.entry(path)?.content else { return nil }
    return FileMark(metadata: metadata)
  }
}

import BlobStorage
import BlobStorageCache
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import Synchronization

/// Answers the system's requests about a mount. Its methods run on several threads at once. They return a result, or
/// throw the `errno` that the program gets.
final class MountService: Sendable {
  typealias Report = @Sendable (String) -> Void

  /// What `stat` shows of a node, and how long the system may use its name.
  struct Found {
    var number: UInt64
    var inode: UInt64
    var attributes: MountedAttributes
    var nameSeconds: Double
  }

  /// An `errno` as an error.
  struct Refusal: Error { var errno: Int32 }

  private let engine: Engine
  private let trees: [(name: String, tree: any MountedTree)]
  private let report: Report
  private let reads: CacheReads?
  private let mounted = MountedAttributes.time(Date())
  let nodes = NodeTable()
  private let files = HandleTable<OpenFile>()
  private let folders = HandleTable<OpenFolder>()
  /// For names in the root, which never change.
  private static let longSeconds = 1e9

  /// - Parameter reads: the rules of the store's cache.
  init(
    _ engine: Engine, trees: [(name: String, tree: any MountedTree)], _ reads: CacheReads?,
    report: @escaping Report
  ) {
    self.reads = reads
    self.engine = engine
    self.trees = trees
    self.report = report
  }

  // MARK: Nodes

  /// Looks up a name, and gives the system a hold on its node.
  func lookUp(_ name: [UInt8], in parent: UInt64) throws(Refusal) -> Found {
    switch try node(parent) {
    case .file: throw Refusal(errno: ENOTDIR)
    case .root:
      guard let index = trees.firstIndex(where: { Array($0.name.utf8) == name }) else {
        throw Refusal(errno: ENOENT)
      }
      return hold(.folder(tree: index, []), Self.longSeconds)
    case .folder(let index, let folder):
      let tree = trees[index].tree
      let item = try answering { () throws(BlobStorageError) in try tree.item(named: name, in: folder) }
      guard let item else { throw Refusal(errno: ENOENT) }
      return hold(Self.node(item, index), tree.nameSeconds)
    }
  }

  func attributes(_ number: UInt64) throws(Refusal) -> Found { found(try node(number), number, 0) }

  private func node(_ number: UInt64) throws(Refusal) -> MountedNode {
    guard let node = nodes.node(number) else { throw Refusal(errno: ESTALE) }
    return node
  }

  private static func node(_ item: MountedItem, _ index: Int) -> MountedNode {
    switch item {
    case .folder(let path): .folder(tree: index, path)
    case .file(let version): .file(version)
    }
  }

  func hold(_ node: MountedNode, _ nameSeconds: Double) -> Found {
    found(node, nodes.hold(node), nameSeconds)
  }

  func found(_ node: MountedNode, _ number: UInt64, _ nameSeconds: Double) -> Found {
    let attributes =
      if case .file(let version) = node {
        MountedAttributes.attributes(of: version)
      } else {
        MountedAttributes.folder(mark(of: node), mounted: mounted)
      }
    return Found(number: number, inode: node.inode, attributes: attributes, nameSeconds: nameSeconds)
  }

  /// The mark that an import kept of a file or folder.
  private func mark(of node: MountedNode) -> FileMark? {
    switch node {
    case .root: return nil
    case .file(let version): return FileMark(metadata: version.metadata)
    case .folder(let index, let folder):
      do throws(BlobStorageError) { return try trees[index].tree.mark(ofFolder: folder) } catch {
        // Listing the folder fails as well, and reports the error.
        return nil
      }
    }
  }

  // MARK: Attributes

  func linkTarget(_ number: UInt64) throws(Refusal) -> [UInt8] {
    guard case .file(let version) = try node(number), version.fileAttributes?.kind == .link,
      version.byteCount <= 4_096
    else { throw Refusal(errno: EINVAL) }
    let engine = engine
    let target = try answering { () throws(BlobStorageError) in
      try engine.data(version.digest, atMost: 4_096)
    }
    guard let target else { throw Refusal(errno: ESTALE) }
    return Array(target)
  }

  /// The extended attributes that an import kept.
  func extendedAttributes(_ number: UInt64) throws(Refusal) -> [FileAttributes.Extended] {
    let node = try node(number)
    let engine = engine
    return try answering { () throws(BlobStorageError) in
      try mark(of: node)?.extendedAttributes(engine) ?? []
    }
  }

  // MARK: Files

  /// Opens a version. A dropped version is `ESTALE`: the system then looks up the name again.
  func openFile(_ number: UInt64) throws(Refusal) -> UInt64 {
    guard case .file(let version) = try node(number) else { throw Refusal(errno: EISDIR) }
    if reads?.isExpired(version) == true { throw Refusal(errno: ESTALE) }
    let engine = engine
    let blob = try answering { () throws(BlobStorageError) -> OpenBlob? in
      if let blob = try engine.openBlob(version.key, version.id) { return blob }
      // A state may be the last to have it. Only what is still kept after the lease was written stays for sure.
      guard let blob = try engine.openBlob(version.digest) else { return nil }
      do throws(BlobStorageError) {
        let isKept = try engine.catalog.read { (transaction) throws(BlobStorageError) in
          try transaction.keptVersion(ofKey: Array(version.key.utf8), version.id.stamp) != nil
        }
        if isKept { return blob }
      } catch {
        blob.close()
        throw error
      }
      blob.close()
      return nil
    }
    guard let blob else { throw Refusal(errno: ESTALE) }
    reads?.use(version.key)
    return files.add(OpenFile(version, blob))
  }

  func read(
    _ handle: UInt64, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(Refusal) -> Int {
    guard let file = files[handle] else { throw Refusal(errno: EBADF) }
    do throws(BlobStorageError) { return try file.read(into: buffer, at: offset) } catch {
      throw refusal(error, isReported: file.isFirstFailure())
    }
  }

  func closeFile(_ handle: UInt64) { files.remove(handle) }

  // MARK: Folders

  func openFolder(_ number: UInt64) throws(Refusal) -> UInt64 {
    let node = try node(number)
    switch node {
    case .file: throw Refusal(errno: ENOTDIR)
    case .root:
      let children = trees.indices.map {
        (name: Array(trees[$0].name.utf8), node: MountedNode.folder(tree: $0, []))
      }
      return folders.add(OpenFolder(node, nameSeconds: Self.longSeconds) { _ in (children, nil) })
    case .folder(let index, let folder):
      let tree = trees[index].tree
      return folders.add(
        OpenFolder(node, nameSeconds: tree.nameSeconds) { (place) throws(BlobStorageError) in
          let page = try tree.page(of: folder, after: place)
          return (page.children.map { ($0.name, Self.node($0.item, index)) }, page.end)
        })
    }
  }

  func folder(_ handle: UInt64) throws(Refusal) -> OpenFolder {
    guard let folder = folders[handle] else { throw Refusal(errno: EBADF) }
    return folder
  }

  func child(at index: Int, of folder: OpenFolder) throws(Refusal) -> OpenFolder.Child? {
    try answering { () throws(BlobStorageError) in try folder.child(at: index) }
  }

  func closeFolder(_ handle: UInt64) { folders.remove(handle) }

  // MARK: Errors

  private func answering<T>(_ body: () throws(BlobStorageError) -> T) throws(Refusal) -> T {
    do throws(BlobStorageError) { return try body() } catch { throw refusal(error, isReported: true) }
  }

  private func refusal(_ error: BlobStorageError, isReported: Bool) -> Refusal {
    if isReported { report(error.message) }
    return switch error.code {
    case .permissionDenied: Refusal(errno: EACCES)
    case .busy: Refusal(errno: EAGAIN)
    default: Refusal(errno: EIO)
    }
  }
}

/// Files or folders that programs have open, by the system's handles.
private final class HandleTable<Item: Sendable>: Sendable {
  private let state = Mutex<(items: [UInt64: Item], last: UInt64)>(([:], 0))

  subscript(_ handle: UInt64) -> Item? { state.withLock { $0.items[handle] } }

  func add(_ item: Item) -> UInt64 {
    state.withLock { state in
      state.last += 1
      state.items[state.last] = item
      return state.last
    }
  }

  func remove(_ handle: UInt64) {
    // Closing releases a lease, so it happens after the lock.
    _ = state.withLock { $0.items.removeValue(forKey: handle) }
  }
}

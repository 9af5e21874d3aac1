import BlobStorage
import Logging
import Synchronization
import SystemPackage

/// The index of a shared store: rows of a catalog, kept as objects. A machine reads ranges of them instead of the
/// footers of all packs. Index.md explains it.
final class SharedIndex: Sendable {
  private let objects: any ObjectStore
  private let storeID: [UInt8]
  private let fetches: RangeFetches
  /// Runs in which this process has found damage.
  private let distrusted = Mutex<Set<UInt64>>([])
  private let wasOpened = Atomic<Bool>(false)
  /// Whether a catalog of this process has relied on an index.
  var isInUse: Bool { wasOpened.load(ordering: .relaxed) }

  private static let rootByteCountMax: Int64 = 64 << 20
  /// The number of indexes to keep: a machine may still read the last but one.
  private static let keptCount = 2

  init(
    _ objects: any ObjectStore, storeID: [UInt8], folder: FilePath, files: any FileSystem,
    cacheByteLimit: Int64
  ) {
    self.objects = objects
    self.storeID = storeID
    fetches = RangeFetches(
      objects: objects,
      cache: RangeCache(folder: folder, files: files, byteCountMax: cacheByteLimit),
      object: SharedNames.indexPart)
  }

  /// Opens an index that a catalog relies on.
  func open(_ root: IndexRoot) -> RowIndex {
    wasOpened.store(true, ordering: .relaxed)
    return RowIndex(root, open: part) { [self] (root) in
      distrusted.withLock { _ = $0.insert(root.run) }
      // The next collection then puts another.
      do throws(BlobStorageError) { try objects.delete(SharedNames.index(Self.name(of: root))) } catch {}
    }
  }

  @Sendable
  private func part(_ name: PackName, byteCount: Int64) -> any File {
    RemoteFile(name: name, byteCount: byteCount, fetches: fetches, footer: nil)
  }

  /// Opens an index to examine it. No catalog relies on it.
  func look(_ root: IndexRoot) -> RowIndex { RowIndex(root, open: part) { _ in } }

  /// Finds the newest index whose objects all exist; nil if there is none that this build can read.
  ///
  /// - Complexity: one listing, and one get for each index tried.
  func newest() throws(BlobStorageError) -> IndexRoot? {
    let entries = try objects.listAll(SharedNames.index)
    for name in Self.names(entries).reversed() {
      if let root = try root(name, entries), !distrusted.withLock({ $0.contains(root.run) }) { return root }
    }
    return nil
  }

  /// The names of all roots, the newest last.
  private static func names(_ entries: [ObjectPage.Entry]) -> [SharedNames.IndexName] {
    entries.compactMap { SharedNames.indexName($0.name) }
      .sorted { ($0.number, $0.run) < ($1.number, $1.run) }
  }

  /// Reads the root with that name; nil unless it has this store and layout, and all of its parts exist.
  private func root(
    _ name: SharedNames.IndexName, _ entries: [ObjectPage.Entry]
  ) throws(BlobStorageError) -> IndexRoot? {
    guard let bytes = try objects.get(SharedNames.index(name), 0..<Self.rootByteCountMax) else { return nil }
    let root: IndexRoot
    do throws(BlobStorageError) { root = try IndexRoot(bytes) } catch {
      guard error.code == .corrupted else { throw error }
      return nil
    }
    guard root.storeID == storeID, root.layout == CatalogState.layout, Self.name(of: root) == name else {
      return nil
    }
    let byteCounts = Dictionary(entries.map { ($0.name, $0.byteCount) }) { first, _ in first }
    let isThere = root.partByteCounts.enumerated().allSatisfy { part, byteCount in
      byteCounts[SharedNames.indexPart(root.partName(part))] == byteCount
    }
    return isThere ? root : nil
  }

  /// The name of a root. Later roots have greater numbers.
  private static func name(of root: IndexRoot) -> SharedNames.IndexName {
    SharedNames.IndexName(number: UInt64(root.log) << 32 | UInt64(root.change), run: root.run)
  }

  /// Puts the root of an index whose parts are stored, and deletes indexes that no machine needs any more.
  ///
  /// Another collector's concurrent call may have deleted the parts, because no root named them yet. Machines then
  /// ignore this root.
  func put(_ root: IndexRoot) throws(BlobStorageError) {
    _ = try objects.put(SharedNames.index(Self.name(of: root)), .bytes(root.encoded), ifAbsent: true)
    let entries = try objects.listAll(SharedNames.index)
    let names = Self.names(entries)
    // Between the roots that this build can read, keep roots of other builds. Keep the last two roots of each run,
    // because a machine that listed the older one is about to read it. Roots ahead of the log come from a log that was
    // rolled back: delete them.
    var (kept, usable, counts) = (Set<SharedNames.IndexName>(), Set<UInt64>(), [UInt64: Int]())
    for name in names.reversed() where name.number >> 32 <= root.log {
      if usable.count == Self.keptCount, !usable.contains(name.run) { continue }
      counts[name.run, default: 0] += 1
      if counts[name.run, default: 0] > 2 { continue }
      kept.insert(name)
      if try self.root(name, entries) != nil { usable.insert(name.run) }
    }
    let runs = Set(kept.map(\.run))
    for name in names where !kept.contains(name) { try objects.delete(SharedNames.index(name)) }
    for entry in entries {
      if let run = SharedNames.runNumber(entry.name), !runs.contains(run) { try objects.delete(entry.name) }
    }
  }
}

import BlobStorage
import SystemPackage

/// This machine's folder for a shared store: unpublished packs, the catalog, leases, and cached parts of published
/// packs.
///
/// It has the layout of a store's folder. A flag in its `store` marks it as a state folder.
///
/// Losing it loses nothing that was published.
struct StateFolder {
  private let folder: StoreFolder
  private let objects: any ObjectStore

  private static let storeByteCountMax = 4_096

  init(_ folder: StoreFolder, _ objects: any ObjectStore) {
    self.folder = folder
    self.objects = objects
  }

  /// Creates an empty shared store.
  ///
  /// - Parameter extra: bytes of the object `store` behind the header.
  /// - Throws: `storeExists`, or `notAStore` if the place holds other objects; nothing was changed.
  static func create(
    _ header: StoreHeader, extra: [UInt8] = [], in objects: any ObjectStore
  ) throws(BlobStorageError) {
    let content = header.encoded() + extra
    let (trials, first) = try objects.firstThatCounts()
    if let first {
      let isStore = try objects.tail(SharedNames.store, byteCount: 1) != nil
      throw isStore
        ? BlobStorageError(.storeExists, "There is a store in \(objects.place) already.", path: objects.place)
        : BlobStorageError(
          .notAStore, "\(objects.place) holds something else (\(first)): name a place that is empty.",
          path: objects.place)
    }
    guard try objects.put(SharedNames.store, .bytes(content), ifAbsent: true) == .exists else {
      do throws(BlobStorageError) { for name in trials { try objects.delete(name) } } catch {
        // Leftovers are harmless.
      }
      return
    }
    // The first attempt of this put may have stored it.
    guard try objects.get(SharedNames.store, 0..<Int64(storeByteCountMax)) != content else { return }
    throw BlobStorageError(.storeExists, "There is a store in \(objects.place) already.", path: objects.place)
  }

  /// Reads the header of a shared store, and the bytes behind it.
  ///
  /// - Throws: `noStore`, `notAStore`, `unsupportedFormat`, or `corrupted`.
  static func readHeader(
    of objects: any ObjectStore
  ) throws(BlobStorageError) -> (header: StoreHeader, extra: [UInt8]) {
    guard let bytes = try objects.get(SharedNames.store, 0..<Int64(storeByteCountMax)) else {
      guard try objects.firstThatCounts().first == nil else {
        throw BlobStorageError(
          .notAStore,
          "\(objects.place) holds something that is not a store, or its object “store” is lost: bring it back from a copy.",
          path: objects.place)
      }
      throw BlobStorageError(.noStore, "There is no store in \(objects.place).", path: objects.place)
    }
    do throws(BlobStorageError) {
      let header = try bridge(Array(bytes.prefix(StoreHeader.byteCount))) { (raw) throws(BlobStorageError) in
        try StoreHeader(raw)
      }
      return (header, Array(bytes.dropFirst(StoreHeader.byteCount)))
    } catch {
      throw BlobStorageError(error.code, "\(objects.place): \(error.message)", path: objects.place)
    }
  }

  /// Prepares the folder for the shared store.
  ///
  /// - Returns: the bytes of the object `store` behind the header.
  /// - Throws: `notAStore` if the folder holds something else, or the state of another store.
  @discardableResult
  func prepare() throws(BlobStorageError) -> [UInt8] {
    let read = try Self.readHeader(of: objects)
    var header = read.header
    header.flags.insert(.stateOnly)
    do throws(BlobStorageError) { try folder.create(header) } catch {
      guard error.code == .storeExists else { throw error }
    }
    let known = try folder.readHeader()
    guard known.flags.contains(.stateOnly) else {
      throw BlobStorageError(
        .notAStore, "\(folder.path) is a store itself, and no state folder: name another.",
        path: folder.path.string)
    }
    guard known.storeID == header.storeID else {
      throw BlobStorageError(
        .notAStore,
        "\(folder.path) holds the state of another store than \(objects.place): name another folder.",
        path: folder.path.string)
    }
    for part in [folder.members, folder.footers, folder.incoming, folder.ranges, folder.index] {
      try folder.makePart(part)
    }
    return read.extra
  }

  private var maintainer: FilePath { folder.path.entry("maintainer") }

  /// Makes this folder the maintainer's state folder.
  func setMaintainer(_ maintainer: Maintainer) throws(BlobStorageError) {
    let file = try folder.files.open(self.maintainer, .openOrCreate)
    defer { file.close() }
    try file.put(maintainer.identity, at: 0)
    try file.synchronize()
    try folder.files.syncDirectory(folder.path)
  }

  /// Whether this folder is the maintainer's state folder.
  func isOf(_ maintainer: Maintainer) throws(BlobStorageError) -> Bool {
    guard try folder.files.status(of: self.maintainer) != nil else { return false }
    let file = try folder.files.open(self.maintainer, .read)
    defer { file.close() }
    return try file.bytesThere(at: 0, maintainer.identity.count) == maintainer.identity
  }
}

extension StoreFolder {
  /// The footers of published packs. Only a state folder has them.
  var footers: FilePath { path.entry("footers") }
  var ranges: FilePath { path.entry("ranges") }
  /// Cached parts of the store's index.
  var index: FilePath { path.entry("index") }
  /// Incomplete copies of footers, and parts of an index before their put.
  var incoming: FilePath { path.entry("incoming") }
}

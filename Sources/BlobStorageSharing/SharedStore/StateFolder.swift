import BlobStorage
import SystemPackage

extension StoreHeader {
  /// The longest object `store`.
  fileprivate static let objectByteCountMax: Int64 = 4_096
}

extension ObjectStore {
  /// Creates an empty shared store.
  ///
  /// - Parameter extra: bytes of the object `store` behind the header.
  /// - Throws: `storeExists`, or `notAStore` if the place holds other objects; nothing was changed.
  func createStore(_ header: StoreHeader, extra: [UInt8]) throws(BlobStorageError) {
    let content = header.encoded() + extra
    let exists = BlobStorageError(.storeExists, "There is a store in \(place) already.", path: place)
    let (trials, first) = try firstThatCounts()
    if let first {
      if try tail(SharedNames.store, byteCount: 1) != nil { throw exists }
      throw BlobStorageError(
        .notAStore,
        "\(place) holds something else (\(first.isEmpty ? "an object of that name" : first)): name a place that is empty.",
        path: place)
    }
    guard try put(SharedNames.store, .bytes(content), ifAbsent: true) == .exists else {
      do throws(BlobStorageError) { for name in trials { try delete(name) } } catch {
        // Leftovers are harmless.
      }
      return
    }
    // The first attempt of this put may have stored it.
    guard try get(SharedNames.store, 0..<StoreHeader.objectByteCountMax) != content else { return }
    throw exists
  }

  /// Reads the header of a shared store, and the bytes behind it.
  ///
  /// - Throws: `noStore`, `notAStore`, `unsupportedFormat`, or `corrupted`.
  fileprivate func readHeader() throws(BlobStorageError) -> (header: StoreHeader, extra: [UInt8]) {
    guard let bytes = try get(SharedNames.store, 0..<StoreHeader.objectByteCountMax) else {
      guard try firstThatCounts().first == nil else {
        throw BlobStorageError(
          .notAStore,
          "\(place) holds something that is not a store, or its object “store” is lost: bring it back from a copy.",
          path: place)
      }
      throw BlobStorageError(.noStore, "There is no store in \(place).", path: place)
    }
    do throws(BlobStorageError) {
      let header = try bridge(Array(bytes.prefix(StoreHeader.byteCount))) { (raw) throws(BlobStorageError) in
        try StoreHeader(raw)
      }
      return (header, Array(bytes.dropFirst(StoreHeader.byteCount)))
    } catch {
      throw BlobStorageError(error.code, "\(place): \(error.message)", path: place)
    }
  }
}

/// This machine's folder for a shared store: unpublished packs, the catalog, leases, and cached parts of published
/// packs.
///
/// It has the layout of a store's folder. A flag in its `store` marks it as a state folder.
///
/// Losing it loses nothing that was published.
extension StoreFolder {
  /// Prepares the folder for the shared store.
  ///
  /// - Returns: the bytes of the object `store` behind the header.
  /// - Throws: `notAStore` if the folder holds something else, or the state of another store; the errors of reading the
  ///   object `store`, such as `noStore`.
  @discardableResult
  func prepareState(of objects: any ObjectStore) throws(BlobStorageError) -> [UInt8] {
    let read = try objects.readHeader()
    var header = read.header
    header.flags.insert(.stateOnly)
    do throws(BlobStorageError) { try create(header) } catch {
      guard error.code == .storeExists else { throw error }
    }
    let known = try readHeader()
    guard known.flags.contains(.stateOnly) else {
      throw BlobStorageError(
        .notAStore, "\(path) is a store itself, and no state folder: name another.", path: path.string)
    }
    guard known.storeID == header.storeID else {
      throw BlobStorageError(
        .notAStore, "\(path) holds the state of another store than \(objects.place): name another folder.",
        path: path.string)
    }
    for part in [members, footers, incoming, ranges, index] { try makePart(part) }
    return read.extra
  }

  private var maintainer: FilePath { path.entry("maintainer") }

  /// Makes this folder the maintainer's state folder.
  func setMaintainer(_ maintainer: Maintainer) throws(BlobStorageError) {
    let file = try files.open(self.maintainer, .openOrCreate)
    defer { file.close() }
    try file.put(maintainer.identity, at: 0)
    try file.synchronize()
    try files.syncDirectory(path)
  }

  /// Whether this folder is the maintainer's state folder.
  func isOf(_ maintainer: Maintainer) throws(BlobStorageError) -> Bool {
    guard let file = try files.openIfThere(self.maintainer, .read) else { return false }
    defer { file.close() }
    return try file.bytesThere(at: 0, maintainer.identity.count) == maintainer.identity
  }

  /// The footers of published packs. Only a state folder has them.
  var footers: FilePath { path.entry("footers") }
  var ranges: FilePath { path.entry("ranges") }
  /// Cached parts of the store's index.
  var index: FilePath { path.entry("index") }
  /// Incomplete copies of footers, and parts of an index before their put.
  var incoming: FilePath { path.entry("incoming") }
}

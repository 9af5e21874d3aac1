import SystemPackage

/// The folder of a store: names its parts, creates it, and recognizes it.
///
/// `store` is written last and renamed into place: a folder is a store if and only if it has a valid `store`.
package struct StoreFolder: Sendable {
  package let path: FilePath
  package let files: any FileSystem

  package init(_ path: FilePath, files: any FileSystem) {
    self.path = path
    self.files = files
  }

  package var header: FilePath { path.entry("store") }
  package var packs: FilePath { path.entry("packs") }
  package var censusPath: FilePath { path.entry("census") }
  package var census: CensusFile { CensusFile(censusPath, files: files) }
  package var catalog: FilePath { path.entry("catalog") }
  package var leases: FilePath { path.entry("leases") }
  package var aside: FilePath { path.entry("set-aside") }
  package var activities: FilePath { path.entry("activities") }
  package var collecting: FilePath { path.entry("gc.lock") }
  package var cache: FilePath { path.entry("cache") }
  package var cacheLock: FilePath { path.entry("cache.lock") }
  package var holds: FilePath { path.entry("holds") }
  package var holdsLock: FilePath { path.entry("holds.lock") }
  /// Imports that record a state hold this lock.
  package var statesLock: FilePath { path.entry("states.lock") }
  /// Locks of registered writers. Only the state folder of a shared store has it.
  package var members: FilePath { path.entry("members") }
  package var reserve: FilePath { path.entry("reserve") }
  package var verified: FilePath { path.entry("verified") }

  /// Creates an empty store. Of two concurrent calls, one succeeds.
  ///
  /// - Throws: `storeExists`, `corrupted` if the path holds packs without a store header, or `notAStore` if it holds
  ///   anything else; nothing was changed.
  package func create(_ newHeader: StoreHeader) throws(BlobStorageError) {
    try makeParents()
    let lock = try files.open(path.entry(".init.lock"), .openOrCreate)
    defer { lock.close() }
    _ = try lock.lock(.exclusive, wait: true)
    if try files.status(of: header) != nil {
      throw BlobStorageError(.storeExists, "There is a store at \(path) already.", path: path.string)
    }
    // Reuses folders that an interrupted creation left.
    for folder in [packs, catalog, leases] { try makeDirectory(folder) }
    try files.replace(header, with: newHeader.encoded()).close()
    try synchronizeParents()
    try files.remove(path.entry(".init.lock"))
    // Best effort: otherwise the next opening creates the census.
    do throws(BlobStorageError) { try census.append([.store(newHeader.encoded())], durably: true) } catch {}
    // A store on a nearly full disk has no reserve.
    do throws(BlobStorageError) { try keepReserve() } catch {}
  }

  /// Finishes a creation that was interrupted after it wrote `store` and before it synced the names.
  package func finishCreation() throws(BlobStorageError) {
    let lockPath = path.entry(".init.lock")
    guard try files.status(of: lockPath) != nil else { return }
    try files.syncDirectory(path)
    try synchronizeParents()
    do throws(BlobStorageError) {
      let lock = try files.open(lockPath, .readWrite)
      defer { lock.close() }
      // A process that is still creating the store removes the file itself.
      if try lock.lock(.exclusive, wait: false) { try files.remove(lockPath) }
    } catch {
      // A file that stays is harmless: the next opening tries again.
    }
  }

  /// Syncs the names of the store's folder and of its parents: an interrupted creation may have made any of them.
  private func synchronizeParents() throws(BlobStorageError) {
    var folder = path
    while folder != folder.folder {
      folder = folder.folder
      do { try files.syncDirectory(folder) } catch {
        // No creation made a folder that this user may not read, or whose file system cannot sync one.
        let cannotSync = [Errno.invalidArgument, .notSupported].contains { $0.rawValue == error.errno }
        guard error.isRefusal || cannotSync else { throw error }
      }
    }
  }

  /// - Throws: `notAStore` if the folder lies inside another store: its files could be mistaken for that store's.
  package func checkOutside() throws(BlobStorageError) {
    var outer = path
    while outer != outer.folder {
      outer = outer.folder
      guard StoreFolder(outer, files: files).isThere else { continue }
      throw BlobStorageError(
        .notAStore, "\(path) lies in the store \(outer): name a folder outside of it.", path: path.string)
    }
  }

  /// Whether the folder holds a store. One with an unreadable header counts, too.
  private var isThere: Bool {
    do throws(BlobStorageError) { _ = try readHeader() } catch {
      return error.code == .corrupted || error.code == .unsupportedFormat
    }
    return true
  }

  /// Whether a folder is the catalog of a store or lies in one: only LMDB may open its files, because closing one ends
  /// the locks that LMDB has on it in this process.
  package static func isInCatalog(_ folder: FilePath, files: any FileSystem) -> Bool {
    var folder = folder
    while let name = folder.lastComponent {
      let outer = folder.removingLastComponent()
      if name.string == "catalog", StoreFolder(outer, files: files).isThere { return true }
      folder = outer
    }
    return false
  }

  static let reserveByteCount: Int64 = 512 << 10

  /// Allocates the reserve file. ``withReserve(_:)`` deletes it when the disk is full, so that the store can still
  /// open, drop and collect.
  package func keepReserve() throws(BlobStorageError) {
    // Deleting a file that has another name in a copy of the store frees nothing.
    if let status = try files.status(of: reserve), status.linkCount > 1 { try releaseReserve() }
    let file = try files.open(reserve, .openOrCreate)
    defer { file.close() }
    guard try file.status().allocatedByteCount < Self.reserveByteCount else { return }
    do { try file.allocate(byteCount: Self.reserveByteCount) } catch {
      try files.remove(reserve)
      throw error
    }
  }

  /// Runs `body`. If the disk is full, releases the reserve and runs `body` once more. The next collection allocates
  /// the reserve again.
  package func withReserve<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    do throws(BlobStorageError) { return try body() } catch {
      guard error.code == .noSpace, try reservedByteCount() > 0 else { throw error }
      try releaseReserve()
    }
    return try body()
  }

  /// The bytes that releasing the reserve makes available. In a copy of the store, the file may have holes or another
  /// name.
  func reservedByteCount() throws(BlobStorageError) -> Int64 {
    guard let status = try files.status(of: reserve), status.linkCount == 1 else { return 0 }
    return status.allocatedByteCount
  }

  /// Deletes the reserve file. Another process may do so at the same time.
  func releaseReserve() throws(BlobStorageError) { try files.removeIfThere(reserve) }

  /// Creates a folder of the store if it is missing. Its name is not durable yet.
  ///
  /// - Returns: whether it was missing.
  /// - Throws: `notAStore` for a symbolic link or a file, so that nothing is written outside of the store.
  @discardableResult
  package func makePart(_ part: FilePath) throws(BlobStorageError) -> Bool {
    let isMissing = try files.status(of: part) == nil
    if isMissing {
      do { try files.createPart(part) } catch {
        guard error.errno == Errno.fileExists.rawValue else { throw error }
      }
    }
    guard try files.status(of: part)?.kind == .directory else {
      throw BlobStorageError(
        .notAStore, "\(part) is a link or a file: the store needs a folder there.",
        path: part.string)
    }
    return isMissing
  }

  /// Reads the header of the store in this folder.
  ///
  /// - Throws: `noStore`, `notAStore`, `unsupportedFormat`, or `corrupted`.
  package func readHeader() throws(BlobStorageError) -> StoreHeader {
    guard let status = try statusOrNil(header), status.kind == .regular else {
      // A link that is not resolved leads nowhere.
      if let status = try statusOrNil(files.resolved(path)), status.kind != .symbolicLink {
        let names = status.kind == .directory ? try files.list(path) : ["?"]
        // Another process may be creating a store here, and may have finished just now.
        if names.contains("store"), try statusOrNil(header)?.kind == .regular { return try readHeader() }
        if status.kind == .directory, try holdsPacks() { throw lacksHeader }
        guard names.allSatisfy({ Self.namesOfCreation.contains($0) }) else {
          throw BlobStorageError(
            .notAStore, "\(path) holds something that is not a store.", path: path.string)
        }
      }
      throw BlobStorageError(.noStore, "There is no store at \(path).", path: path.string)
    }
    let file = try files.open(header, .read)
    defer { file.close() }
    let bytes = try file.bytes(at: 0, Int(min(status.byteCount, 4_096)), pack: nil)
    do {
      return try bridge(bytes) { (raw) throws(BlobStorageError) in try StoreHeader(raw) }
    } catch {
      if error.code != .unsupportedFormat, try holdsPacks() { throw lacksHeader }
      throw BlobStorageError(error.code, "\(path): \(error.message)", path: path.string)
    }
  }

  /// Whether the folder has packs, which only a store has.
  func holdsPacks() throws(BlobStorageError) -> Bool {
    guard try statusOrNil(packs)?.kind == .directory else { return false }
    return try files.listFiles(packs).contains { PackName(fileName: $0) != nil }
  }

  private var lacksHeader: BlobStorageError {
    BlobStorageError(
      .corrupted, "\(path) has packs, but its file “store” is missing or damaged: `repair` restores it.",
      path: path.string)
  }

  private func statusOrNil(_ path: FilePath) throws(BlobStorageError) -> FileStatus? {
    do { return try files.status(of: path) } catch {
      if error.errno == Errno.notDirectory.rawValue { return nil }
      throw error
    }
  }

  /// The names in a folder that is not yet a store. An interrupted creation leaves them, and the next one reuses them.
  private static let namesOfCreation: Set<String> = [".init.lock", "store.new", "packs", "catalog", "leases"]

  private func makeParents() throws(BlobStorageError) {
    if let status = try files.status(of: path) {
      let names = status.kind == .directory ? try files.list(path) : ["?"]
      if status.kind == .directory, try files.status(of: header) != nil {
        throw BlobStorageError(.storeExists, "There is a store at \(path) already.", path: path.string)
      }
      guard names.allSatisfy({ Self.namesOfCreation.contains($0) }) else {
        throw BlobStorageError(
          .notAStore, "\(path) holds something else: name an empty folder or one that does not exist.",
          path: path.string)
      }
      guard try !holdsPacks() else { throw lacksHeader }
      return
    }
    var missing: [FilePath] = [path]
    var parent = path.folder
    while !parent.isEmpty, try files.status(of: parent) == nil {
      missing.append(parent)
      parent = parent.folder
    }
    for folder in missing.reversed() { try makeDirectory(folder) }
  }

  private func makeDirectory(_ folder: FilePath) throws(BlobStorageError) {
    do { try files.createDirectory(folder) } catch {
      guard error.errno == Errno.fileExists.rawValue, try files.status(of: folder)?.kind == .directory else {
        throw error
      }
    }
  }
}

extension StoreFolder {
  /// The allocated bytes of all files of the store.
  package func allocatedByteCount() throws(BlobStorageError) -> Int64 {
    try files.allocatedByteCount(below: path)
  }
}

/// Restoring the file `store`.
extension StoreFolder {
  /// Restores the file `store` if it is missing, damaged, or another store's. Uses its copy in the census, or else the
  /// headers of all packs, with `defaults` for the rest. Moves the old file to `set-aside`, and the census of a store
  /// that the packs do not belong to.
  ///
  /// - Returns: whether it was restored.
  /// - Throws: the error of ``readHeader()`` if nothing shows the header's content; `corrupted` if the packs belong to
  ///   several stores.
  package func restoreHeader(defaults: StoreHeader) throws(BlobStorageError) -> Bool {
    var current: StoreHeader?
    var failure = BlobStorageError(.noStore, "There is no store at \(path).", path: path.string)
    do throws(BlobStorageError) { current = try readHeader() } catch { failure = error }
    let isFolder = try files.status(of: path)?.kind == .directory
    let hasCensus = isFolder ? try files.status(of: censusPath) != nil : false
    let hasPacks = try holdsPacks()
    // A state folder is not a store.
    let isState = isFolder ? try files.status(of: members) != nil : false
    guard hasCensus || hasPacks, !isState, current.map({ !$0.flags.contains(.stateOnly) }) ?? true
    else {
      if current != nil { return false }
      throw failure
    }
    let copy = try census.read().store.flatMap { bytes in
      bytes.withUnsafeBytes { (raw) -> StoreHeader? in try? StoreHeader(raw) }
    }
    if current == nil, failure.code == .unsupportedFormat { throw failure }
    let owner = try ownerOfPacks()
    func fits(_ header: StoreHeader) -> Bool {
      owner.map { $0.storeID == header.storeID && $0.digestAlgorithm == header.digestAlgorithm } ?? true
    }
    let isForeign = copy.map { !fits($0) } ?? false
    // The next opening makes a census from the packs.
    if isForeign { try setAside(censusPath, as: "census") }
    if let current, fits(current), copy == nil || copy == current || isForeign { return false }
    let restored: StoreHeader
    if let copy, fits(copy) {
      restored = copy
    } else if let owner {
      restored = StoreHeader(
        flags: defaults.flags, digestAlgorithm: owner.digestAlgorithm, codecNumber: defaults.codecNumber,
        level: defaults.level, averageChunkByteCount: defaults.averageChunkByteCount, storeID: owner.storeID,
        created: owner.created >> 16)
    } else {
      throw failure
    }
    try write(restored)
    return true
  }

  /// The header of the oldest pack; nil if no header is readable.
  private func ownerOfPacks() throws(BlobStorageError) -> PackHeader? {
    guard try files.status(of: packs)?.kind == .directory else { return nil }
    var oldest: PackHeader?
    for name in try files.listFiles(packs) {
      guard let pack = PackName(fileName: name) else { continue }
      // A collection may have removed it since the listing.
      guard let file = try files.openIfThere(packs.entry(name), .read) else { continue }
      defer { file.close() }
      let bytes = try unlessCorrupted(try PackFile(file).bytesThere(at: 0, PackHeader.byteCount))
      guard let header = bytes?.withUnsafeBytes({ (raw) -> PackHeader? in try? PackHeader(raw) }),
        header.name == pack
      else { continue }
      guard let known = oldest else {
        oldest = header
        continue
      }
      guard known.storeID == header.storeID, known.digestAlgorithm == header.digestAlgorithm else {
        throw BlobStorageError(
          .corrupted,
          "Packs \(known.name) and \(header.name) in \(path) belong to different stores: move one of them away.",
          path: path.string)
      }
      if header.created < known.created { oldest = header }
    }
    return oldest
  }

  private func write(_ restored: StoreHeader) throws(BlobStorageError) {
    if try files.status(of: header) != nil { try setAside(header, as: "store") }
    try files.replace(header, with: restored.encoded()).close()
  }

  private func setAside(_ file: FilePath, as name: String) throws(BlobStorageError) {
    try makePart(aside)
    try files.rename(file, to: aside.entry(name))
  }
}

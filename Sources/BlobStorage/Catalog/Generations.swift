import Logging
import SystemPackage

/// The generations of a catalog on the medium, and the file `state`, which names the generation in use.
struct Generations: Sendable {
  let folder: FilePath
  let files: any FileSystem
  let identity: MediumIdentity
  let live: LiveHolder
  let logger: Logger
  /// The inode of the folder; 0 if the store cannot be written. A copy of the store may share all files of the catalog by
  /// hard links, but not the folder. So files that bear this number belong to this store alone.
  let place: UInt64

  /// The folder for the locks of this store. A copy of the store has another.
  static func locks(in folder: FilePath, _ place: UInt64) -> FilePath {
    folder.entry("locks-" + Hex.text(place))
  }

  /// A `state` that this process read or wrote.
  struct OpenState: Sendable {
    var value: CatalogState
    /// The open file. It has lost its name once another process has replaced it.
    var file: any File
  }

  /// Removes all generations but one, and the locks of the store that this one is a copy of. `lock` is held exclusively.
  func removeAll(except kept: String?) throws(BlobStorageError) {
    let locks = Self.locks(in: folder, place).lastComponent?.string
    for name in try files.list(folder) where name.hasPrefix("g") || name.hasPrefix("locks-") {
      if name != kept, name != locks { try remove(name) }
    }
  }

  /// Removes the generations that killed or failed rebuilds and copies have left: `state` does not name them. `lock` is
  /// held exclusively.
  func removeLeftovers() {
    do throws(BlobStorageError) { try removeAll(except: try readState()?.value.generation) } catch {
      logger.debug("Old catalogs are not removed yet.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Removes a generation. `lock` is held exclusively.
  ///
  /// In place, because some file systems refuse to rename a folder. A process that has read an older `state` may open the
  /// folder meanwhile, where LMDB creates the files again: such a database is empty, and a later call removes it.
  func remove(_ name: String) throws(BlobStorageError) {
    let place = folder.entry(name)
    guard try files.status(of: place)?.kind == .directory else {
      try files.remove(place)
      return
    }
    // First the data: other processes check that its file has its name.
    try files.removeIfThere(place.entry("data.mdb"))
    do throws(BlobStorageError) {
      for file in try files.list(place) { try files.removeIfThere(place.entry(file)) }
      try files.removeDirectory(place)
    } catch {
      // The folder contains a foreign file and may stay.
      logger.warning("\(place) cannot be removed.", metadata: ["reason": "\(error.message)"])
    }
  }

  // MARK: The state file

  func readState() throws(BlobStorageError) -> OpenState? {
    let path = folder.entry("state")
    guard try files.status(of: path)?.kind == .regular, let file = try files.openIfThere(path, .read),
      let state = CatalogState(String(decoding: try file.bytesThere(at: 0, 2_048), as: UTF8.self))
    else { return nil }
    return OpenState(value: state, file: file)
  }

  /// Replaces `state` durably, before anything that depends on it is written. `lock` is held exclusively.
  func writeState(_ state: CatalogState) throws(BlobStorageError) -> OpenState {
    let table = live.table
    table?.beginNewCatalog()
    // Even on failure: the new file may already be in place.
    defer { table?.endNewCatalog() }
    let file = try files.replace(folder.entry("state"), with: Array(state.text.utf8))
    return OpenState(value: state, file: file)
  }

  /// Overwrites `state` in place, which needs no space on a full disk. If a power cut tears it, it is invalid or still
  /// has the old checksum, which a changed catalog does not match.
  func overwriteState(
    _ known: CatalogState, with state: CatalogState
  ) throws(BlobStorageError) -> OpenState {
    let file = try files.open(folder.entry("state"), .readWrite)
    do throws(BlobStorageError) {
      var bytes = Array(state.text.utf8)
      bytes += Array(repeating: UInt8(ascii: "\n"), count: max(0, known.text.utf8.count - bytes.count))
      try file.put(bytes, at: 0)
      try file.synchronize()
    } catch {
      file.close()
      throw error
    }
    return OpenState(value: state, file: file)
  }

  /// Returns `state` if the database's file is the one that it describes; else nil.
  ///
  /// While processes write to the file, only its inode is compared. A clean file must match its checksum. It is not
  /// read again while its mark, inode, length and ctime show that nothing changed it in this boot.
  ///
  /// - Complexity: O(1) within a boot. Reads the whole file after another boot, for a copy, and after any change to it.
  func verified(_ state: OpenState, isAlone: Bool) throws(BlobStorageError) -> OpenState? {
    var value = state.value
    let path = databaseFile(value.generation)
    guard try files.status(of: path)?.kind == .regular, let file = try files.openIfThere(path, .read) else {
      return nil
    }
    defer { file.close() }
    let status = try file.status()
    let isOwn = value.folder == place
    guard let clean = value.clean else { return isOwn && status.inode == value.inode ? state : nil }
    // In a copy of a store, never change what its original may use.
    if !isOwn, try isShared(value.generation) { return nil }
    let isUntouched =
      isOwn && identity.trusts(value.mark) && status.inode == value.inode
      && status.byteCount == clean.byteCount && status.changed == clean.changed
    // A change in the clock tick in which `state` was written would leave the same time.
    if isUntouched, clean.changed < (try state.file.status().changed) { return state }
    var found: CleanFile?
    do throws(BlobStorageError) {
      if status.byteCount == clean.byteCount { found = try CleanFile(file) }
    } catch {
      // LMDB reads through a map, where the same I/O error would end the process.
      guard error.code == .io else { throw error }
    }
    guard let found, found.byteCount == clean.byteCount, found.checksum == clean.checksum else {
      // Without `lock`, another process may have started to write meanwhile.
      if isAlone { logger.warning("The catalog's file does not match its checksum: it is rebuilt.") }
      return nil
    }
    guard isAlone, !isUntouched else { return state }
    value = CatalogState(
      generation: value.generation, mark: identity.mark(with: value.mark), folder: place,
      inode: status.inode, clean: found)
    do throws(BlobStorageError) { return try writeState(value) } catch {
      logger.debug("The catalog will be read whole again.", metadata: ["reason": "\(error.message)"])
      return state
    }
  }

  /// Whether a file of a generation has another name, in a copy of the store.
  func isShared(_ generation: String) throws(BlobStorageError) -> Bool {
    for name in ["data.mdb", "lock.mdb"] {
      if let status = try files.status(of: folder.entry(generation).entry(name)), status.linkCount > 1 {
        return true
      }
    }
    return false
  }

  /// Copies the file of a database to another generation, whose folder is empty. No process writes to it meanwhile.
  func copy(_ generation: String, to target: String) throws(BlobStorageError) -> any File {
    let source = try files.open(databaseFile(generation), .read)
    defer { source.close() }
    let file = try files.open(databaseFile(target), .create)
    do throws(BlobStorageError) { try source.copyBytes(to: file) } catch {
      file.close()
      throw error
    }
    return file
  }

  /// The database's file of a generation.
  func databaseFile(_ generation: String) -> FilePath { folder.entry(generation).entry("data.mdb") }
}

import Logging
import SystemPackage

/// The generations of a catalog on the medium, and the file `state`, which names the generation in use.
struct Generations: Sendable {
  let folder: FilePath
  let files: any FileSystem
  let identity: MediumIdentity
  let live: LiveHolder
  let logger: Logger

  /// A `state` that this process read or wrote.
  struct OpenState: Sendable {
    var value: CatalogState
    /// The open file. It has lost its name once another process has replaced it.
    var file: any File
  }

  /// Removes all generations but one. `lock` is held exclusively.
  func removeAll(except kept: String?) throws(BlobStorageError) {
    for name in try files.list(folder) where name.hasPrefix("g") && name != kept {
      try remove(name)
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
  func remove(_ name: String) throws(BlobStorageError) {
    var place = folder.entry(name)
    guard try files.status(of: place)?.kind == .directory else {
      try files.remove(place)
      return
    }
    if !name.hasSuffix(".old") {
      // Renamed first: another process that has read an older `state` may open the folder now, and LMDB would create
      // the files again.
      let old = folder.entry(name + ".old")
      try files.rename(place, to: old)
      place = old
    }
    do throws(BlobStorageError) {
      for file in try files.list(place) { try files.remove(place.entry(file)) }
      try files.removeDirectory(place)
    } catch {
      // The folder contains a foreign file and may stay. Other processes only check that `data.mdb` is gone.
      guard try files.status(of: place.entry("data.mdb")) == nil else { throw error }
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
    guard let clean = value.clean else { return status.inode == value.inode ? state : nil }
    let isUntouched =
      identity.trusts(value.mark) && status.inode == value.inode && status.byteCount == clean.byteCount
      && status.changed == clean.changed
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
      generation: value.generation, mark: identity.mark(with: value.mark), inode: status.inode, clean: found)
    do throws(BlobStorageError) { return try writeState(value) } catch {
      logger.debug("The catalog will be read whole again.", metadata: ["reason": "\(error.message)"])
      return state
    }
  }

  /// The database's file of a generation.
  func databaseFile(_ generation: String) -> FilePath { folder.entry(generation).entry("data.mdb") }
}

import Logging
import Synchronization
import SystemPackage

/// What the last process that leaves a catalog does for the next one.
extension Catalog {
  /// Leaves the catalog clean if no other process uses it: syncs it and records its checksum in `state`.
  ///
  /// - Complexity: reads the whole file if anything was written to it since it was clean, or copies it.
  func cleanUp(_ last: Current) throws(BlobStorageError) {
    guard let usersFile, last.state != nil, !isReadOnly else { return }
    // Unlocks first, so that the last of several closing processes gets the exclusive lock.
    try usersFile.unlock()
    guard try usersFile.lock(.exclusive, wait: false),
      // If an opening process holds it, that one cleans up when it closes.
      try lock(.exclusive, wait: false)
    else { return }
    defer { unlock() }
    guard let state = try generations.readState()?.value, state.clean == nil,
      state.generation == last.generation,
      !(try last.database.isSuperseded(files)), try isWorthChecking(last.database)
    else { return }
    // Whether the system may have dropped pages that it could not write, or cannot read them.
    var isTorn = false
    do throws(BlobStorageError) {
      guard
        try last.database.read({ (transaction) throws(BlobStorageError) in
          try transaction.countsOnMediumOnly(forcesSealed: hasAllPacks)
        })
      else { return }
      var generation = state.generation
      if let compact = compacted(last.database) {
        generation = compact
      } else {
        // A full thin volume drops pages, too, which a write that finds no room does not.
        isTorn = true
        try last.database.synchronize()
        isTorn = false
      }
      let file = try files.open(generations.databaseFile(generation), .read)
      defer { file.close() }
      isTorn = true
      let clean = try CleanFile(file)
      isTorn = false
      _ = try generations.writeState(
        CatalogState(
          generation: generation, mark: identity.mark(with: state.mark), folder: generations.place,
          inode: try file.status().inode, clean: clean))
      try generations.removeAll(except: generation)
    } catch {
      generations.removeLeftovers()
      // The next process must then rebuild it. A process that had no descriptor left, say, has lost nothing.
      if isTorn { try files.remove(folder.entry("state")) }
      throw error
    }
  }

  /// Whether to read the whole file for its checksum. This must not dominate a short use of a large catalog.
  ///
  /// Without the checksum the next boot rebuilds the catalog, which costs about 5 µs a chunk. Reading costs at most a
  /// twentieth of the time that the catalog was open for, if a GiB takes a second.
  private func isWorthChecking(_ database: Database) throws(BlobStorageError) -> Bool {
    let byteCount = try database.byteCount()
    let now = PassingTime.coarseMilliseconds()
    return byteCount <= Self.checkedByteCount
      || now >= openedAt && Int64(now - openedAt) >= byteCount / (50 << 10)
  }

  /// Copies the catalog durably into a new generation with full pages and returns its name. Returns nil if no copy is
  /// needed or the copy fails: the generation in use is as good.
  ///
  /// LMDB reuses free pages but never shortens the file, and rows inserted in random order fill their pages to about
  /// 69 %. The last process to close the catalog copies it if that is worth it.
  func compacted(_ database: Database) -> String? {
    let generation = "g" + Hex.text(randomNumber())
    let place = folder.entry(generation)
    do throws(BlobStorageError) {
      let byteCount = try database.byteCount()
      guard byteCount >= Self.compactedByteCountMin,
        try database.hasChangedSinceCopy()
      else { return nil }
      try files.createPart(place)
      try files.open(place.entry("data.mdb"), .create).close()
      try database.copy(to: place)
      try SharedDatabases.open(place, for: self).storeCounts()
      let file = try files.open(place.entry("data.mdb"), .read)
      defer { file.close() }
      try file.synchronize()
      try files.syncDirectory(place)
      return generation
    } catch {
      logger.debug("The catalog was not made smaller.", metadata: ["reason": "\(error.message)"])
      do throws(BlobStorageError) { try generations.remove(generation) } catch {
        // The next rebuild removes it.
      }
      return nil
    }
  }

  /// Smaller files are not copied.
  private static let compactedByteCountMin: Int64 = 256 << 10
}

import SystemPackage

extension FileSystem {
  /// Opens a file; nil if it does not exist.
  package func openIfThere(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> (any File)? {
    do { return try open(path, intent) } catch {
      guard error.isMissingName else { throw error }
      return nil
    }
  }

  /// Opens a file; nil if the path is free, or has a folder, a link, a socket or a pipe.
  func openIfRegular(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> (any File)? {
    do throws(BlobStorageError) { return try openIfThere(path, intent) } catch {
      guard let status = try status(of: path), status.kind != .regular else { throw error }
      return nil
    }
  }

  /// The error to report for a path that a file of the store needs: a clearer one if something else is there.
  func explained(_ error: BlobStorageError, _ path: FilePath) -> BlobStorageError {
    guard let status = try? status(of: path), status.kind != .regular else { return error }
    return BlobStorageError(
      .io, "\(path) is no file: the store needs a file there, so move it away.", path: path.string,
      errno: error.errno)
  }

  /// Whether `path` names this open file. Its link count does not tell: hard links of a copied folder may keep a file
  /// that has lost its name here.
  package func names(_ path: FilePath, _ file: any File) throws(BlobStorageError) -> Bool {
    let status = try file.status()
    guard status.linkCount > 0 else { return false }
    return try self.status(of: path)?.identity == status.identity
  }

  /// Opens a file, creates it if it is missing, and locks it exclusively; nil if another holder keeps the lock for
  /// `seconds`. `path` names the file then: a holder may replace it.
  func openLocked(
    _ path: FilePath, withinSeconds seconds: Double
  ) throws(BlobStorageError) -> (any File)? {
    while true {
      let file = try open(path, .openOrCreate)
      do throws(BlobStorageError) {
        guard try file.lock(.exclusive, withinSeconds: seconds) else {
          file.close()
          return nil
        }
        if try names(path, file) { return file }
      } catch {
        file.close()
        throw error
      }
      file.close()
    }
  }

  /// Removes a file; does nothing if it does not exist.
  func removeIfThere(_ path: FilePath) throws(BlobStorageError) {
    do { try remove(path) } catch {
      guard error.isMissingName else { throw error }
    }
  }

  /// Removes a file, and ignores errors: for files that do no harm if they stay.
  package func discard(_ path: FilePath) { do throws(BlobStorageError) { try remove(path) } catch {} }

  /// Replaces or creates a file with these bytes, durably. After a crash the file is the old one or the new one, never
  /// a mix.
  ///
  /// Writes a temporary file and renames it.
  ///
  /// - Parameter temporary: its path; nil for the file's own with the suffix `.new`. The caller excludes that two
  ///   replacements use one at the same time.
  /// - Returns: the new file, for reading and writing.
  package func replace(
    _ path: FilePath, with bytes: [UInt8], through temporary: FilePath? = nil
  ) throws(BlobStorageError) -> any File {
    let temporary = temporary ?? path.withSuffix(".new")
    var file: (any File)?
    do throws(BlobStorageError) {
      let new = try openTemporary(temporary)
      file = new
      try new.truncate(to: 0)
      try new.put(bytes, at: 0)
      try new.synchronize()
      try rename(temporary, to: path)
      try syncDirectory(path.folder)
      return new
    } catch {
      file?.close()
      // On a full disk, what was written of it would take the room that others need.
      if file != nil { discard(temporary) }
      throw explained(explained(error, temporary), path)
    }
  }

  private func openTemporary(_ path: FilePath) throws(BlobStorageError) -> any File {
    if let file = try openIfRegular(path, .openOrCreate) {
      if try file.status().linkCount <= 1 { return file }
      // A crash has left it, and a copy of the folder shares it by a hard link.
      file.close()
    }
    discard(path)
    return try open(path, .openOrCreate)
  }
}

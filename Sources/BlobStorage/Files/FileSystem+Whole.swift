import SystemPackage

extension FileSystem {
  /// Opens a file; nil if it does not exist.
  package func openIfThere(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> (any File)? {
    do { return try open(path, intent) } catch {
      guard error.isMissingName else { throw error }
      return nil
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
    let file = try open(temporary, .openOrCreate)
    do throws(BlobStorageError) {
      try file.truncate(to: 0)
      try file.put(bytes, at: 0)
      try file.synchronize()
      try rename(temporary, to: path)
      try syncDirectory(path.folder)
      return file
    } catch {
      file.close()
      // On a full disk, what was written of it would take the room that others need.
      discard(temporary)
      throw error
    }
  }
}

import SystemPackage

/// The file `census` of a store.
///
/// Any process appends lines, each with one write. Only the holder of the collection lock appends `removed`,
/// `set-aside`, `unreadable` and `accepted`. Collections replace the file, and so does an append that finds that it has
/// two names, in a copy of the store: each holds the lock of the old file. A line that is appended to the old file
/// meanwhile reaches the new one: its process appends it again if the old file has lost its name, else the replacing
/// one does.
package struct CensusFile: CensusLog {
  private let path: FilePath
  private let files: any FileSystem

  package init(_ path: FilePath, files: any FileSystem) {
    self.path = path
    self.files = files
  }

  /// Reads the census; empty if there is no file.
  package func read() throws(BlobStorageError) -> Census {
    guard let file = try open(.read) else { return Census() }
    defer { file.close() }
    return try read(file)
  }

  private func open(_ intent: OpenIntent) throws(BlobStorageError) -> (any File)? {
    do throws(BlobStorageError) { return try files.openIfThere(path, intent) } catch {
      throw files.explained(error, path)
    }
  }

  private func read(_ file: any File) throws(BlobStorageError) -> Census {
    let byteCount = try file.status().byteCount
    guard byteCount <= BlobLimits.censusByteCountMax else {
      throw BlobStorageError(
        .corrupted, "The census \(path) has \(byteCount) bytes, more than its maximum: remove it.",
        path: path.string)
    }
    let bytes = try file.bytesThere(at: 0, Int(byteCount))
    return bytes.withUnsafeBytes { Census($0) }
  }

  package func append(_ events: [Census.Event], durably: Bool) throws(BlobStorageError) {
    guard !events.isEmpty else { return }
    for _ in 0..<Self.attemptCountMax where try appendOnce(events, durably: durably) { return }
    throw busy
  }

  /// Collections do not replace the file more often while a process appends.
  private static let attemptCountMax = 8

  private var busy: BlobStorageError {
    BlobStorageError(
      .busy, "Another program keeps replacing the census \(path): end it, or try again later.",
      path: path.string)
  }

  /// - Returns: whether the file was not replaced meanwhile.
  private func appendOnce(_ events: [Census.Event], durably: Bool) throws(BlobStorageError) -> Bool {
    let file = try files.open(path, .append)
    defer { file.close() }
    if try file.status().linkCount > 1 {
      // A copy of the store shares it by a hard link.
      try replace(file) { $0 }
      return false
    }
    try bridge(Census.text(events)) { (text) throws(BlobStorageError) in try file.append(text) }
    reserveRoom(in: file)
    if durably {
      try file.synchronize()
      try files.syncDirectory(path.folder)
    }
    return try files.names(path, file)
  }

  /// Allocates space for the next lines, so that gc can remove packs from a full disk: a removal appends lines first.
  private func reserveRoom(in file: any File) {
    do throws(BlobStorageError) {
      let status = try file.status()
      let reserved = status.byteCount + Self.reservedByteCount
      if status.allocatedByteCount < reserved { try file.reserve(byteCount: reserved) }
    } catch {
      // The disk has no space now. The next append tries again.
    }
  }

  /// Room for the lines of 39 removed packs, 105 bytes each.
  private static let reservedByteCount: Int64 = 4 << 10

  package func replace(by census: Census) throws(BlobStorageError) {
    guard let old = try files.openIfThere(path, .read) else {
      return try files.replace(path, with: Census.text(census.events)).close()
    }
    defer { old.close() }
    try replace(old) { _ in census }
  }

  /// Replaces the open file, unless another process has done so.
  ///
  /// - Parameter new: returns what the new file says, given the old one.
  private func replace(_ old: any File, by new: (Census) -> Census) throws(BlobStorageError) {
    guard try old.lock(.exclusive, withinSeconds: Self.patienceSeconds) else { throw busy }
    guard try files.names(path, old) else { return }
    let census = new(try read(old))
    let file = try files.replace(path, with: Census.text(census.events))
    defer { file.close() }
    reserveRoom(in: file)
    // After the rename: a process that appends to the old file from now on sees that it has lost its name.
    let last = try read(old)
    if last.lineCount != census.lineCount { try append(last.events, durably: true) }
  }

  /// A replacement takes milliseconds.
  private static let patienceSeconds = 10.0
}

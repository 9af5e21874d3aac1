import SystemPackage

/// The file `census` of a store.
///
/// Any process appends lines, each with one write. Only the holder of the collection lock replaces the file or appends
/// `removed`, `set-aside`, `unreadable` and `accepted`. A line that is appended to the old file during a replacement
/// reaches the new one: its process appends it again if the old file has lost its name, else the replacing one does.
package struct CensusFile: CensusLog {
  private let path: FilePath
  private let files: any FileSystem

  package init(_ path: FilePath, files: any FileSystem) {
    self.path = path
    self.files = files
  }

  /// Reads the census; empty if there is no file.
  package func read() throws(BlobStorageError) -> Census {
    guard let file = try files.openIfThere(path, .read) else { return Census() }
    defer { file.close() }
    return try read(file)
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
  }

  /// Collections do not replace the file more often while a process appends.
  private static let attemptCountMax = 8

  /// - Returns: whether the file was not replaced meanwhile.
  private func appendOnce(_ events: [Census.Event], durably: Bool) throws(BlobStorageError) -> Bool {
    let file = try files.open(path, .append)
    defer { file.close() }
    try bridge(Census.text(events)) { (text) throws(BlobStorageError) in try file.append(text) }
    let isNamed = reserveRoom(in: file)
    guard durably else { return isNamed }
    try file.synchronize()
    try files.syncDirectory(path.folder)
    return isNamed
  }

  /// Allocates space for the next lines, so that gc can remove packs from a full disk: a removal appends lines first.
  ///
  /// - Returns: whether the file still had its name.
  @discardableResult
  private func reserveRoom(in file: any File) -> Bool {
    do throws(BlobStorageError) {
      let status = try file.status()
      if status.linkCount == 0 { return false }
      let reserved = status.byteCount + Self.reservedByteCount
      if status.allocatedByteCount < reserved { try file.reserve(byteCount: reserved) }
    } catch {
      // The disk has no space now. The next append tries again.
    }
    return true
  }

  /// Room for the lines of 39 removed packs, 105 bytes each.
  private static let reservedByteCount: Int64 = 4 << 10

  package func replace(by census: Census) throws(BlobStorageError) {
    let old = try files.openIfThere(path, .read)
    defer { old?.close() }
    let file = try files.replace(path, with: Census.text(census.events))
    defer { file.close() }
    reserveRoom(in: file)
    // After the rename: a process that appends to the old file from now on sees that it has lost its name.
    if let old {
      let last = try read(old)
      if last.lineCount != census.lineCount { try append(last.events, durably: true) }
    }
  }
}

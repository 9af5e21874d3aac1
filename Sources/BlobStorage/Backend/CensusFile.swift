import SystemPackage

/// The file `census` of a store.
///
/// Any process appends lines, each with one write. Only the holder of the collection lock replaces the file or appends
/// `removed`, `set-aside`, `unreadable` and `accepted`. A line appended during a replacement may be lost. A later
/// opening derives it again from the packs.
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
    let file = try files.open(path, .append)
    defer { file.close() }
    try bridge(Census.text(events)) { (text) throws(BlobStorageError) in try file.append(text) }
    reserveRoom(in: file)
    guard durably else { return }
    try file.synchronize()
    try files.syncDirectory(path.folder)
  }

  /// Allocates space for the next lines, so that gc can remove packs from a full disk: each removal appends a line.
  private func reserveRoom(in file: any File) {
    do throws(BlobStorageError) {
      let status = try file.status()
      let reserved = status.byteCount + Self.reservedByteCount
      if status.allocatedByteCount < reserved { try file.reserve(byteCount: reserved) }
    } catch {
      // The disk has no space now. The next append tries again.
    }
  }

  /// More than the lines that one collection appends.
  private static let reservedByteCount: Int64 = 4 << 10

  package func replace(by census: Census) throws(BlobStorageError) {
    let file = try files.replace(path, with: Census.text(census.events))
    defer { file.close() }
    reserveRoom(in: file)
  }
}

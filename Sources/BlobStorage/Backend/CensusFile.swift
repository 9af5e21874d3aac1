import SystemPackage

/// The file `census` of a store.
///
/// Any process appends lines, each with one write. Only the holder of the collection lock replaces the file or appends
/// `removed`, `set-aside`, `unreadable` and `accepted`. A line that is appended while the file is replaced may be
/// lost; a later opening works it out again from the packs.
package struct CensusFile: CensusLog {
  private let path: FilePath
  private let files: any FileSystem

  package init(_ path: FilePath, files: any FileSystem) {
    self.path = path
    self.files = files
  }

  /// What the file says; an empty census where there is none.
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
    guard durably else { return }
    try file.synchronize()
    try files.syncDirectory(path.folder)
  }

  package func replace(by census: Census) throws(BlobStorageError) {
    try files.replace(path, with: Census.text(census.events)).close()
  }
}

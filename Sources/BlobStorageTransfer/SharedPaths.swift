import BlobStorage
import BlobStorageCache

/// Paths that an export would write twice. A key that begins with the prefix to strip and one that does not may have
/// the same path. Or one may have the path of a folder above the other.
///
/// Memory: the paths of keys that do not begin with the prefix, if not all keys do.
struct SharedPaths {
  private let options: ExportOptions
  /// Paths of the keys that do not begin with the prefix, and of the folders above them.
  private var whole: Set<[UInt8]> = []
  private var folders: Set<[UInt8]> = []
  private var claimed: Set<[UInt8]> = []

  init(_ engine: Engine, _ options: ExportOptions, _ reads: CacheReads?) throws(BlobStorageError) {
    self.options = options
    let stripped = options.stripped.start.utf8
    guard !stripped.isEmpty, options.prefix.own != nil || !options.prefix.start.utf8.starts(with: stripped)
    else { return }
    var source = try ExportSource(engine, options, reads)
    defer { source.close() }
    while let page = try source.next() {
      try CancellationFlag.check()
      for version in page where !isStripped(version) {
        guard let path = VersionWriter.path(of: version, options) else { continue }
        whole.insert(path)
        folders.formUnion(Self.folders(above: path))
      }
    }
  }

  /// Paths that are to be both a file and a folder because of this key.
  func doublePaths(_ version: BlobVersion) -> [[UInt8]] {
    guard !whole.isEmpty, isStripped(version), let path = VersionWriter.path(of: version, options) else {
      return []
    }
    return (folders.contains(path) ? [path] : []) + Self.folders(above: path).filter { whole.contains($0) }
  }

  /// Claims the path of a key; false if an earlier key has claimed it.
  mutating func claim(_ version: BlobVersion) -> Bool {
    guard !whole.isEmpty, let path = VersionWriter.path(of: version, options), whole.contains(path) else {
      return true
    }
    return claimed.insert(path).inserted
  }

  private func isStripped(_ version: BlobVersion) -> Bool {
    version.key.utf8.starts(with: options.stripped.start.utf8)
  }

  private static func folders(above path: [UInt8]) -> [[UInt8]] {
    path.indices.filter { path[$0] == UInt8(ascii: "/") }.map { Array(path[..<$0]) }
  }
}

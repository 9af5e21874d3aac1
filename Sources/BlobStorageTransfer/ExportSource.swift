import BlobStorage
import BlobStorageCache
import BlobStorageTrees

/// Lists the versions that an export writes, a page at a time: the current versions, or those of a state.
struct ExportSource {
  private static let countMax = 500

  private let engine: Engine
  private let options: ExportOptions
  private let reads: CacheReads?
  private let patterns: [KeyPattern]
  private var pages: KeyPages
  private let walk: StateWalk?
  /// Keys of the state whose versions were deleted, since the last `removeMissing()`.
  private(set) var missing: [String] = []

  /// - Parameter reads: the rules of the store's cache.
  init(_ engine: Engine, _ options: ExportOptions, _ reads: CacheReads?) throws(BlobStorageError) {
    self.engine = engine
    self.options = options
    self.reads = reads
    patterns = options.patterns.map(KeyPattern.init)
    pages = KeyPages(engine.catalog, prefix: options.prefix, countMax: Self.countMax)
    walk = try options.state.map { (state) throws(BlobStorageError) in try StateFile(engine).walk(state) }
  }

  func close() { walk?.close() }

  mutating func removeMissing() -> [String] {
    defer { missing = [] }
    return missing
  }

  /// The versions of the next page of keys; nil after the last page.
  mutating func next() throws(BlobStorageError) -> [BlobVersion]? {
    guard let walk else {
      return try pages.next(KeyPages.entry).map { page in
        CacheReads.valid(page.map(\.current).filter { matches($0.key) }, by: reads)
      }
    }
    var entries: [(key: [UInt8], stamp: Stamp)] = []
    var isAtEnd = true
    while let entry = try walk.next() {
      guard case .version(let stamp) = entry.content, options.prefix.contains(entry.key) else {
        continue
      }
      entries.append((entry.key, stamp))
      if entries.count == Self.countMax {
        isAtEnd = false
        break
      }
    }
    if entries.isEmpty, isAtEnd { return nil }
    var versions: [BlobVersion] = []
    let known = missing
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      // It runs again if it finds the catalog damaged.
      (versions, missing) = ([], known)
      for (bytes, stamp) in entries {
        let key = String(decoding: bytes, as: UTF8.self)
        guard matches(key) else { continue }
        let kept = try transaction.keptVersion(ofKey: bytes, stamp).map {
          BlobVersion(key: key, stamp: $0.stamp, row: $0.row)
        }
        if let kept, reads?.isExpired(kept) != true { versions.append(kept) } else { missing.append(key) }
      }
    }
    return versions
  }

  private func matches(_ key: String) -> Bool {
    patterns.isEmpty || patterns.contains { $0.matches(key) }
  }
}

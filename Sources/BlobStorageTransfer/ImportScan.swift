import BlobStorage
import SystemPackage

/// What an import has before it: counted before anything is read, so that the progress can say how much is left.
struct ImportScan {
  var count = 0
  var byteCount: Int64 = 0
  /// Those of them that are as at the last import.
  var unchangedCount = 0
  var unchangedByteCount: Int64 = 0
  var unchangedLinkCount = 0
  /// The others and the folders, the first one last; nil when there are too many to be kept, and all have to be looked for again.
  private(set) var items: [ImportItem]? = []
  private(set) var skipped: [SkippedFile] = []

  /// Some 300 bytes each.
  static let sourceCountMax = 32_768
  private static let pathCountMax = 64

  /// Walks all paths.
  ///
  /// - Parameters:
  ///   - sourceCountMax: how many files to read are kept.
  ///   - progress: receives the files and bytes found so far, and the file that was just found unchanged.
  static func run(
    _ paths: [FilePath], _ engine: Engine, _ options: ImportOptions, _ context: ImportContext,
    sourceCountMax: Int,
    progress: (_ scan: ImportScan, _ unchanged: (ImportSource, BlobVersion)?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> ImportScan {
    var scan = ImportScan()
    var walk = ImportWalk(paths, options, store: context.store)
    // What is kept keeps the folders open that were named.
    if paths.count > pathCountMax { scan.items = nil }
    // Nothing has to be looked up in a store without such keys.
    var looksUp = false
    if !options.readsUnchanged { looksUp = try !engine.keys(options.prefix, after: nil, limit: 1).isEmpty }
    while let item = try walk.next() {
      try CancellationFlag.check()
      if case .source(let source) = item {
        scan.count += 1
        scan.byteCount += source.status.byteCount
        if looksUp, let version = try source.unchangedVersion(engine, context) {
          scan.unchangedCount += 1
          if source.isLink {
            scan.unchangedLinkCount += 1
          } else {
            scan.unchangedByteCount += source.status.byteCount
          }
          try progress(scan, (source, version))
          continue
        }
      }
      if (scan.items?.count ?? 0) < sourceCountMax {
        scan.items?.append(item)
      } else {
        scan.items = nil
      }
      try progress(scan, nil)
    }
    scan.items?.reverse()
    scan.skipped = walk.removeSkipped()
    return scan
  }

  /// The next of the items, in the order they were found in.
  mutating func next() -> ImportItem? { items?.popLast() }
}

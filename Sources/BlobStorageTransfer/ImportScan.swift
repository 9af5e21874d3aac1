import BlobStorage

/// What an import has before it: counted before anything is read, so that the progress can say how much is left.
struct ImportScan {
  var count = 0
  var byteCount: Int64 = 0
  /// Those of them that are as at the last import.
  var unchangedCount = 0
  var unchangedByteCount: Int64 = 0
  /// The others, the first one last; nil when there are too many to be kept, and all have to be looked for again.
  private(set) var sources: [ImportSource]? = []
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
    _ paths: [String], _ engine: Engine, _ options: ImportOptions, _ context: ImportContext,
    sourceCountMax: Int,
    progress: (_ scan: ImportScan, _ unchanged: ImportSource?) -> Void
  ) throws(BlobStorageError) -> ImportScan {
    var scan = ImportScan()
    var walk = ImportWalk(paths, options, store: context.store)
    // What is kept keeps the folders open that were named.
    if paths.count > pathCountMax { scan.sources = nil }
    // Nothing has to be looked up in a store without such keys.
    var looksUp = false
    if !options.readsUnchanged { looksUp = try !engine.keys(options.prefix, after: nil, limit: 1).isEmpty }
    while let source = try walk.next() {
      try CancellationFlag.check()
      scan.count += 1
      scan.byteCount += source.status.byteCount
      if looksUp, try source.isUnchanged(engine, context.presence) {
        scan.unchangedCount += 1
        scan.unchangedByteCount += source.status.byteCount
        progress(scan, source)
        continue
      } else if (scan.sources?.count ?? 0) < sourceCountMax {
        scan.sources?.append(source)
      } else {
        scan.sources = nil
      }
      progress(scan, nil)
    }
    scan.sources?.reverse()
    scan.skipped = walk.removeSkipped()
    return scan
  }

  /// The next of the sources, in the order they were found in.
  mutating func next() -> ImportSource? { sources?.popLast() }
}

import Foundation
import SystemPackage

/// Stores files and trees of files: short ones read, cut and encoded on all cores and committed in batches, long ones
/// one after the other through the pipeline.
final class Importer {
  private struct Source: Sendable {
    var path: FilePath
    var key: String
    var status: FileStatus
    /// Whether it begins like an image, an archive or a film.
    var isCompressed: Bool {
      do throws(BlobStorageError) {
        let file = try InputFile(path)
        var beginning = Data(count: 16)
        let count = try withBytes(&beginning) { (target) throws(BlobStorageError) in
          try file.read(into: target)
        }
        return beginning.prefix(count).withUnsafeBytes { CompressibilityHint(beginning: $0) }
          == .alreadyCompressed
      } catch {
        // What is wrong with it is found and reported when it is read whole.
        return false
      }
    }
  }

  /// What a file of a batch came to.
  private enum Outcome: Sendable {
    case unchanged
    case skipped(Skipped)
    case prepared(Engine.CommitItem)
  }

  private enum Work: Sendable {
    case batch([Source])
    case large(Source)
  }

  private enum Result: Sendable {
    case batch([(Source, Outcome)])
    case large(Source)
  }

  private static let shortByteCountMax: Int64 = 1 << 20
  /// The pipeline runs dry at the end of each file: it took 1.3 times as long for photographs of 0.5 to 5 MB. But what
  /// is prepared at the same time cannot be a base of each other: only files that need none may be this long.
  private static let shortByteCountMaxIfCompressed: Int64 = 8 << 20
  private static let batchByteCount: Int64 = 4 << 20
  private static let batchCount = 256

  private let engine: Engine
  private let options: ImportOptions
  private let putOptions: PutOptions
  private let progress: ProgressHandler
  private let excluded: [ShellPattern]
  private var report = ImportReport()
  private var shared = Engine.SharedPacks()
  private var watermarks: [PackName: WriterSession.Watermark] = [:]
  /// Beginnings of the digests of chunks that a dry run would have stored already.
  private var planned: Set<UInt64> = []
  /// How many of them are remembered: chunks that repeat beyond are counted as new, and memory stays bounded.
  private static let plannedCountMax = 1 << 20
  private var lastProgress = Date.distantPast
  private var seenByteCount: Int64 = 0
  private var seenCount = 0

  init(_ engine: Engine, _ options: ImportOptions, _ progress: ProgressHandler?) {
    self.engine = engine
    self.options = options
    self.progress = progress ?? { _ in }
    excluded = options.excluded.map(ShellPattern.init)
    putOptions = PutOptions(durability: .relaxed, replacement: options.replacement, codec: options.codec)
  }

  func run(_ paths: [String]) throws(BlobStorageError) -> ImportReport {
    let start = Date()
    try engine.checkOpen()
    for path in paths {
      do throws(BlobStorageError) { try run(FilePath(path)) } catch {
        // What is wrong with one path is not wrong with the others.
        guard error.path != nil, error.path?.hasPrefix(engine.folder.path.string) != true,
          error.errno != nil, error.code == .io || error.code == .permissionDenied
        else { throw error }
        skip(path, error.message, isFailure: true)
      }
    }
    if options.durability == .durable, !options.isDryRun {
      // One sync for all: the report is what says that the files are stored.
      for watermark in watermarks.values { try engine.writer.synchronize(watermark) }
      try engine.makeDurable(.durable, nil, shared)
    }
    tell(force: true)
    report.seconds = Date().timeIntervalSince(start)
    return report
  }

  private func run(_ path: FilePath) throws(BlobStorageError) {
    guard let status = try SystemFiles().status(of: path) else {
      skip(path.string, "there is no such file", isFailure: true)
      return
    }
    var walker: DirectoryWalker?
    var single: Source?
    switch status.kind {
    case .directory: walker = try DirectoryWalker(root: path)
    case .regular:
      single = Source(path: path, key: options.prefix + (path.lastComponent?.string ?? ""), status: status)
    case .symbolicLink:
      // Named by the user, so followed, as a shell would.
      do throws(BlobStorageError) { walker = try DirectoryWalker(root: path) } catch {
        skip(path.string, "it is a symbolic link", isFailure: false)
      }
    case .other: skip(path.string, "it is not a regular file", isFailure: false)
    }
    var held: Source?
    try engine.work.orderedMap(
      // Each is up to `batchByteCount` and one file more, plain and once more encoded.
      inFlightMax: engine.work.width + 2,
      next: { () throws(BlobStorageError) -> Work? in
        try CancellationFlag.check()
        var batch: [Source] = []
        var byteCount: Int64 = 0
        while true {
          guard let source = held ?? single.take() ?? self.nextSource(&walker, path) else { break }
          held = nil
          if !(try self.isShort(source)) {
            if batch.isEmpty { return .large(source) }
            held = source
            break
          }
          batch.append(source)
          byteCount += source.status.byteCount
          if byteCount >= Self.batchByteCount || batch.count >= Self.batchCount { break }
        }
        return batch.isEmpty ? nil : .batch(batch)
      },
      transform: { [engine, options] (work) throws(BlobStorageError) in
        switch work {
        case .large(let source): return .large(source)
        case .batch(let sources):
          var outcomes: [(Source, Outcome)] = []
          for source in sources { outcomes.append((source, try Self.prepare(source, engine, options))) }
          return .batch(outcomes)
        }
      },
      consume: { (result: Result) throws(BlobStorageError) in
        switch result {
        case .large(let source): try self.takeLarge(source)
        case .batch(let outcomes): try self.take(outcomes)
        }
        self.tell()
      })
  }

  /// Whether the file can be held in memory whole; one that is unchanged is not read to find out.
  private func isShort(_ source: Source) throws(BlobStorageError) -> Bool {
    if source.status.byteCount <= Self.shortByteCountMax { return true }
    guard source.status.byteCount <= Self.shortByteCountMaxIfCompressed else { return false }
    return try Self.isUnchanged(source, engine, options) || source.isCompressed
  }

  // MARK: Finding files

  private func nextSource(_ walker: inout DirectoryWalker?, _ root: FilePath) -> Source? {
    while let item = walker?.next() {
      let shown = root.string + "/" + String(decoding: item.pathBytes, as: UTF8.self)
      if let path = item.path, isExcluded(path, isFolder: item.status?.kind == .directory) {
        if item.status?.kind == .directory, item.failure == nil { walker?.skipDescendants() }
        continue
      }
      if let failure = item.failure {
        skip(shown, failure.message, isFailure: true)
        continue
      }
      guard let status = item.status else { continue }
      switch status.kind {
      case .directory: continue
      case .symbolicLink: skip(shown, "it is a symbolic link", isFailure: false)
      case .other: skip(shown, "it is not a regular file", isFailure: false)
      case .regular:
        guard let path = item.path else {
          skip(shown, "its name is not UTF-8", isFailure: true)
          continue
        }
        let key = options.prefix + path
        guard key.utf8.count <= Limits.keyByteCountMax else {
          skip(shown, "its key would be longer than \(Limits.keyByteCountMax) bytes", isFailure: true)
          continue
        }
        return Source(path: root.appending(path), key: key, status: status)
      }
    }
    return nil
  }

  private func isExcluded(_ path: String, isFolder: Bool) -> Bool {
    excluded.contains { $0.matches(path: path, isFolder: isFolder) }
  }

  // MARK: Small files

  private static func prepare(
    _ source: Source, _ engine: Engine, _ options: ImportOptions
  ) throws(BlobStorageError) -> Outcome {
    if try isUnchanged(source, engine, options) { return .unchanged }
    do throws(BlobStorageError) {
      let file = try InputFile(source.path)
      // A file that grew is found by its status; one that says 0 may have bytes nevertheless, like those of /proc.
      var bytes = Data(count: Int(max(1, min(file.status.byteCount, shortByteCountMaxIfCompressed))))
      let count = try withBytes(&bytes) { (target) throws(BlobStorageError) in try file.read(into: target) }
      try file.checkUnchanged()
      guard Int64(count) == file.status.byteCount else {
        throw BlobStorageError(.sourceFailed, "it changed while it was read")
      }
      bytes.removeLast(bytes.count - count)
      let key = try Engine.keyBytes(source.key)
      let blob = try bridge(bytes) { (raw) throws(BlobStorageError) in
        try engine.prepare(
          raw, key: key, PutOptions(replacement: options.replacement, codec: options.codec))
      }
      return .prepared(
        Engine.CommitItem(
          key: key, blob: blob, data: bytes, metadata: FileMark(file.status).metadata))
    } catch {
      return .skipped(try skipped(source, error))
    }
  }

  private static func withBytes(
    _ data: inout Data, _ body: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> Int {
    let result: Swift.Result<Int, BlobStorageError> = data.withUnsafeMutableBytes { raw in
      do throws(BlobStorageError) { return .success(try body(raw)) } catch { return .failure(error) }
    }
    return try result.get()
  }

  private static func isUnchanged(
    _ source: Source, _ engine: Engine, _ options: ImportOptions
  ) throws(BlobStorageError) -> Bool {
    if options.readsUnchanged { return false }
    guard let current = try engine.version(source.key, nil), let mark = FileMark(metadata: current.metadata)
    else {
      return false
    }
    return mark == FileMark(source.status) && current.byteCount == source.status.byteCount
  }

  /// Errors of the file itself leave it out; errors of the store end the import.
  private static func skipped(_ source: Source, _ error: BlobStorageError) throws(BlobStorageError) -> Skipped
  {
    let isOfFile = error.path != nil && error.path?.hasSuffix(source.path.string) == true
    guard isOfFile || error.code == .sourceFailed else { throw error }
    return Skipped(path: source.path.string, reason: error.message, isFailure: true)
  }

  private func take(_ outcomes: [(Source, Outcome)]) throws(BlobStorageError) {
    var items: [Engine.CommitItem] = []
    for (source, outcome) in outcomes {
      seenCount += 1
      seenByteCount += source.status.byteCount
      switch outcome {
      case .skipped(let skipped): report.skipped.append(skipped)
      case .unchanged: countUnchanged(source)
      case .prepared(let item): items.append(item)
      }
    }
    guard !items.isEmpty else { return }
    if options.isDryRun {
      for item in items { try plan(item.blob) }
      return
    }
    let (results, watermark) = try engine.commit(items, options.replacement, &shared)
    if let watermark { watermarks[watermark.pack] = watermark }
    for result in results { count(result) }
  }

  // MARK: Large files

  private func takeLarge(_ source: Source) throws(BlobStorageError) {
    seenCount += 1
    defer { seenByteCount += source.status.byteCount }
    if try Self.isUnchanged(source, engine, options) {
      countUnchanged(source)
      return
    }
    do throws(BlobStorageError) {
      let file = try InputFile(source.path)
      if options.isDryRun {
        try planLarge(file)
        return
      }
      var options = putOptions
      options.metadata = FileMark(file.status).metadata
      var put = try StreamPut(engine, options)
      put.progress = { [seenByteCount] done in self.tell(extra: done, base: seenByteCount) }
      let (result, watermark) = try put.run(
        try Engine.keyBytes(source.key), &shared,
        beforeCommit: { () throws(BlobStorageError) in try file.checkUnchanged() }
      ) { (target) throws(BlobStorageError) in try file.read(into: target) }
      if let watermark { watermarks[watermark.pack] = watermark }
      count(result)
    } catch {
      report.skipped.append(try Self.skipped(source, error))
    }
  }

  // MARK: Counting

  private func count(_ result: PutResult) {
    report.fileCount += 1
    report.newFileCount += 1
    report.byteCount += result.version.byteCount
    report.newByteCount += result.newByteCount
    report.duplicateByteCount += result.version.byteCount - result.newByteCount
    report.storedByteCount += result.storedByteCount
  }

  private func countUnchanged(_ source: Source) {
    report.fileCount += 1
    report.unchangedFileCount += 1
    report.byteCount += source.status.byteCount
    report.duplicateByteCount += source.status.byteCount
  }

  /// Counts what a put would store.
  private func plan(_ blob: Engine.PreparedBlob) throws(BlobStorageError) {
    report.fileCount += 1
    report.newFileCount += 1
    report.byteCount += Int64(blob.byteCount)
    for chunk in blob.chunks {
      if let encoded = chunk.encoded, isPlannedFirst(chunk.digest) {
        report.newByteCount += Int64(chunk.range.count)
        report.storedByteCount += Int64(encoded.stored?.count ?? chunk.range.count) + 60
      } else {
        report.duplicateByteCount += Int64(chunk.range.count)
      }
    }
    report.storedByteCount += 104
  }

  private func isPlannedFirst(_ digest: Digest) -> Bool {
    let beginning = digest.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
    guard planned.count < Self.plannedCountMax else { return !planned.contains(beginning) }
    return planned.insert(beginning).inserted
  }

  private func planLarge(_ file: InputFile) throws(BlobStorageError) {
    var cutter = Cutter(sizes: engine.sizes, batchByteCount: 1 << 20)
    report.fileCount += 1
    report.newFileCount += 1
    let codec = try engine.codecChoice(options.codec)
    while let (bytes, chunks) = try cutter.next({ (target) throws(BlobStorageError) in
      try file.read(into: target)
    }) {
      try CancellationFlag.check()
      report.byteCount += Int64(bytes.count)
      try bridge(bytes) { (raw) throws(BlobStorageError) in
        for range in chunks {
          let plain = UnsafeRawBufferPointer(rebasing: raw[range])
          let digest = Digest.of(plain, by: engine.header.digestAlgorithm)
          let isThere = try engine.catalog.read { (transaction) throws(BlobStorageError) in
            try transaction.chunkToShare(digest) != nil
          }
          guard !isThere, isPlannedFirst(digest) else {
            report.duplicateByteCount += Int64(range.count)
            continue
          }
          let encoded = try engine.encode(digest, plain, by: codec, hint: cutter.hint)
          report.newByteCount += Int64(range.count)
          report.storedByteCount += Int64(encoded.stored?.count ?? range.count) + 60
        }
      }
    }
    try file.checkUnchanged()
  }

  private func skip(_ path: String, _ reason: String, isFailure: Bool) {
    report.skipped.append(Skipped(path: path, reason: reason, isFailure: isFailure))
  }

  private func tell(force: Bool = false, extra: Int64 = 0, base: Int64? = nil) {
    let now = Date()
    guard force || now.timeIntervalSince(lastProgress) > 0.1 else { return }
    lastProgress = now
    progress(
      WorkProgress(
        phase: options.isDryRun ? "planning" : "importing", doneByteCount: (base ?? seenByteCount) + extra,
        doneCount: seenCount))
  }
}

import BlobStorage
import Foundation
import SystemPackage

/// Writes the current versions of keys as files below a folder, and nowhere else.
final class Exporter {
  private static let smallByteCountMax: Int64 = 4 << 20
  /// What one thread writes at a time: most neighbours lie in the same folders.
  private static let batchByteCount: Int64 = 1 << 20
  private static let batchCount = 64

  private enum Result: Sendable {
    case written
    /// The file was there with the same bytes.
    case unchanged
    case failed(SkippedFile, isDamage: Bool)
    case large
    /// The key was dropped since it was listed.
    case dropped
  }

  /// Where files are written, and where they may be from an export before.
  private struct Target: Sendable {
    /// Nil for a dry run.
    var folder: OutputFolder?
    /// Nil if the folder is new.
    var existing: InputFolder?
  }

  private let engine: Engine
  private let options: ExportOptions
  private let patterns: [KeyPattern]
  private let progress: ProgressHandler
  private let onFile: TransferHandler?
  private var report = ExportReport()
  private var (doneCount, totalCount) = (0, 0)
  private var (doneByteCount, totalByteCount): (Int64, Int64) = (0, 0)
  private var lastProgress = Date.distantPast

  init(
    _ engine: Engine, _ options: ExportOptions, _ progress: ProgressHandler?, _ onFile: TransferHandler?
  ) {
    self.onFile = onFile
    self.engine = engine
    self.options = options
    patterns = options.patterns.map(KeyPattern.init)
    report.isDryRun = options.isDryRun
    self.progress = progress ?? { _ in }
  }

  func run(_ path: String) throws(BlobStorageError) -> ExportReport {
    let start = Date()
    try engine.checkOpen()
    let files = SystemFiles()
    let store = try files.status(of: engine.folder.path)?.identity
    if let store, store.contains(FilePath(path)) {
      throw BlobStorageError(
        .invalidArgument, "\(path) belongs to the store itself: export to a folder outside of it.", path: path
      )
    }
    // Nothing to write is no reason to make a folder.
    if !options.prefix.isEmpty, try engine.keys(options.prefix, after: nil, limit: 1).isEmpty {
      return report
    }
    let target = try target(FilePath(path), excluding: store)
    let limiter = try RateLimiter(bytesPerSecond: options.maximumByteRate, time: engine.environment.time)
    try scan()
    var pages = keyPages()
    var page: ArraySlice<BlobVersion> = []
    let (engine, options) = (engine, options)
    try engine.work.orderedMap(
      inFlightMax: engine.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> [BlobVersion]? in
        try CancellationFlag.check()
        if page.isEmpty {
          try engine.checkOpen()
          // A page may have no key that matches.
          while page.isEmpty, let next = try next(&pages) { page = next[...] }
        }
        var batch: [BlobVersion] = []
        var byteCount: Int64 = 0
        while batch.count < Self.batchCount, byteCount < Self.batchByteCount,
          let version = page.popFirst()
        {
          batch.append(version)
          byteCount += version.byteCount
        }
        return batch.isEmpty ? nil : batch
      },
      transform: { (batch) throws(BlobStorageError) -> [(BlobVersion, Result)] in
        var trails = Trails()
        var results: [(BlobVersion, Result)] = []
        for version in batch {
          let isLarge = version.byteCount > Self.smallByteCountMax
          results.append(
            (
              version,
              isLarge ? .large : try Self.writeCurrent(version, to: target, through: &trails, engine, options)
            ))
        }
        return results
      },
      consume: { (results: [(BlobVersion, Result)]) throws(BlobStorageError) in
        for (version, result) in results {
          guard case .large = result else {
            self.count(version, result)
            if case .written = result, !options.isDryRun { limiter.pace(version.byteCount) }
            continue
          }
          var trails = Trails()
          self.count(
            version, try Self.writeCurrent(version, to: target, through: &trails, engine, options, limiter))
        }
      })
    tell(force: true)
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  private func target(
    _ path: FilePath, excluding store: FileIdentity?
  ) throws(BlobStorageError) -> Target {
    let files = SystemFiles()
    var target = Target()
    let isThere = try files.status(of: path) != nil
    if !options.isDryRun {
      if !isThere { try files.createDirectory(path) }
      target.folder = try OutputFolder(path, excluding: store)
    }
    if isThere { target.existing = try InputFolder(path, excluding: store) }
    return target
  }

  // MARK: Keys

  private func keyPages() -> KeyPages {
    KeyPages(engine.catalog, prefix: options.prefix, countMax: 500)
  }

  /// The versions to export of the next page of keys; nil behind the last.
  private func next(_ pages: inout KeyPages) throws(BlobStorageError) -> [BlobVersion]? {
    try pages.next(KeyPages.entry)?.map(\.current).filter { version in
      patterns.isEmpty || patterns.contains { $0.matches(version.key) }
    }
  }

  /// Counts what is to be exported.
  private func scan() throws(BlobStorageError) {
    var pages = keyPages()
    while let page = try next(&pages) {
      totalCount += page.count
      for version in page { totalByteCount = totalByteCount.addingClamped(version.byteCount) }
    }
  }

  private func count(_ version: BlobVersion, _ result: Result) {
    switch result {
    case .written:
      report.fileCount += 1
      report.byteCount += version.byteCount
      onFile?(TransferredFile(key: version.key, isUnchanged: false))
    case .unchanged:
      report.unchangedFileCount += 1
      report.unchangedByteCount += version.byteCount
      onFile?(TransferredFile(key: version.key, isUnchanged: true))
    case .failed(let skipped, let isDamage):
      if isDamage { report.damaged.append(skipped) } else { report.skipped.append(skipped) }
    case .large, .dropped: break
    }
    doneCount += 1
    doneByteCount = doneByteCount.addingClamped(version.byteCount)
    tell()
  }

  private func tell(force: Bool = false) {
    let now = Date()
    guard force || now.timeIntervalSince(lastProgress) > 0.1 else { return }
    lastProgress = now
    // Keys that came since the scan are more than were counted.
    progress(
      WorkProgress(
        phase: "exporting", doneByteCount: doneByteCount, totalByteCount: max(doneByteCount, totalByteCount),
        doneCount: doneCount, totalCount: max(doneCount, totalCount)))
  }

  // MARK: Files

  /// The open folders on the way to files that are written, and to those that are there.
  private struct Trails: ~Copyable {
    var written = FolderTrail()
    var existing = FolderTrail()
  }

  /// Writes the version, or the one that has taken its place since it was listed and made it garbage.
  private static func writeCurrent(
    _ listed: BlobVersion, to target: Target, through trails: inout Trails, _ engine: Engine,
    _ options: ExportOptions, _ limiter: RateLimiter? = nil
  ) throws(BlobStorageError) -> Result {
    var version = listed
    while true {
      let result = try write(version, to: target, through: &trails, engine, options, limiter)
      guard case .failed(_, isDamage: true) = result else { return result }
      guard let current = try engine.version(version.key, nil) else { return .dropped }
      if current.id == version.id { return result }
      version = current
    }
  }

  /// Writes one file, whole or not at all.
  private static func write(
    _ version: BlobVersion, to target: Target, through trails: inout Trails, _ engine: Engine,
    _ options: ExportOptions, _ limiter: RateLimiter?
  ) throws(BlobStorageError) -> Result {
    func failed(_ code: BlobStorageError.Code, _ reason: String) -> Result {
      .failed(
        SkippedFile(path: version.key, code: code, reason: reason, isFailure: true),
        isDamage: code == .corrupted)
    }
    var path = Array(version.key.utf8)
    if path.starts(with: options.stripped.utf8) { path.removeFirst(options.stripped.utf8.count) }
    // As a path, “a//b”, “./a” and “a/” would be other names than as a key.
    guard FolderTrail.leadsDown(path) else {
      return failed(.invalidArgument, "the key cannot be a path below the folder")
    }
    do throws(BlobStorageError) {
      if let existing = target.existing {
        switch try state(of: path, in: existing, through: &trails.existing, version, options) {
        case .same: return .unchanged
        case .other where !options.overwrites: return failed(.io, takenName)
        case .other, .absent: break
        }
      }
      guard let folder = target.folder else { return .written }
      var file = try OutputFile(in: folder, relativePath: path, through: &trails.written)
      guard let layout = try engine.blobs.layout(version.digest) else {
        return failed(.corrupted, "blob \(version.digest) is missing from the store")
      }
      if version.byteCount > smallByteCountMax {
        try engine.blobs.streamWhole(layout) { (bytes) throws(BlobStorageError) in
          try file.write(bytes)
          limiter?.pace(Int64(bytes.count))
        }
      } else {
        var digest = DigestStream(layout.digest.algorithm)
        try layout.forEachChunk(in: 0..<layout.byteCount, from: engine.chunks) {
          (placed) throws(BlobStorageError) in
          let bytes = try engine.chunks.bytes(placed.entry)
          try bridge(bytes) { (raw) throws(BlobStorageError) in
            if layout.chunkCount > 1 { digest.update(raw.bytes) }
            try file.write(raw)
          }
          return true
        }
        if layout.chunkCount > 1, digest.finalize() != layout.digest {
          return failed(
            .corrupted, "the manifest of blob \(layout.digest) names the chunks of other bytes")
        }
      }
      try file.commit(
        overwriting: options.overwrites, modified: FileMark(metadata: version.metadata)?.modified)
      return .written
    } catch {
      switch error.code {
      case .corrupted: return failed(error.code, error.message)
      case .noSpace, .cancelled, .closed: throw error
      default:
        if error.errno == Errno.fileExists.rawValue {
          return failed(.io, takenName)
        }
        return failed(error.code, error.message)
      }
    }
  }

  private static let takenName = "another file of that name exists; --overwrite replaces it"

  private enum Existing { case absent, same, other }

  /// Whether the file is there, with the version's bytes. If files are overwritten, its time has to be right, too.
  private static func state(
    of path: [UInt8], in folder: InputFolder, through trail: inout FolderTrail, _ version: BlobVersion,
    _ options: ExportOptions
  ) throws(BlobStorageError) -> Existing {
    let file: InputFile
    do throws(BlobStorageError) { file = try folder.open(path, through: &trail) } catch {
      if error.isMissingName { return .absent }
      // The attempt to write it says what is wrong.
      if !options.isDryRun { return .absent }
      throw error
    }
    guard file.status.byteCount == version.byteCount else { return .other }
    let modified = FileMark(metadata: version.metadata)?.modified
    if options.overwrites, let modified, modified != file.status.modified { return .other }
    var digest = DigestStream(version.digest.algorithm)
    let buffer = UnsafeMutableRawBufferPointer.allocate(
      byteCount: Int(clamping: min(max(version.byteCount, 1), 1 << 20)), alignment: 16)
    defer { buffer.deallocate() }
    while true {
      try CancellationFlag.check()
      let count = try file.read(into: buffer)
      digest.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]).bytes)
      if count < buffer.count { break }
    }
    return digest.finalize() == version.digest ? .same : .other
  }
}

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
    case written(Int64)
    case failed(SkippedFile, isDamage: Bool)
    case large(BlobVersion)
    /// The key was dropped since it was listed.
    case dropped
  }

  private let engine: Engine
  private let options: ExportOptions
  private let progress: ProgressHandler
  private var report = ExportReport()
  private var lastProgress = Date.distantPast

  init(_ engine: Engine, _ options: ExportOptions, _ progress: ProgressHandler?) {
    self.engine = engine
    self.options = options
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
    if try files.status(of: FilePath(path)) == nil { try files.createDirectory(FilePath(path)) }
    let folder = try OutputFolder(FilePath(path), excluding: store)
    var pages = KeyPages(engine.catalog, prefix: options.prefix, countMax: 500)
    var page: ArraySlice<KeyEntry> = []
    let (engine, options) = (engine, options)
    try engine.work.orderedMap(
      inFlightMax: engine.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> [BlobVersion]? in
        try CancellationFlag.check()
        if page.isEmpty {
          try engine.checkOpen()
          page = try pages.next(KeyPages.entry)?[...] ?? []
        }
        var batch: [BlobVersion] = []
        var byteCount: Int64 = 0
        while batch.count < Self.batchCount, byteCount < Self.batchByteCount,
          let version = page.popFirst()?.current
        {
          batch.append(version)
          byteCount += version.byteCount
        }
        return batch.isEmpty ? nil : batch
      },
      transform: { (batch) throws(BlobStorageError) -> [Result] in
        var trail = FolderTrail()
        var results: [Result] = []
        for version in batch {
          let isLarge = version.byteCount > Self.smallByteCountMax
          results.append(
            isLarge
              ? .large(version)
              : try Self.writeCurrent(version, to: folder, through: &trail, engine, options))
        }
        return results
      },
      consume: { (results: [Result]) throws(BlobStorageError) in
        for result in results {
          guard case .large(let version) = result else {
            self.count(result)
            continue
          }
          var trail = FolderTrail()
          self.count(try Self.writeCurrent(version, to: folder, through: &trail, engine, options))
        }
      })
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  private func count(_ result: Result) {
    switch result {
    case .written(let byteCount):
      report.fileCount += 1
      report.byteCount += byteCount
    case .failed(let skipped, let isDamage):
      if isDamage { report.damaged.append(skipped) } else { report.skipped.append(skipped) }
    case .large, .dropped: break
    }
    let now = Date()
    guard now.timeIntervalSince(lastProgress) > 0.1 else { return }
    lastProgress = now
    progress(WorkProgress(phase: "exporting", doneByteCount: report.byteCount, doneCount: report.fileCount))
  }

  /// Writes the version, or the one that has taken its place since it was listed and made it garbage.
  private static func writeCurrent(
    _ listed: BlobVersion, to folder: OutputFolder, through trail: inout FolderTrail, _ engine: Engine,
    _ options: ExportOptions
  ) throws(BlobStorageError) -> Result {
    var version = listed
    while true {
      let result = try write(version, to: folder, through: &trail, engine, options)
      guard case .failed(_, isDamage: true) = result else { return result }
      guard let current = try engine.version(version.key, nil) else { return .dropped }
      if current.id == version.id { return result }
      version = current
    }
  }

  /// Writes one file, whole or not at all.
  private static func write(
    _ version: BlobVersion, to folder: OutputFolder, through trail: inout FolderTrail, _ engine: Engine,
    _ options: ExportOptions
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
      var file = try OutputFile(in: folder, relativePath: path, through: &trail)
      guard let layout = try engine.blobs.layout(version.digest) else {
        return failed(.corrupted, "blob \(version.digest) is missing from the store")
      }
      if version.byteCount > smallByteCountMax {
        try engine.blobs.streamWhole(layout) { (bytes) throws(BlobStorageError) in try file.write(bytes) }
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
      return .written(version.byteCount)
    } catch {
      switch error.code {
      case .corrupted: return failed(error.code, error.message)
      case .noSpace, .cancelled, .closed: throw error
      default:
        if error.errno == Errno.fileExists.rawValue {
          return failed(.io, "a file of that name exists; --overwrite replaces it")
        }
        return failed(error.code, error.message)
      }
    }
  }
}

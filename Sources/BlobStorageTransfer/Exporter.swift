import BlobStorage
import BlobStorageCache
import BlobStorageTrees
import Foundation
import SystemPackage

/// Writes versions as files and links below a folder, and nowhere else.
final class Exporter {
  /// Limits of a batch, which one thread writes: most neighbours lie in the same folders.
  private static let batchByteCount: Int64 = 1 << 20
  private static let batchCount = 64

  private let engine: Engine
  private let options: ExportOptions
  private let owners: OwnerNames?
  private let reads: CacheReads?
  private var links: HardLinks
  /// Nil if nothing is replaced.
  private var sharedPaths: SharedPaths?
  private let progress: ProgressHandler
  private let onFile: TransferHandler?
  private var report = ExportReport()
  private var (doneCount, totalCount) = (0, 0)
  private var (doneByteCount, totalByteCount): (Int64, Int64) = (0, 0)
  private var lastProgress = Date.distantPast

  init(
    _ engine: Engine, _ options: ExportOptions, _ progress: ProgressHandler?, _ onFile: TransferHandler?
  ) throws(BlobStorageError) {
    self.onFile = onFile
    reads = try CacheReads(engine)
    self.engine = engine
    self.options = options
    links = HardLinks(options)
    owners =
      options.restoresAttributes && (options.restoresOwners ?? OwnerNames.isRoot) ? OwnerNames() : nil
    report.isDryRun = options.isDryRun
    report.state = options.state
    self.progress = progress ?? { _ in }
  }

  func run(_ path: FilePath) throws(BlobStorageError) -> ExportReport {
    let start = Date()
    try engine.checkOpen()
    let files = SystemFiles()
    let store = try files.status(of: engine.folder.path)?.identity
    if let store, store.contains(path) {
      throw BlobStorageError(
        .invalidArgument, "\(path.string) belongs to the store itself: export to a folder outside of it.",
        path: path.string)
    }
    let folders = try ExportedFolders(engine, options)
    report.damaged += folders.unreadable
    // Without anything to write, no folder is created.
    if options.state == nil, !options.prefix.isAll,
      try engine.keys(options.prefix, after: nil, limit: 1).isEmpty, folders.isEmpty
    {
      return report
    }
    let limiter = try RateLimiter(bytesPerSecond: options.maximumByteRate, time: engine.environment.time)
    if options.overwrites { sharedPaths = try SharedPaths(engine, options, reads) }
    let folderPaths = folders.paths
    let doublePaths = try scan(folderPaths)
    let target = try target(
      path, excluding: store, folderPaths, doublePaths, marksNewFolders: folders.hasFolders)
    defer { target.folder?.restoreModes() }
    let writer = VersionWriter(target: target, engine: engine, options: options, owners: owners)
    try writeVersions(writer, limiter)
    try linkFollowers(writer)
    reads?.write()
    if let folder = target.folder { try folders.restore(below: folder, owners, &report) }
    tell(force: true)
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  /// - Parameters:
  ///   - folderPaths: of the folders that get attributes.
  ///   - doublePaths: where keys are to be both a file and a folder.
  private func target(
    _ path: FilePath, excluding store: FileIdentity?, _ folderPaths: Set<[UInt8]>,
    _ doublePaths: Set<[UInt8]>, marksNewFolders: Bool
  ) throws(BlobStorageError) -> ExportTarget {
    let files = SystemFiles()
    var target = ExportTarget()
    let isThere = try files.status(of: path) != nil
    if !options.isDryRun {
      if !isThere { try files.createDirectory(path) }
      var rules = OutputFolder.Rules(entersReadOnly: true, pathsWithAttributes: folderPaths)
      rules.marksNewFolders = marksNewFolders
      if options.overwrites { rules.replaces = { !doublePaths.contains(Array($0)) } }
      target.folder = try OutputFolder(path, excluding: store, rules, isNew: !isThere)
    }
    if isThere { target.existing = try InputFolder(path, excluding: store) }
    return target
  }

  private func writeVersions(_ writer: VersionWriter, _ limiter: RateLimiter) throws(BlobStorageError) {
    var source = try ExportSource(engine, options, reads)
    defer { source.close() }
    var page: ArraySlice<BlobVersion> = []
    try engine.work.orderedMap(
      inFlightMax: engine.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> [BlobVersion]? in
        try CancellationFlag.check()
        if page.isEmpty {
          try engine.checkOpen()
          // A page may hold no key that matches.
          while page.isEmpty, let next = try source.next() {
            reportMissing(source.removeMissing())
            page = next.filter { claimsPath($0) && !links.follows($0) }[...]
          }
        }
        var batch: [BlobVersion] = []
        var byteCount: Int64 = 0
        while batch.count < Self.batchCount, byteCount < Self.batchByteCount,
          let version = page.popFirst()
        {
          batch.append(version)
          byteCount = byteCount.addingClamped(version.byteCount)
        }
        return batch.isEmpty ? nil : batch
      },
      transform: { (batch) throws(BlobStorageError) -> [(BlobVersion, VersionWriter.Result)] in
        var trails = ExportTrails()
        var results: [(BlobVersion, VersionWriter.Result)] = []
        for version in batch {
          let isLarge = version.byteCount > VersionWriter.smallByteCountMax
          results.append(
            (version, isLarge ? .large : try writer.writeCurrent(version, through: &trails)))
        }
        return results
      },
      consume: { (results: [(BlobVersion, VersionWriter.Result)]) throws(BlobStorageError) in
        for (version, result) in results {
          guard case .large = result else {
            self.count(version, result)
            if case .written = result, !options.isDryRun { limiter.pace(version.byteCount) }
            continue
          }
          var trails = ExportTrails()
          self.count(version, try writer.writeCurrent(version, through: &trails, limiter))
        }
      })
  }

  /// Creates the other names of hard-linked files.
  private func linkFollowers(_ writer: VersionWriter) throws(BlobStorageError) {
    for follower in links.followers {
      try CancellationFlag.check()
      var trails = ExportTrails()
      if let linked = try links.link(follower, in: writer.target.folder) {
        count(follower.version, linked)
      } else {
        count(follower.version, try writer.writeCurrent(follower.version, through: &trails))
        links.lead(follower)
      }
    }
  }

  // MARK: Keys

  /// Counts the versions to export.
  ///
  /// - Returns: paths that are to be both a file and a folder. What this export writes is not replaced by itself.
  private func scan(_ folderPaths: Set<[UInt8]>) throws(BlobStorageError) -> Set<[UInt8]> {
    var source = try ExportSource(engine, options, reads)
    defer { source.close() }
    var doublePaths: Set<[UInt8]> = []
    // Each key begins like the one before it in this list.
    var begun: [(key: [UInt8], version: BlobVersion)] = []
    while let page = try source.next() {
      totalCount += page.count
      for version in page {
        totalByteCount = totalByteCount.addingClamped(version.byteCount)
        guard options.overwrites else { continue }
        let key = Array(version.key.utf8)
        while let last = begun.last, !key.starts(with: last.key) { begun.removeLast() }
        // Keys of a forged store that are not UTF-8 may read the same.
        for file in begun where key.dropFirst(file.key.count).first == UInt8(ascii: "/") {
          if let path = VersionWriter.path(of: file.version, options) { doublePaths.insert(path) }
        }
        begun.append((key, version))
        for path in sharedPaths?.doublePaths(version) ?? [] { doublePaths.insert(path) }
        if !folderPaths.isEmpty, let path = VersionWriter.path(of: version, options),
          folderPaths.contains(path)
        {
          doublePaths.insert(path)
        }
      }
    }
    return doublePaths
  }

  /// Whether no earlier key has the same path. Otherwise reports the key: an export does not replace its own files.
  private func claimsPath(_ version: BlobVersion) -> Bool {
    guard sharedPaths?.claim(version) == false else { return true }
    let skipped = SkippedFile(
      path: version.key, code: .io,
      reason: "another key of the export is written there: export each to a folder of its own",
      isFailure: true)
    count(version, .failed(skipped, isDamage: false))
    return false
  }

  private func count(_ version: BlobVersion, _ result: VersionWriter.Result) {
    switch result {
    case .written(let isComplete):
      if !options.isDryRun { reads?.use(version.key) }
      links.insert(version)
      if isLink(version) {
        report.linkCount += 1
      } else {
        report.fileCount += 1
        report.byteCount = report.byteCount.addingClamped(version.byteCount)
      }
      if !isComplete { report.incompleteCount += 1 }
      onFile?(TransferredFile(key: version.key, isUnchanged: false))
    case .unchanged:
      if !options.isDryRun { reads?.use(version.key) }
      links.insert(version)
      report.unchangedFileCount += 1
      report.unchangedByteCount = report.unchangedByteCount.addingClamped(version.byteCount)
      onFile?(TransferredFile(key: version.key, isUnchanged: true))
    case .failed(let skipped, let isDamage):
      if isDamage { report.damaged.append(skipped) } else { report.skipped.append(skipped) }
    case .large, .dropped: break
    }
    doneCount += 1
    doneByteCount = doneByteCount.addingClamped(version.byteCount)
    tell()
  }

  private func isLink(_ version: BlobVersion) -> Bool {
    options.restoresAttributes && FileMark(metadata: version.metadata)?.attributes?.kind == .link
  }

  private func reportMissing(_ keys: [String]) {
    report.skipped += keys.map(SkippedFile.missing)
  }

  private func tell(force: Bool = false) {
    let now = Date()
    guard force || now.timeIntervalSince(lastProgress) > 0.1 else { return }
    lastProgress = now
    // Keys put after the scan can exceed the totals.
    progress(
      WorkProgress(
        phase: "exporting", doneByteCount: doneByteCount, totalByteCount: max(doneByteCount, totalByteCount),
        doneCount: doneCount, totalCount: max(doneCount, totalCount)))
  }
}

extension SkippedFile {
  /// A key whose version a state has and the store no longer does.
  static func missing(_ key: String) -> SkippedFile {
    SkippedFile(
      path: key, code: .missingVersion, reason: "the version that the state has was deleted since",
      isFailure: true)
  }
}

import BlobStorage
import BlobStorageTrees
import Foundation
import SystemPackage

/// Writes versions as files and links below a folder, and nowhere else.
final class Exporter {
  private static let smallByteCountMax: Int64 = 4 << 20
  /// What one thread writes at a time: most neighbours lie in the same folders.
  private static let batchByteCount: Int64 = 1 << 20
  private static let batchCount = 64

  private enum Result: Sendable {
    /// Whether all attributes could be set.
    case written(isComplete: Bool)
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

  /// A file that gets its bytes through another of its names.
  private struct Follower {
    var version: BlobVersion
    /// The path of the one that is written.
    var leader: [UInt8]
  }

  private struct FileGroup: Hashable {
    var inode: UInt64
    var digest: BlobDigest
    var modified: FileTime
    // With the device.
    var attributes: FileAttributes
  }

  private let engine: Engine
  private let options: ExportOptions
  private let owners: OwnerNames?
  private var leaders: [FileGroup: [UInt8]] = [:]
  private var followers: [Follower] = []
  /// Paths of files with several names that are as they should be.
  private var wholePaths: Set<[UInt8]> = []
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
    owners =
      options.restoresAttributes && (options.restoresOwners ?? OwnerNames.isRoot) ? OwnerNames() : nil
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
    if options.state == nil, !options.prefix.isEmpty,
      try engine.keys(options.prefix, after: nil, limit: 1).isEmpty,
      try ExportSource.folders(engine, options).isEmpty
    {
      return report
    }
    let target = try target(FilePath(path), excluding: store)
    let limiter = try RateLimiter(bytesPerSecond: options.maximumByteRate, time: engine.environment.time)
    try scan()
    var source = try ExportSource(engine, options)
    defer { source.close() }
    var page: ArraySlice<BlobVersion> = []
    let (engine, options, owners) = (engine, options, owners)
    try engine.work.orderedMap(
      inFlightMax: engine.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> [BlobVersion]? in
        try CancellationFlag.check()
        if page.isEmpty {
          try engine.checkOpen()
          // A page may have no key that matches.
          while page.isEmpty, let next = try source.next() {
            reportMissing(source.removeMissing())
            page = next.filter { !follows($0) }[...]
          }
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
              isLarge
                ? .large
                : try Self.writeCurrent(version, to: target, through: &trails, engine, options, owners)
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
            version,
            try Self.writeCurrent(version, to: target, through: &trails, engine, options, owners, limiter))
        }
      })
    try linkFollowers(target)
    if let folder = target.folder { try restoreFolders(folder) }
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

  /// Counts what is to be exported.
  private func scan() throws(BlobStorageError) {
    var source = try ExportSource(engine, options)
    defer { source.close() }
    while let page = try source.next() {
      totalCount += page.count
      for version in page { totalByteCount = totalByteCount.addingClamped(version.byteCount) }
    }
  }

  private func count(_ version: BlobVersion, _ result: Result) {
    switch result {
    case .written, .unchanged:
      if let attributes = FileMark(metadata: version.metadata)?.attributes, attributes.device != nil,
        let path = Self.path(of: version.key, attributes, options)
      {
        wholePaths.insert(path)
      }
    default: break
    }
    switch result {
    case .written(let isComplete):
      if isLink(version) {
        report.linkCount += 1
      } else {
        report.fileCount += 1
        report.byteCount += version.byteCount
      }
      if !isComplete { report.incompleteCount += 1 }
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

  private func isLink(_ version: BlobVersion) -> Bool {
    options.restoresAttributes && FileMark(metadata: version.metadata)?.attributes?.kind == .link
  }

  private func reportMissing(_ keys: [String]) {
    report.skipped += keys.map {
      SkippedFile(
        path: $0, code: .missingVersion, reason: "the version that the state has was deleted since",
        isFailure: true)
    }
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

  /// Whether another name of the same file is written. If so, keeps the version for later.
  private func follows(_ version: BlobVersion) -> Bool {
    guard options.restoresAttributes, let mark = FileMark(metadata: version.metadata),
      var attributes = mark.attributes, attributes.device != nil
    else { return false }
    attributes.isNameEscaped = false
    let group = FileGroup(
      inode: mark.inode, digest: version.digest, modified: mark.modified, attributes: attributes)
    if let leader = leaders[group] {
      followers.append(Follower(version: version, leader: leader))
      return true
    }
    leaders[group] = Self.path(of: version.key, mark.attributes, options)
    return false
  }

  /// Gives files their other names.
  private func linkFollowers(_ target: Target) throws(BlobStorageError) {
    for follower in followers {
      try CancellationFlag.check()
      var trails = Trails()
      if let linked = try link(follower, in: target) {
        count(follower.version, linked)
      } else {
        count(
          follower.version,
          try Self.writeCurrent(follower.version, to: target, through: &trails, engine, options, owners))
      }
    }
  }

  /// Nil if the file must be written by itself.
  private func link(
    _ follower: Follower, in target: Target
  ) throws(BlobStorageError) -> Result? {
    guard let folder = target.folder, wholePaths.contains(follower.leader),
      let path = Self.path(
        of: follower.version.key, FileMark(metadata: follower.version.metadata)?.attributes, options)
    else { return nil }
    do throws(BlobStorageError) {
      let written = try InputFolder(folder.path)
      var trail = FolderTrail()
      guard let leader = try written.status(of: follower.leader, through: &trail), leader.kind != .directory
      else {
        return nil
      }
      if let known = try written.status(of: path, through: &trail) {
        if known.identity == leader.identity { return .unchanged }
        if !options.overwrites { return nil }
      }
      try folder.createName(path, of: follower.leader, overwriting: options.overwrites)
      return .written(isComplete: true)
    } catch {
      // Some file systems have no hard links, and a path may have become another folder's.
      guard error.code == .io || error.code == .permissionDenied || error.code == .sourceFailed else {
        throw error
      }
      return nil
    }
  }

  /// Gives folders their attributes, those below before those above: what is written changes the times of folders.
  private func restoreFolders(_ folder: OutputFolder) throws(BlobStorageError) {
    let written = try InputFolder(folder.path)
    for found in try ExportSource.folders(engine, options).reversed() {
      try CancellationFlag.check()
      guard let attributes = found.mark.attributes else { continue }
      var key = found.key
      if key.last == UInt8(ascii: "/") { key.removeLast() }
      let text = String(decoding: key, as: UTF8.self)
      let path: [UInt8]
      if found.key.count <= options.stripped.utf8.count, options.stripped.utf8.starts(with: found.key) {
        // What is above the exported folder is not its concern.
        guard found.key.elementsEqual(options.stripped.utf8) || key.elementsEqual(options.stripped.utf8)
        else {
          continue
        }
        path = []
      } else {
        guard let found = Self.path(of: text, attributes, options),
          found.isEmpty || FolderTrail.leadsDown(found)
        else { continue }
        path = found
      }
      do throws(BlobStorageError) {
        var trail = FolderTrail()
        if !found.isEmpty, !path.isEmpty,
          try written.status(of: path, through: &trail)?.kind != .directory
        {
          continue
        }
        let restored = RestoredAttributes(
          attributes: attributes, extended: try found.mark.extendedAttributes(engine),
          modified: found.mark.modified, owners: owners)
        if try !folder.setAttributes(restored, ofFolder: path) { report.incompleteCount += 1 }
        report.folderCount += 1
      } catch {
        switch error.code {
        case .noSpace, .cancelled, .closed: throw error
        case .corrupted:
          report.damaged.append(
            SkippedFile(path: text, code: error.code, reason: error.message, isFailure: true))
        default:
          report.skipped.append(
            SkippedFile(path: text, code: error.code, reason: error.message, isFailure: true))
        }
      }
    }
  }

  /// Where a key is written; nil if its name was not escaped as its metadata say.
  private static func path(
    of key: String, _ attributes: FileAttributes?, _ options: ExportOptions
  ) -> [UInt8]? {
    var path = Array(key.utf8)
    if path.starts(with: options.stripped.utf8) { path.removeFirst(options.stripped.utf8.count) }
    return attributes?.isNameEscaped == true ? EscapedName.path(ofKey: path) : path
  }

  /// Writes the version, or the one that has taken its place since it was listed and made it garbage.
  private static func writeCurrent(
    _ listed: BlobVersion, to target: Target, through trails: inout Trails, _ engine: Engine,
    _ options: ExportOptions, _ owners: OwnerNames?, _ limiter: RateLimiter? = nil
  ) throws(BlobStorageError) -> Result {
    var version = listed
    while true {
      let result = try write(version, to: target, through: &trails, engine, options, owners, limiter)
      guard case .failed(_, isDamage: true) = result, options.state == nil else { return result }
      guard let current = try engine.version(version.key, nil) else { return .dropped }
      if current.id == version.id { return result }
      version = current
    }
  }

  /// Writes one file, whole or not at all.
  private static func write(
    _ version: BlobVersion, to target: Target, through trails: inout Trails, _ engine: Engine,
    _ options: ExportOptions, _ owners: OwnerNames?, _ limiter: RateLimiter?
  ) throws(BlobStorageError) -> Result {
    func failed(_ code: BlobStorageError.Code, _ reason: String) -> Result {
      .failed(
        SkippedFile(path: version.key, code: code, reason: reason, isFailure: true),
        isDamage: code == .corrupted)
    }
    let mark = FileMark(metadata: version.metadata)
    let attributes = options.restoresAttributes ? mark?.attributes : nil
    // As a path, “a//b”, “./a” and “a/” would be other names than as a key.
    guard let path = path(of: version.key, mark?.attributes, options), FolderTrail.leadsDown(path) else {
      return failed(.invalidArgument, "the key cannot be a path below the folder")
    }
    do throws(BlobStorageError) {
      if let existing = target.existing, attributes?.kind == .link {
        guard let status = try existing.status(of: path, through: &trails.existing) else {
          return try writeLink(version, mark, at: path, to: target, through: &trails, engine, options, owners)
        }
        if status.kind == .symbolicLink, let bytes = try engine.data(version.digest),
          try existing.linkTarget(of: path, through: &trails.existing).elementsEqual(bytes)
        {
          return .unchanged
        }
        if !options.overwrites { return failed(.io, takenName) }
      }
      if attributes?.kind == .link {
        return try writeLink(version, mark, at: path, to: target, through: &trails, engine, options, owners)
      }
      if let existing = target.existing {
        switch try state(of: path, in: existing, through: &trails.existing, version, engine, options, owners)
        {
        case .same: return .unchanged
        case .other where !options.overwrites: return failed(.io, takenName)
        case .other, .absent: break
        }
      }
      guard let folder = target.folder else { return .written(isComplete: true) }
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
      guard let mark, let attributes else {
        try file.commit(overwriting: options.overwrites, modified: mark?.modified)
        return .written(isComplete: true)
      }
      return .written(
        isComplete: try file.commit(
          overwriting: options.overwrites,
          RestoredAttributes(
            attributes: attributes, extended: try mark.extendedAttributes(engine), modified: mark.modified,
            owners: owners)))
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

  /// Writes a symbolic link.
  private static func writeLink(
    _ version: BlobVersion, _ mark: FileMark?, at path: [UInt8], to target: Target,
    through trails: inout Trails,
    _ engine: Engine, _ options: ExportOptions, _ owners: OwnerNames?
  ) throws(BlobStorageError) -> Result {
    guard let folder = target.folder, let mark, let attributes = mark.attributes else {
      return .written(isComplete: true)
    }
    guard version.byteCount <= 4_096, let bytes = try engine.data(version.digest), !bytes.isEmpty,
      !bytes.contains(0)
    else {
      throw BlobStorageError(
        .corrupted, "The target of a link cannot be read: blob \(version.digest).", digest: version.digest)
    }
    return .written(
      isComplete: try folder.createLink(
        to: Array(bytes), at: path, through: &trails.written, overwriting: options.overwrites,
        RestoredAttributes(attributes: attributes, extended: [], modified: mark.modified, owners: owners)))
  }

  private static let takenName = "another file of that name exists; --overwrite replaces it"

  private enum Existing { case absent, same, other }

  /// Whether the file is there, with the version's bytes. If files are overwritten, its time has to be right, too.
  private static func state(
    of path: [UInt8], in folder: InputFolder, through trail: inout FolderTrail, _ version: BlobVersion,
    _ engine: Engine, _ options: ExportOptions, _ owners: OwnerNames?
  ) throws(BlobStorageError) -> Existing {
    let file: InputFile
    do throws(BlobStorageError) { file = try folder.open(path, through: &trail) } catch {
      if error.isMissingName { return .absent }
      // The attempt to write it says what is wrong.
      if !options.isDryRun { return .absent }
      throw error
    }
    guard file.status.byteCount == version.byteCount else { return .other }
    let mark = FileMark(metadata: version.metadata)
    if options.overwrites, let mark {
      if mark.modified != file.status.modified { return .other }
      if options.restoresAttributes, let attributes = mark.attributes,
        attributes.permissions != file.status.permissions
      {
        return .other
      }
    }
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
    guard digest.finalize() == version.digest else { return .other }
    if options.overwrites, options.restoresAttributes, let mark, let attributes = mark.attributes {
      let wanted = try mark.extendedAttributes(engine)
      let known = try file.withDescriptor { (descriptor) throws(BlobStorageError) in
        try ExtendedAttributes.read(descriptor, file.path)
      }
      if wanted != known { return .other }
      if let owners, let owner = attributes.owner,
        owners.numbers(of: owner) != (file.status.user, file.status.group)
      {
        return .other
      }
    }
    return .same
  }
}

import BlobStorage
import BlobStorageTrees
import Foundation
import SystemPackage

/// The folder of an export, for writing, and for reading what an earlier export left.
struct ExportTarget: Sendable {
  /// Nil for a dry run.
  var folder: OutputFolder?
  /// Nil if the folder is new.
  var existing: InputFolder?
}

/// The open folders on the way to files that are written, and to existing files.
struct ExportTrails: ~Copyable {
  var written = FolderTrail()
  var existing = FolderTrail()
}

/// Writes versions as files and links.
struct VersionWriter: Sendable {
  static let smallByteCountMax: Int64 = 4 << 20
  private static let takenName = "another file of that name exists; --overwrite replaces it"
  static let ownName = "exports use such names for files of their own, and remove them later"

  enum Result: Sendable {
    /// Whether all attributes could be set.
    case written(isComplete: Bool)
    /// The file was there with the same bytes.
    case unchanged
    case failed(SkippedFile, isDamage: Bool)
    case large
    /// The key was dropped since it was listed.
    case dropped
  }

  private enum Existing { case absent, same, other }

  let target: ExportTarget
  let engine: Engine
  let options: ExportOptions
  let owners: OwnerNames?

  /// The path of a key in the export; nil for an invalid escape.
  static func path(
    of key: String, _ attributes: FileAttributes?, _ options: ExportOptions
  ) -> [UInt8]? {
    var path = Array(key.utf8)
    let stripped = options.stripped.start.utf8
    if path.starts(with: stripped) { path.removeFirst(stripped.count) }
    return attributes?.isNameEscaped == true ? EscapedName.path(ofKey: path) : path
  }

  static func path(of version: BlobVersion, _ options: ExportOptions) -> [UInt8]? {
    path(of: version.key, FileMark(metadata: version.metadata)?.attributes, options)
  }

  /// Whether a name of a path is one that exports use for files of their own.
  static func isOwn(_ path: [UInt8]) -> Bool {
    path.split(separator: UInt8(ascii: "/")).contains(where: OutputFolder.isOwn)
  }

  /// Writes the version. If it was replaced and collected since it was listed, writes the current one, unless a state
  /// is exported.
  func writeCurrent(
    _ listed: BlobVersion, through trails: inout ExportTrails, _ limiter: RateLimiter? = nil
  ) throws(BlobStorageError) -> Result {
    var version = listed
    while true {
      let result = try write(version, through: &trails, limiter)
      guard case .failed(_, isDamage: true) = result else { return result }
      if options.state != nil {
        let kept = try engine.catalog.read { (transaction) throws(BlobStorageError) in
          try transaction.keptVersion(ofKey: Array(version.key.utf8), version.id.stamp)
        }
        return kept != nil ? result : .failed(.missing(version.key), isDamage: false)
      }
      guard let current = try engine.version(version.key, nil) else { return .dropped }
      if current.id == version.id { return result }
      version = current
    }
  }

  /// Writes one file, whole or not at all.
  private func write(
    _ version: BlobVersion, through trails: inout ExportTrails, _ limiter: RateLimiter?
  ) throws(BlobStorageError) -> Result {
    func failed(_ code: BlobStorageError.Code, _ reason: String) -> Result {
      .failed(
        SkippedFile(path: version.key, code: code, reason: reason, isFailure: true),
        isDamage: code == .corrupted)
    }
    // “a//b”, “./a” and “a/” are keys of their own, but not paths of their own.
    guard let path = Self.path(of: version, options), FolderTrail.leadsDown(path) else {
      return failed(.invalidArgument, "the key cannot be a path below the folder")
    }
    guard !Self.isOwn(path) else {
      return failed(.invalidArgument, Self.ownName)
    }
    let mark = FileMark(metadata: version.metadata)
    let isLink = options.restoresAttributes && mark?.attributes?.kind == .link
    do throws(BlobStorageError) {
      if let existing = target.existing {
        let state =
          try isLink
          ? stateOfLink(path, in: existing, through: &trails.existing, version)
          : state(of: path, in: existing, through: &trails.existing, version)
        switch state {
        case .same: return .unchanged
        case .other where !options.overwrites: return failed(.io, Self.takenName)
        case .other, .absent: break
        }
      }
      guard let folder = target.folder else {
        if options.overwrites, try target.existing?.hasFilledFolder(path, through: &trails.existing) == true {
          return failed(
            .io, OutputFolder.filledFolder((target.existing?.path ?? "").appending(bytes: path)).message)
        }
        return .written(isComplete: true)
      }
      return .written(
        isComplete: try isLink
          ? writeLink(version, mark, at: path, in: folder, through: &trails)
          : writeFile(version, mark, at: path, in: folder, through: &trails, limiter))
    } catch {
      switch error.code {
      case .corrupted: return failed(error.code, error.message)
      case .noSpace, .cancelled, .closed: throw error
      default:
        if error.errno == Errno.fileExists.rawValue { return failed(.io, Self.takenName) }
        return failed(error.code, error.message)
      }
    }
  }

  /// - Returns: whether all attributes could be set.
  private func writeFile(
    _ version: BlobVersion, _ mark: FileMark?, at path: [UInt8], in folder: OutputFolder,
    through trails: inout ExportTrails, _ limiter: RateLimiter?
  ) throws(BlobStorageError) -> Bool {
    var file = try OutputFile(in: folder, relativePath: path, through: &trails.written)
    guard let layout = try engine.blobs.layout(version.digest) else {
      throw BlobStorageError(.corrupted, "blob \(version.digest) is missing from the store")
    }
    if version.byteCount > Self.smallByteCountMax {
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
        throw BlobStorageError(
          .corrupted, "the manifest of blob \(layout.digest) names the chunks of other bytes")
      }
    }
    guard let mark, let attributes = mark.attributes, options.restoresAttributes else {
      try file.commit(overwriting: options.overwrites, modified: mark?.modified)
      return true
    }
    return try file.commit(
      overwriting: options.overwrites,
      RestoredAttributes(
        attributes: attributes, extended: try mark.extendedAttributes(engine), modified: mark.modified,
        owners: owners))
  }

  /// Writes a symbolic link.
  ///
  /// - Returns: whether all attributes could be set.
  private func writeLink(
    _ version: BlobVersion, _ mark: FileMark?, at path: [UInt8], in folder: OutputFolder,
    through trails: inout ExportTrails
  ) throws(BlobStorageError) -> Bool {
    guard let mark, let attributes = mark.attributes else { return true }
    guard let bytes = try engine.data(version.digest, atMost: 4_096), !bytes.isEmpty,
      !bytes.contains(0)
    else {
      throw BlobStorageError(
        .corrupted, "The target of a link cannot be read: blob \(version.digest).", digest: version.digest)
    }
    return try folder.createLink(
      to: Array(bytes), at: path, through: &trails.written, overwriting: options.overwrites,
      RestoredAttributes(
        attributes: attributes, extended: try mark.extendedAttributes(engine), modified: mark.modified,
        owners: owners))
  }

  // MARK: Existing files

  private func stateOfLink(
    _ path: [UInt8], in folder: InputFolder, through trail: inout FolderTrail, _ version: BlobVersion
  ) throws(BlobStorageError) -> Existing {
    do throws(BlobStorageError) {
      guard let status = try folder.status(of: path, through: &trail) else { return .absent }
      if status.kind == .symbolicLink, let bytes = try engine.data(version.digest, atMost: 4_096),
        try folder.linkTarget(of: path, through: &trail).elementsEqual(bytes)
      {
        return .same
      }
      return .other
    } catch {
      // A file stands in place of a folder; overwriting replaces it.
      guard error.code == .sourceFailed, options.overwrites else { throw error }
      return .absent
    }
  }

  /// Whether the file has the version's bytes. If files are overwritten, time and attributes count as well.
  private func state(
    of path: [UInt8], in folder: InputFolder, through trail: inout FolderTrail, _ version: BlobVersion
  ) throws(BlobStorageError) -> Existing {
    let file: InputFile
    do throws(BlobStorageError) { file = try folder.open(path, through: &trail) } catch {
      if error.isMissingName { return .absent }
      // The attempt to write reports the error.
      if !options.isDryRun || options.overwrites { return .absent }
      throw error
    }
    guard file.status.byteCount == version.byteCount else { return .other }
    let mark = FileMark(metadata: version.metadata)
    if options.overwrites, let mark {
      if mark.modified != file.status.modified { return .other }
      if options.restoresAttributes, let attributes = mark.attributes,
        attributes.permissionsOfFile(withOwner: owners != nil && attributes.owner != nil)
          != file.status.permissions
      {
        return .other
      }
    }
    guard try file.digest(version.digest.algorithm) == version.digest else { return .other }
    if options.overwrites, options.restoresAttributes, let mark, let attributes = mark.attributes {
      let wanted = try mark.extendedAttributes(engine)
      if try wanted != file.extendedAttributes() { return .other }
      if let owners, let owner = attributes.owner,
        owners.numbers(of: owner) != (file.status.user, file.status.group)
      {
        return .other
      }
    }
    return .same
  }
}

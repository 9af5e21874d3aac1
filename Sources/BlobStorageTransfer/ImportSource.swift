import BlobStorage
import Foundation
import SystemPackage

/// A file or symbolic link to import.
struct ImportSource: Sendable {
  /// The named folder above it; nil if the file itself was named.
  var folder: InputFolder?
  /// The path below that folder, or the named path.
  var relativePath: [UInt8]
  var key: String
  /// Whether the key escapes bytes of the name.
  var isNameEscaped = false
  var status: FileStatus

  var isLink: Bool { status.kind == .symbolicLink }

  /// The path for messages.
  var path: FilePath {
    folder.map { $0.name.appending(bytes: relativePath) }
      ?? FilePath(platformString: [CChar](terminating: relativePath))
  }

  /// Opens the file. Below a folder, follows no symbolic link on the way.
  func open(through trail: inout FolderTrail) throws(BlobStorageError) -> InputFile {
    if let folder { return try folder.open(relativePath, through: &trail) }
    return try InputFile(path)
  }

  func open() throws(BlobStorageError) -> InputFile {
    var trail = FolderTrail()
    return try open(through: &trail)
  }

  /// The target of a symbolic link.
  func linkTarget(through trail: inout FolderTrail) throws(BlobStorageError) -> [UInt8] {
    if let folder { return try folder.linkTarget(of: relativePath, through: &trail) }
    return try InputFolder.linkTarget(path)
  }

  /// The extended attributes of a symbolic link. Only root can set any, apart from labels that the system sets itself.
  func linkAttributes(through trail: inout FolderTrail) throws(BlobStorageError) -> [FileAttributes.Extended]
  {
    guard OwnerNames.isRoot else { return [] }
    if let folder { return try folder.linkAttributes(of: relativePath, through: &trail) }
    return try InputFolder.linkAttributes(path)
  }

  /// Whether its first bytes look like an image, an archive or a film.
  var isCompressed: Bool {
    do throws(BlobStorageError) {
      let file = try open()
      let beginning = try [UInt8](filling: 16) { (target) throws(BlobStorageError) in
        try file.read(into: target)
      }
      return CompressibilityHint(beginning: beginning.span.bytes) != .unknown
    } catch {
      // Reading the whole file reports the error.
      return false
    }
  }

  /// The key to put the file under. If the key has a version that stays current, this is the internal key of what is
  /// kept for states.
  func keyToPut(_ engine: Engine, _ options: ImportOptions) throws(BlobStorageError) -> [UInt8] {
    let bytes = try Engine.keyBytes(key)
    guard options.keepsCurrent, options.recordsState else { return bytes }
    let current = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.currentVersion(ofKey: bytes)
    }
    if current == nil { return bytes }
    let kept = InternalKey.Purpose.replaced.key(bytes)
    guard kept.count <= BlobLimits.maximumKeyByteCount else {
      throw BlobStorageError(
        .invalidArgument, "its key is too long to be kept for a state alone", path: path.string)
    }
    return kept
  }

  /// The key's current version, if the file seems unchanged since; reads neither.
  func unchangedVersion(
    _ engine: Engine, _ context: ImportContext
  ) throws(BlobStorageError) -> BlobVersion? {
    do throws(BlobStorageError) {
      guard let current = try versionToCountOn(engine), current.byteCount == status.byteCount,
        let mark = FileMark(metadata: current.metadata), mark.matches(status), context.isEnough(mark),
        try context.presence.isPresent(current.digest)
      else { return nil }
      return current
    } catch {
      // An unreadable version is stored again.
      guard error.code == .corrupted else { throw error }
      return nil
    }
  }

  /// The key's current version, if it has these bytes and attributes, whatever file it came from.
  func sameVersion(
    _ digest: BlobDigest, _ mark: FileMark, _ engine: Engine
  ) throws(BlobStorageError) -> BlobVersion? {
    guard let current = try versionToCountOn(engine), current.digest == digest,
      let known = FileMark(metadata: current.metadata), known.isLike(mark)
    else { return nil }
    return current
  }

  /// The key's current version, if it becomes durable with what this process has stored.
  private func versionToCountOn(_ engine: Engine) throws(BlobStorageError) -> BlobVersion? {
    try engine.checkOpen()
    let bytes = try Engine.keyBytes(key)
    return try engine.catalog.read { (transaction) throws(BlobStorageError) in
      guard let current = try transaction.currentVersion(ofKey: bytes),
        try engine.writer.stays(at: current.row.place, transaction)
      else { return nil }
      // A later sync does not report what a failed sync lost.
      if let pack = try transaction.packRow(current.row.place.pack), pack.isPoisoned,
        pack.durableByteCount <= current.row.place.offset
      {
        return nil
      }
      return BlobVersion(key: key, stamp: current.stamp, row: current.row)
    }
  }
}

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
  ///
  /// - Parameter writesBack: whether to write back what mappings have changed.
  func open(
    through trail: inout FolderTrail, writesBack: Bool = false
  ) throws(BlobStorageError) -> InputFile {
    if let folder { return try folder.open(relativePath, through: &trail, writesBack: writesBack) }
    let path = try path.absolute()
    return try InputFile(
      InputFolder.workingDirectory, [CChar](terminating: path.bytes), path, [], writesBack: writesBack)
  }

  func open(writesBack: Bool = false) throws(BlobStorageError) -> InputFile {
    var trail = FolderTrail()
    return try open(through: &trail, writesBack: writesBack)
  }

  /// The open folder that it is in, and its name there.
  func place(
    through trail: inout FolderTrail
  ) throws(BlobStorageError) -> (directory: Int32, name: [CChar]) {
    guard let folder else { return (InputFolder.workingDirectory, [CChar](terminating: relativePath)) }
    // The trail keeps it open.
    return (
      try folder.folder(of: relativePath, through: &trail).number, FolderTrail.name(in: relativePath)
    )
  }

  /// The target of a symbolic link.
  func linkTarget(through trail: inout FolderTrail) throws(BlobStorageError) -> [UInt8] {
    let (directory, name) = try place(through: &trail)
    return try InputFolder.linkTarget(directory, name, path)
  }

  /// The extended attributes of a symbolic link. Only root can set any, apart from labels that the system sets itself.
  func linkAttributes(through trail: inout FolderTrail) throws(BlobStorageError) -> [FileAttributes.Extended]
  {
    guard OwnerNames.isRoot else { return [] }
    let (directory, name) = try place(through: &trail)
    return try ExtendedAttributes.link(name, directory: directory).read(path)
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
    guard context.showsChanges(self) else { return nil }
    return try versionToCountOn(engine, context.presence) { (version) in
      guard version.byteCount == status.byteCount, let mark = FileMark(metadata: version.metadata)
      else { return false }
      return mark.matches(status) && context.isEnough(mark)
    }
  }

  /// The key's current version, if it has these bytes and attributes, whatever file it came from. If it stays current,
  /// another one that is kept for states will do.
  ///
  /// Compares only if the options say so, or if the new mark could not show the next import that the file is unchanged:
  /// otherwise each import would store such a file again.
  ///
  /// - Parameter digest: is not called if no version has these attributes.
  func sameVersion(
    _ digest: () throws(BlobStorageError) -> BlobDigest, _ mark: FileMark, _ engine: Engine,
    _ options: ImportOptions, _ presence: BlobPresence
  ) throws(BlobStorageError) -> BlobVersion? {
    guard options.comparesContent || mark.changed == nil else { return nil }
    func find(_ isSame: (VersionRow) -> Bool) throws(BlobStorageError) -> BlobVersion? {
      try versionToCountOn(engine, presence, orKept: options.keepsCurrent) { (version) in
        guard isSame(version), let known = FileMark(metadata: version.metadata), known.isLike(mark) else {
          return false
        }
        // A certain version replaces an uncertain one.
        return mark.isUncertain || !known.isUncertain
      }
    }
    guard try find({ _ in true }) != nil else { return nil }
    let digest = try digest()
    return try find { $0.digest == digest }
  }

  /// The key's current version, or one that is kept for states; nil if none matches. Passes over versions that are
  /// known to be unreadable, or may not become durable with what this process has stored.
  private func versionToCountOn(
    _ engine: Engine, _ presence: BlobPresence, orKept: Bool = false, where matches: (VersionRow) -> Bool
  ) throws(BlobStorageError) -> BlobVersion? {
    do throws(BlobStorageError) {
      guard let version = try stayingVersion(engine, orKept: orKept, where: matches),
        try presence.isPresent(version.digest)
      else { return nil }
      return version
    } catch {
      // An unreadable version is stored again.
      guard error.code == .corrupted else { throw error }
      return nil
    }
  }

  private func stayingVersion(
    _ engine: Engine, orKept: Bool, where matches: (VersionRow) -> Bool
  ) throws(BlobStorageError) -> BlobVersion? {
    try engine.checkOpen()
    let bytes = try Engine.keyBytes(key)
    return try engine.catalog.read { (transaction) throws(BlobStorageError) -> BlobVersion? in
      var versions: [StampedVersion] = []
      if let current = try transaction.currentVersion(ofKey: bytes) { versions.append(current) }
      if orKept, let kept = try transaction.nameRow(InternalKey.Purpose.replaced.key(bytes)) {
        versions += try transaction.versions(of: kept)
      }
      for version in versions where matches(version.row) {
        let place = version.row.place
        guard try engine.writer.stays(at: place, transaction, isChecked: false) else { continue }
        // A later sync does not report what a failed sync lost.
        if let pack = try transaction.packRow(place.pack), pack.isPoisoned,
          pack.durableByteCount <= place.offset
        {
          continue
        }
        return BlobVersion(key: key, stamp: version.stamp, row: version.row)
      }
      return nil
    }
  }
}

extension UncertainFile {
  init(_ source: ImportSource, _ change: SourceChange) { self.init(path: source.path.string, change: change) }
}

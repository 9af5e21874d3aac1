import BlobStorage
import Foundation
import SystemPackage

/// The result of reading one file.
enum ImportOutcome: Sendable {
  case unchanged(BlobVersion)
  /// It was read, and equals the key's current version.
  case same(BlobVersion)
  case skipped(SkippedFile)
  /// With the blob of extended attributes that are too long for metadata.
  case prepared(MemoryPut.Item, MemoryPut.Item?)
}

/// Reads the files of an import, with facts that it gathers before the first one.
struct ImportContext: Sendable {
  private let engine: Engine
  private let options: ImportOptions
  /// The store's own folder; nil if it is not in a file system.
  let store: FileIdentity?
  let presence: BlobPresence
  /// Nil if the store has no cache.
  private let cachePrefix: [UInt8]?
  /// Nil if no owners are kept.
  let owners: OwnerNames?
  private let clock: WallClock
  private let start: FileTime

  init(
    _ engine: Engine, _ options: ImportOptions, _ clock: WallClock, cachePrefix: [UInt8]?
  ) throws(BlobStorageError) {
    self.cachePrefix = cachePrefix
    self.engine = engine
    self.options = options
    owners = options.ownerNames
    store = try SystemFiles().status(of: engine.folder.path)?.identity
    presence = try BlobPresence(
      engine.blobs, lost: Set(try engine.sharing.losses().lostPacks), census: engine.backend.census)
    self.clock = clock
    // Rounded up, so that a file that changed just before does not seem to have changed later.
    start = FileTime(millisecondsSince1970: clock.now() + 1)
  }

  /// Whether a key belongs to the cache.
  func isCached(_ key: String) -> Bool { cachePrefix.map { key.utf8.starts(with: $0) } ?? false }

  /// Whether a version's metadata holds everything that this import keeps.
  func isEnough(_ mark: FileMark) -> Bool {
    guard options.keepsAttributes else { return true }
    guard let attributes = mark.attributes else { return false }
    return owners == nil || attributes.owner != nil
  }

  /// The key's current version, if the import takes the file for unchanged; does not read it.
  func unchangedVersion(of source: ImportSource) throws(BlobStorageError) -> BlobVersion? {
    options.readsUnchanged ? nil : try source.unchangedVersion(engine, self)
  }

  func putOptions(_ mark: FileMark) -> PutOptions {
    var putOptions = PutOptions(
      durability: .relaxed, replacement: options.replacement, codec: options.codec)
    putOptions.keepsReplaced = options.recordsState && options.replacement == .replaceCurrent
    putOptions.metadata = mark.metadata
    return putOptions
  }

  /// The mark of a file or link, and the blob of extended attributes that are too long for it.
  func newMark(
    of source: ImportSource, _ status: FileStatus, readFrom start: FileTime,
    _ extended: [FileAttributes.Extended]
  ) throws(BlobStorageError) -> (FileMark, MemoryPut.Item?) {
    var mark = FileMark(status, readFrom: start)
    if options.keepsAttributes {
      mark.attributes = FileAttributes(status, isNameEscaped: source.isNameEscaped, owners: owners)
      mark.attributes?.extended = extended
    }
    let long = try mark.moveLongAttributes(engine, omitting: isCached(source.key))
    return (mark, long)
  }

  /// The extended attributes of a file, if they are kept.
  func extendedAttributes(of file: InputFile) throws(BlobStorageError) -> [FileAttributes.Extended] {
    options.keepsAttributes ? try file.extendedAttributes() : []
  }

  /// Reads a whole file, or a link, and prepares it. Reads a file that changes meanwhile once more.
  func read(
    _ source: ImportSource, through trail: inout FolderTrail, byteCountMax: Int64, joins: Bool = false
  ) throws(BlobStorageError) -> ImportOutcome {
    let outcome = try readOnce(source, through: &trail, byteCountMax, joins)
    guard case .skipped(let skipped) = outcome, skipped.code == .sourceFailed else { return outcome }
    return try readOnce(source, through: &trail, byteCountMax, joins)
  }

  private func readOnce(
    _ source: ImportSource, through trail: inout FolderTrail, _ byteCountMax: Int64, _ joins: Bool
  ) throws(BlobStorageError) -> ImportOutcome {
    do throws(BlobStorageError) {
      let key = try source.keyToPut(engine, options)
      let start = beginReading(source.status)
      let bytes: Data
      let mark: FileMark
      let long: MemoryPut.Item?
      if source.isLink {
        bytes = Data(try source.linkTarget(through: &trail))
        (mark, long) = try newMark(
          of: source, source.status, readFrom: start, source.linkAttributes(through: &trail))
      } else {
        // A new version that equals the current one would only replace it.
        let known =
          options.readsUnchanged && options.replacement == .replaceCurrent
          ? try source.unchangedVersion(engine, self) : nil
        let file = try source.open(through: &trail)
        // The file's status shows that it grew. A file of length 0 may have bytes nevertheless, as in /proc.
        let capacity = Int(max(1, min(file.status.byteCount, byteCountMax)))
        let content = try Data(filling: capacity) { (target) throws(BlobStorageError) in
          try file.read(into: target)
        }
        bytes = content
        try file.checkUnchanged()
        guard Int64(content.count) == file.status.byteCount else {
          throw BlobStorageError(.sourceFailed, "it changed while it was read")
        }
        (mark, long) = try newMark(
          of: source, file.status, readFrom: start, extendedAttributes(of: file))
        if let known, known.metadata == mark.metadata,
          known.digest == BlobDigest.of(content.bytes, by: engine.header.digestAlgorithm)
        {
          return .same(known)
        }
      }
      let item = try engine.memoryPut.prepare(key, bytes, putOptions(mark), joins: joins)
      if let same = try source.sameVersion(item.plan.digest, mark, engine, options, presence) {
        return .unchanged(same)
      }
      return .prepared(item, long)
    } catch {
      return .skipped(try skipped(source, error))
    }
  }

  /// An error of the file itself skips the file; an error of the store ends the import.
  func skipped(_ source: ImportSource, _ error: BlobStorageError) throws(BlobStorageError) -> SkippedFile {
    // By bytes: a mark at the beginning of a name would join the slash before it into one character.
    let path = source.path.string
    let isOfFile = error.path.map { $0.utf8.suffix(path.utf8.count).elementsEqual(path.utf8) } ?? false
    guard isOfFile || error.code == .sourceFailed else { throw error }
    return SkippedFile(path: path, code: error.code, reason: error.message, isFailure: true)
  }

  /// The time at which reading a file begins.
  ///
  /// If a file changed just before the import, waits up to a tick of the file system's clock, so that the next import
  /// recognises it. Does not wait for a file that keeps changing.
  func beginReading(_ status: FileStatus) -> FileTime {
    let now = FileTime(millisecondsSince1970: clock.now())
    let settled = FileMark.settled(status)
    guard settled > now, max(status.modified, status.changed) <= start,
      settled <= now.advanced(byMilliseconds: 25)
    else { return now }
    Thread.sleep(forTimeInterval: 0.025)
    return FileTime(millisecondsSince1970: clock.now())
  }
}

extension ImportOptions {
  /// Looks up the names of owners; nil if no owners are kept.
  var ownerNames: OwnerNames? {
    keepsAttributes && (keepsOwners ?? OwnerNames.isRoot) ? OwnerNames() : nil
  }
}

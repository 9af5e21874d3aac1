import BlobStorage
import Foundation
import SystemPackage

/// The result of reading one file.
enum ImportOutcome: Sendable {
  case unchanged(BlobVersion)
  /// It was read, and equals the key's current version.
  case same(BlobVersion)
  case skipped(SkippedFile)
  /// It has become too long to be held in memory.
  case long
  /// With the blob of extended attributes that are too long for metadata, and how the file changed while it was read.
  case prepared(MemoryPut.Item, MemoryPut.Item?, SourceChange?)
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
  private let fileSystems = WatchedFileSystems()
  /// The most bytes of a file that says that it has none, as those of `/proc` do.
  private static let silentByteCountMax = 64 << 20

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

  /// Whether each change of the file shows in its change time.
  func showsChanges(_ source: ImportSource) -> Bool { fileSystems.showChanges(of: source) }

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
  ///
  /// - Parameter file: the file; nil for a link.
  func newMark(
    of source: ImportSource, _ file: InputFile?, readFrom start: FileTime,
    _ extended: [FileAttributes.Extended]
  ) throws(BlobStorageError) -> (FileMark, MemoryPut.Item?) {
    let status = file?.status ?? source.status
    // A link cannot be mapped.
    let showsChanges =
      (file?.isWrittenBack ?? showsChanges(source)) && status.device == source.status.device
    var mark = FileMark(status, readFrom: start, showsChanges: showsChanges)
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

  /// Reads a whole file, or a link, and prepares it. Reads a file that was rewritten meanwhile once more.
  func read(
    _ source: ImportSource, through trail: inout FolderTrail, byteCountMax: Int64, joins: Bool = false
  ) throws(BlobStorageError) -> ImportOutcome {
    let outcome = try readOnce(source, through: &trail, byteCountMax, joins, isLastAttempt: false)
    guard case .skipped(let skipped) = outcome, skipped.code == .sourceFailed else { return outcome }
    return try readOnce(source, through: &trail, byteCountMax, joins, isLastAttempt: true)
  }

  private func readOnce(
    _ source: ImportSource, through trail: inout FolderTrail, _ byteCountMax: Int64, _ joins: Bool,
    isLastAttempt: Bool
  ) throws(BlobStorageError) -> ImportOutcome {
    do throws(BlobStorageError) {
      let key = try source.keyToPut(engine, options)
      let start = beginReading(source.status)
      let bytes: Data
      var mark: FileMark
      let long: MemoryPut.Item?
      var change: SourceChange?
      if source.isLink {
        bytes = Data(try source.linkTarget(through: &trail))
        (mark, long) = try newMark(
          of: source, nil, readFrom: start, source.linkAttributes(through: &trail))
      } else {
        let file = try source.open(through: &trail, writesBack: showsChanges(source))
        guard file.status.byteCount <= byteCountMax else { return .long }
        bytes = try content(of: file)
        change = try file.change()
        if change == .rewritten, !isLastAttempt { throw file.changedError }
        (mark, long) = try newMark(of: source, file, readFrom: start, extendedAttributes(of: file))
        mark.isUncertain = change != nil
      }
      if let same = try known(source, bytes, mark) { return .same(same) }
      let item = try engine.memoryPut.prepare(key, bytes, putOptions(mark), joins: joins)
      if let same = try source.sameVersion({ item.plan.digest }, mark, engine, options, presence) {
        return options.readsUnchanged ? .same(same) : .unchanged(same)
      }
      return .prepared(item, long, change)
    } catch {
      return .skipped(try skipped(source, error))
    }
  }

  /// The current version, if all files are to be read and it equals this one: a new version would only replace it.
  private func known(
    _ source: ImportSource, _ bytes: Data, _ mark: FileMark
  ) throws(BlobStorageError) -> BlobVersion? {
    guard options.readsUnchanged, options.replacement == .replaceCurrent, !source.isLink,
      let known = try source.unchangedVersion(engine, self), known.metadata == mark.metadata,
      known.digest == BlobDigest.of(bytes.bytes, by: engine.header.digestAlgorithm)
    else { return nil }
    return known
  }

  /// The bytes that a short file had when it was opened.
  private func content(of file: InputFile) throws(BlobStorageError) -> Data {
    if file.status.byteCount > 0 {
      return try Data(filling: Int(file.status.byteCount)) { (target) throws(BlobStorageError) in
        try file.read(into: target)
      }
    }
    var content = Data()
    while true {
      let more = try Data(filling: 64 << 10) { (target) throws(BlobStorageError) in
        try file.read(into: target)
      }
      content += more
      if more.count < 64 << 10 { return content }
      guard content.count <= Self.silentByteCountMax else {
        throw BlobStorageError(
          .limitExceeded, "it has more than 64 MiB, although its length is 0", path: file.path.string)
      }
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
    guard settled > now, status.changed <= start,
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

import BlobStorage
import Foundation

/// Facts that an import gathers before the first file.
struct ImportContext: Sendable {
  /// The store's own folder; nil if it is not in a file system.
  let store: FileIdentity?
  let presence: BlobPresence
  /// Nil if the store has no cache.
  private let cachePrefix: [UInt8]?
  /// Nil if no owners are kept.
  let owners: OwnerNames?
  private let keepsAttributes: Bool
  private let clock: WallClock
  private let start: FileTime

  init(
    _ engine: Engine, _ options: ImportOptions, _ clock: WallClock, cachePrefix: [UInt8]?
  ) throws(BlobStorageError) {
    self.cachePrefix = cachePrefix
    keepsAttributes = options.keepsAttributes
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
    guard keepsAttributes else { return true }
    guard let attributes = mark.attributes else { return false }
    return owners == nil || attributes.owner != nil
  }

  /// The attributes to keep of a file; nil if none are kept.
  func attributes(
    of source: ImportSource, _ status: FileStatus, _ file: InputFile?
  ) throws(BlobStorageError) -> FileAttributes? {
    guard keepsAttributes else { return nil }
    var attributes = FileAttributes(status, isNameEscaped: source.isNameEscaped, owners: owners)
    if let file {
      attributes.extended = try file.withDescriptor { (descriptor) throws(BlobStorageError) in
        try ExtendedAttributes.file(descriptor).read(file.path)
      }
    }
    return attributes
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

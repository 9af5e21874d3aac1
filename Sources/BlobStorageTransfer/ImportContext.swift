import BlobStorage
import Foundation

/// What an import knows before it looks at the first file.
struct ImportContext: Sendable {
  /// The store's own folder; nil where that is in no file system.
  let store: FileIdentity?
  let presence: BlobPresence
  private let clock: WallClock
  private let start: FileTime

  init(_ engine: Engine, _ clock: WallClock) throws(BlobStorageError) {
    store = try SystemFiles().status(of: engine.folder.path)?.identity
    presence = try BlobPresence(
      engine.blobs, lost: Set(try engine.sharing.losses().lostPacks), census: engine.backend.census)
    self.clock = clock
    // Rounded up: what changed just before did not change later.
    start = FileTime(millisecondsSince1970: clock.now() + 1)
  }

  /// The moment at which the reading of a file begins.
  ///
  /// If a file changed just before the import, waits a tick of the file system's clock at most, so that the next import
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

import BlobStorage
import Synchronization

/// Knows on which file systems a file's change time shows every change of its content. Asks once for each device.
final class WatchedFileSystems: Sendable {
  private let known: Mutex<[UInt64: Bool]>

  init() { known = Mutex([:]) }

  /// Whether the change time of a file or link shows that it has changed.
  func showChanges(of source: ImportSource) -> Bool {
    let device = source.status.device
    if let known = known.withLock({ $0[device] }) { return known }
    var trail = FolderTrail()
    do throws(BlobStorageError) {
      let (directory, name) = try source.place(through: &trail)
      let shows = try InputFolder.keepsChangeTimes(directory, name, source.path)
      known.withLock { $0[device] = shows }
      return shows
    } catch {
      // Reading the file reports the error.
      return false
    }
  }
}

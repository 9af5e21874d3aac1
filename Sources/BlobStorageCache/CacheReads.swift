import BlobStorage
import Dispatch
import Synchronization

/// The rules of a store's cache for those who read its keys without a `BlobCache`: an expired value is missing, and a
/// read counts as a use. For `blobtool`, exports, mounts and copies.
///
/// It opens nothing and changes nothing but the order of use, so that it also serves a store that can only be read.
package final class CacheReads: Sendable {
  private let engine: Engine
  private let file: CacheFile
  private let notes = Mutex(CacheNotes())
  private static let queue = DispatchQueue(label: "blob-cache.use")
  private static let noteCountMax = 1_024

  /// Nil for a store without a cache. One whose file of limits is damaged is read like any other store.
  package init?(_ engine: Engine) throws(BlobStorageError) {
    guard let read = try unlessCorrupted(try CacheFile.read(engine.folder)), let file = read else {
      return nil
    }
    self.engine = engine
    self.file = file
  }

  /// Whether a version is the cache's and has expired.
  package func isExpired(_ version: BlobVersion) -> Bool {
    guard version.key.utf8.starts(with: file.prefix), !version.key.utf8.starts(with: InternalKey.prefix)
    else {
      return false
    }
    return CacheMark(metadata: version.metadata).isExpired(
      created: version.createdMilliseconds, now: engine.clock.now(),
      otherwise: file.limits.lifetime?.milliseconds ?? 0)
  }

  /// Notes that a value was read. Many notes are written at once, on another thread.
  package func use(_ key: String) {
    let key = Array(key.utf8)
    guard key.starts(with: file.prefix) else { return }
    let isDue = notes.withLock { notes in
      notes.use(CachedKeyRow.id(of: key))
      return notes.keys.count >= Self.noteCountMax
    }
    if isDue { Self.queue.async { self.write() } }
  }

  /// Writes what was noted. It is only advice, so that a store that cannot be written loses nothing.
  package func write() {
    let notes = notes.withLock { notes in
      defer { notes = CacheNotes() }
      return notes
    }
    guard !notes.isEmpty else { return }
    do throws(BlobStorageError) {
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try notes.write(long: [:], to: transaction)
      }
    } catch {}
  }
}

extension BlobStore {
  /// The rules of the store's cache for readers; nil if it has none.
  package func cacheReads() async throws(BlobStorageError) -> CacheReads? {
    try await read { (engine) throws(BlobStorageError) in try CacheReads(engine) }
  }
}

extension CacheReads {
  /// The versions that have not expired. All of them without a cache.
  package static func valid(_ versions: [BlobVersion], by reads: CacheReads?) -> [BlobVersion] {
    guard let reads else { return versions }
    return versions.filter { !reads.isExpired($0) }
  }
}

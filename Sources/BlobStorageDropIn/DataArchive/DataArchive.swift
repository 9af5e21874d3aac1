import BlobStorage
import Foundation

/// Values under keys in a folder, optionally with their earlier versions.
///
/// Operations on one key take effect and call their handlers in the order of the calls, without blocking the caller.
/// Those on different keys run side by side. Conversions and handlers run on threads of the archive's, and need no run
/// loop. Every handler is called exactly once.
///
/// All archives of one root, in any number of processes, share a store at `<root>/data_archive/.blobstore`. The first
/// operation imports what the original library has left in `<root>/data_archive`, and leaves it as it is.
public final class DataArchive: Sendable {
  /// The archive in the user's Library folder.
  public static var `default`: DataArchive { shared }
  private static let shared = DataArchive()

  let folder: URL
  let store: DropInStore

  /// An archive below `rootUrl`, or below the user's Library folder. Nothing is read or written yet.
  public init(rootUrl: URL? = nil) {
    folder = (rootUrl ?? UserFolders.library).appendingPathComponent("data_archive", isDirectory: true)
    let other = rootUrl == nil ? UserFolders.otherLibrary : nil
    store = DropInStore.of(folder, other: other?.appendingPathComponent("data_archive", isDirectory: true))
  }

  /// Stores a value as the current version of a key, in place of the one that was current.
  public func set<T: ValueConverter>(
    key: String, value: T, completionHandler: DataArchiveCompletionHandler? = nil
  ) {
    put(key, value, .replaceCurrent, completionHandler)
  }

  /// Stores bytes as the current version of a key, in place of the one that was current.
  public func set(key: String, data: Data, completionHandler: DataArchiveCompletionHandler? = nil) {
    put(key, DataValueConverter(value: data), .replaceCurrent, completionHandler)
  }

  /// Stores a value as the current version of a key; the one that was current becomes the youngest archived
  /// one.
  public func archiveCurrent<T: ValueConverter>(
    key: String, andSetNew value: T, completionHandler: DataArchiveCompletionHandler? = nil
  ) {
    put(key, value, .archiveCurrent, completionHandler)
  }

  /// Stores bytes as the current version of a key; the one that was current becomes the youngest archived
  /// one.
  public func archiveCurrent(
    key: String, andSetNewData data: Data, completionHandler: DataArchiveCompletionHandler? = nil
  ) {
    put(key, DataValueConverter(value: data), .archiveCurrent, completionHandler)
  }

  /// Keeps the current version of a key and its youngest `limit` archived ones.
  public func keep(
    upTo limit: Int, archivesForKey key: String, completionHandler: DataArchiveCompletionHandler? = nil
  ) {
    write(key, completionHandler) { [self] in
      guard limit > 0 else { return .limitNeedsToBePositiveNumber }
      let url = currentUrl(key)
      do throws(BlobStorageError) {
        return try store.perform(.archive) { (store) throws(BlobStorageError) in
          let storeKey = try storeKey(key)
          let versions = try store.versions(of: storeKey)
          guard !versions.isEmpty else { return .fileNotFound(url) }
          try store.keep(upTo: limit, of: storeKey)
          self.store.space.dropped(versions.dropFirst(limit < versions.count ? limit + 1 : versions.count))
          return .success
        }
      } catch { return .coludNotDeleteFile(url, error) }
    }
  }

  /// Drops a key with all its versions.
  public func delete(key: String, completionHandler: DataArchiveCompletionHandler? = nil) {
    write(key, completionHandler) { [self] in
      let url = keyUrl(key)
      do throws(BlobStorageError) {
        return try store.perform(.archive) { (store) throws(BlobStorageError) in
          let storeKey = try storeKey(key)
          let versions = try store.versions(of: storeKey)
          let isLeftOut = try self.store.forget(key, of: .archive)
          let isDeleted = try store.delete(storeKey)
          self.store.space.dropped(versions)
          return isDeleted || isLeftOut ? .success : .fileNotFound(url)
        }
      } catch { return .couldNotDeleteKey(url, error) }
    }
  }

  private func put<T: ValueConverter>(
    _ key: String, _ value: T, _ replacement: Replacement, _ completionHandler: DataArchiveCompletionHandler?
  ) {
    let convert = Handed({ value.toData })
    let name = "\(T.self)"
    write(key, completionHandler) { [self] in
      let url = currentUrl(key)
      guard let data = convert.value() else { return .couldNotConvertFile(url, name) }
      do throws(BlobStorageError) {
        try store.perform(.archive) { (store) throws(BlobStorageError) in
          let options = PutOptions(replacement: replacement)
          _ = try store.put(.data(data), forKey: try storeKey(key), options: options)
          self.store.space.put(data.count)
        }
        return .success
      } catch { return .couldNotWriteToFile(url, error) }
    }
  }

  /// Runs `body` in the key's order, and hands its result to the handler.
  private func write(
    _ key: String, _ completionHandler: DataArchiveCompletionHandler?,
    _ body: @escaping @Sendable () -> DataArchiveResult
  ) {
    let handler = Handed(completionHandler)
    store.lanes.submit(key) {
      let result = body()
      handler.value?(result)
    }
  }

  /// The store's key.
  ///
  /// - Throws: `invalidArgument` for the empty key, which the original took for the archive's folder itself.
  func storeKey(_ key: String) throws(BlobStorageError) -> String {
    guard !key.isEmpty else { throw BlobStorageError(.invalidArgument, "A key must not be empty.", key: key) }
    return Library.archive.storeKey(key)
  }

  /// Where the original would keep a key.
  func keyUrl(_ key: String) -> URL { folder.appendingPathComponent(key, isDirectory: true) }

  /// Where the original would keep a key's current version.
  func currentUrl(_ key: String) -> URL { keyUrl(key).appendingPathComponent("0.dat") }
}

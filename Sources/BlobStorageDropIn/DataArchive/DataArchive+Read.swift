import BlobStorage
import Foundation

extension DataArchive {
  /// Hands over the current version of a key, converted.
  public func get<T: ValueConverter>(
    key: String, converterType: T.Type, completionHandler: @escaping (T.T?, DataArchiveResult) -> Void
  ) {
    let handler = Handed(completionHandler)
    let conversion = Conversion(T.self)
    store.lanes.submit(key) { [self] in
      let url = currentUrl(key)
      let data: Data?
      do throws(BlobStorageError) {
        data = try store.perform(.archive) { (store) throws(BlobStorageError) in
          guard !key.isEmpty else { return nil }
          if let data = try store.data(forKey: try storeKey(key)) { return data }
          try self.store.requireTaken(key, by: .archive)
          return nil
        }
      } catch {
        handler.value(nil, .couldNotConvertFile(url, error.message))
        return
      }
      guard let data else { return handler.value(nil, .fileNotFound(url)) }
      guard let value = conversion.value(data) else {
        return handler.value(nil, .couldNotConvertFile(url, conversion.name))
      }
      handler.value(value, .success)
    }
  }

  /// Hands over the bytes of the current version of a key.
  public func get(key: String, completionHandler: @escaping (Data?, DataArchiveResult) -> Void) {
    get(key: key, converterType: DataValueConverter.self, completionHandler: completionHandler)
  }

  /// Hands over all versions of a key, converted, the newest first; after a failure, those before it.
  public func getAll<T: ValueConverter>(
    key: String, converterType: T.Type, completionHandler: @escaping ([T.T], DataArchiveResult) -> Void
  ) {
    let handler = Handed(completionHandler)
    let conversion = Conversion(T.self)
    store.lanes.submit(key) { [self] in
      let (values, result) = readAll(key, conversion)
      handler.value(values, result)
    }
  }

  /// Hands over the bytes of all versions of a key, the newest first; after a failure, those before it.
  public func getAll(key: String, completionHandler: @escaping ([Data], DataArchiveResult) -> Void) {
    getAll(key: key, converterType: DataValueConverter.self, completionHandler: completionHandler)
  }

  /// Hands over a reader of the versions that the key has at that moment; nil if the key does not exist.
  ///
  /// Later operations on the key wait until the reader has given its oldest version, is finished or is gone.
  public func lazyLockingReader(
    key: String, completionHandler: @escaping (DataArchiveLazyLockingReader?) -> Void
  ) {
    let handler = Handed(completionHandler)
    store.lanes.submit(key) { [self] in
      // The original's handler reports a failure only as nil.
      guard let history = try? history(key), !history.versions.isEmpty else { return handler.value(nil) }
      let hold = store.lanes.hold(key)
      handler.value(DataArchiveLazyLockingReader(key: key, history: history, archive: self, hold: hold))
    }
  }

  /// All keys, in byte order; none if the store cannot be read. Does not wait for operations under way.
  public var keys: [String] {
    (try? store.perform(.archive) { (store) throws(BlobStorageError) in try store.keys(of: .archive) }) ?? []
  }

  /// Folders that the original left for this archive and that could not be imported yet: of keys, and folders that
  /// cannot be listed. The next process that uses the archive tries again. None changes them.
  public var oldFilesLeftOut: [URL] { store.leftOut(.archive) }

  /// The number of versions of a key besides the current one. Does not wait for operations under way.
  public func numberOfArchives(key: String) -> Int {
    let versions = try? store.perform(.archive) { (store) throws(BlobStorageError) in
      try store.versions(of: try storeKey(key))
    }
    return max((versions?.count ?? 0) - 1, 0)
  }

  /// The original's file for one of `count` versions; index 0 is the newest.
  func versionUrl(_ key: String, index: Int, count: Int) -> URL {
    keyUrl(key).appendingPathComponent("\(index == 0 ? 0 : count - index).dat")
  }

  private func history(_ key: String) throws(BlobStorageError) -> VersionHistory {
    try store.perform(.archive) { (store) throws(BlobStorageError) in
      try store.history(of: try storeKey(key))
    }
  }

  private func readAll<Value>(_ key: String, _ conversion: Conversion<Value>) -> ([Value], DataArchiveResult)
  {
    var values: [Value] = []
    var url = currentUrl(key)
    guard !key.isEmpty else { return ([], .fileNotFound(url)) }
    do throws(BlobStorageError) {
      let history = try history(key)
      defer { history.close() }
      let count = history.versions.count
      guard count > 0 else {
        try store.requireTaken(key, by: .archive)
        return ([], .fileNotFound(url))
      }
      for index in 0..<count {
        url = versionUrl(key, index: index, count: count)
        let data = try store.perform(.archive) { (store) throws(BlobStorageError) in
          try store.data(at: index, of: history)
        }
        guard let value = conversion.value(data) else {
          return (values, .couldNotConvertFile(url, conversion.name))
        }
        values.append(value)
      }
      return (values, .success)
    } catch { return (values, .couldNotConvertFile(url, error.message)) }
  }
}

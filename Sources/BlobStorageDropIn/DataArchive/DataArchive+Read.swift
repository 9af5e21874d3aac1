import BlobStorage
import Foundation

extension DataArchive {
  /// Hands over the current version of a key, converted.
  public func get<T: ValueConverter>(
    key: String, converterType: T.Type, completionHandler: @escaping (T.T?, DataArchiveResult) -> Void
  ) {
    let handler = Handed(completionHandler)
    store.lanes.submit(key) { [self] in
      let url = currentUrl(key)
      let data: Data?
      do throws(BlobStorageError) {
        data = try store.perform(.archive) { (store) throws(BlobStorageError) in
          key.isEmpty ? nil : try store.data(forKey: try storeKey(key))
        }
      } catch {
        handler.value(nil, .couldNotConvertFile(url, error.message))
        return
      }
      guard let data else { return handler.value(nil, .fileNotFound(url)) }
      guard let value = T.from(data: data)?.value else {
        return handler.value(nil, .couldNotConvertFile(url, "\(T.self)"))
      }
      handler.value(value, .success)
    }
  }

  /// Hands over the bytes of the current version of a key.
  public func get(key: String, completionHandler: @escaping (Data?, DataArchiveResult) -> Void) {
    get(key: key, converterType: DataValueConverter.self, completionHandler: completionHandler)
  }

  /// Hands over all versions of a key, converted, the newest first; after a failure those before it.
  public func getAll<T: ValueConverter>(
    key: String, converterType: T.Type, completionHandler: @escaping ([T.T], DataArchiveResult) -> Void
  ) {
    let handler = Handed(completionHandler)
    store.lanes.submit(key) { [self] in
      var values: [T.T] = []
      let result = readAll(key) { data in
        guard let value = T.from(data: data)?.value else { return false }
        values.append(value)
        return true
      }
      if case .couldNotConvertFile(let url, "") = result {
        return handler.value(values, .couldNotConvertFile(url, "\(T.self)"))
      }
      handler.value(values, result)
    }
  }

  /// Hands over the bytes of all versions of a key, the newest first; after a failure those before it.
  public func getAll(key: String, completionHandler: @escaping ([Data], DataArchiveResult) -> Void) {
    getAll(key: key, converterType: DataValueConverter.self, completionHandler: completionHandler)
  }

  /// Hands over a reader of the versions that the key has at that moment, or nil when there is no such key.
  ///
  /// It blocks nobody, unlike the original's: what is written or deleted later is not seen by it.
  public func lazyLockingReader(
    key: String, completionHandler: @escaping (DataArchiveLazyLockingReader?) -> Void
  ) {
    let handler = Handed(completionHandler)
    store.lanes.submit(key) { [self] in
      // Nil is all that the original's handler can be told of a failure.
      guard let history = try? history(key), !history.versions.isEmpty else { return handler.value(nil) }
      handler.value(DataArchiveLazyLockingReader(key: key, history: history, archive: self))
    }
  }

  /// The keys there are, in byte order; none when the store cannot be read. Waits for no operation under way.
  public var keys: [String] {
    (try? store.perform(.archive) { (store) throws(BlobStorageError) in try store.keys(of: .archive) }) ?? []
  }

  /// How many versions a key has besides the current one. Waits for no operation under way.
  public func numberOfArchives(key: String) -> Int {
    let versions = try? store.perform(.archive) { (store) throws(BlobStorageError) in
      try store.versions(of: try storeKey(key))
    }
    return max((versions?.count ?? 0) - 1, 0)
  }

  /// Where the original would keep one of `count` versions, the newest of which has index 0.
  func versionUrl(_ key: String, index: Int, count: Int) -> URL {
    keyUrl(key).appendingPathComponent("\(index == 0 ? 0 : count - index).dat")
  }

  private func history(_ key: String) throws(BlobStorageError) -> VersionHistory {
    try store.perform(.archive) { (store) throws(BlobStorageError) in
      try store.history(of: try storeKey(key))
    }
  }

  /// Hands the bytes of all versions to `take` until it says no: then the failure has no text yet.
  private func readAll(_ key: String, _ take: (Data) -> Bool) -> DataArchiveResult {
    guard !key.isEmpty else { return .fileNotFound(currentUrl(key)) }
    var url = currentUrl(key)
    do throws(BlobStorageError) {
      let history = try history(key)
      defer { history.close() }
      let count = history.versions.count
      guard count > 0 else { return .fileNotFound(url) }
      for index in 0..<count {
        url = versionUrl(key, index: index, count: count)
        let data = try store.perform(.archive) { (store) throws(BlobStorageError) in
          try store.data(at: index, of: history)
        }
        guard take(data) else { return .couldNotConvertFile(url, "") }
      }
      return .success
    } catch { return .couldNotConvertFile(url, error.message) }
  }
}

import BlobStorage

/// Separates imports and copies from retentions: they share it, and a retention holds it alone to drop what they may
/// name.
package final class StatesLock {
  private let file: any File

  private init(_ file: any File) { self.file = file }

  deinit { file.close() }

  private static func held(
    _ folder: StoreFolder, _ kind: LockKind, withinSeconds seconds: Double
  ) throws(BlobStorageError) -> StatesLock? {
    let lock = StatesLock(try folder.files.open(folder.statesLock, .openOrCreate))
    return try lock.file.lock(kind, withinSeconds: seconds) ? lock : nil
  }

  /// Runs `body` while no other import names its state.
  ///
  /// - Throws: `busy` if another import has been naming its state for a minute.
  func whileNaming<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    guard try file.lock(bytes: 0..<1, withinSeconds: 60) else {
      throw BlobStorageError(.busy, "Another import has been naming its state for a minute: import again.")
    }
    let result = Result { () throws(BlobStorageError) in try body() }
    try file.unlock(bytes: 0..<1)
    return try result.get()
  }

  /// - Throws: `busy` if a retention holds it for a minute.
  package static func shared(_ folder: StoreFolder) throws(BlobStorageError) -> StatesLock {
    if let lock = try held(folder, .shared, withinSeconds: 60) { return lock }
    throw BlobStorageError(.busy, "`keep` is dropping states of \(folder.path): try again later.")
  }

  /// The lock of a retention, or of a copy that drops states; nil if an import or copy is under way after a second.
  package static func exclusive(_ folder: StoreFolder) throws(BlobStorageError) -> StatesLock? {
    try held(folder, .exclusive, withinSeconds: 1)
  }
}

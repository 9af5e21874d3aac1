import BlobStorage

/// Keeps imports and retentions apart: imports share it, and a retention has it alone while it drops what they may name.
package final class StatesLock {
  private let file: any File

  private init(_ file: any File) { self.file = file }

  deinit { file.close() }

  private static func held(
    _ engine: Engine, _ kind: LockKind, withinSeconds seconds: Double
  ) throws(BlobStorageError) -> StatesLock? {
    let lock = StatesLock(try engine.folder.files.open(engine.folder.statesLock, .openOrCreate))
    return try lock.file.lock(kind, withinSeconds: seconds) ? lock : nil
  }

  /// Runs `body` while no other import names its state.
  func whileNaming<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    guard try file.lock(bytes: 0..<1, withinSeconds: 60) else {
      throw BlobStorageError(.busy, "Another import has been naming its state for a minute: import again.")
    }
    let result = Result { () throws(BlobStorageError) in try body() }
    try file.unlock(bytes: 0..<1)
    return try result.get()
  }

  /// - Throws: `busy` if a retention has it for a minute.
  package static func shared(_ engine: Engine) throws(BlobStorageError) -> StatesLock {
    if let lock = try held(engine, .shared, withinSeconds: 60) { return lock }
    throw BlobStorageError(.busy, "`keep` is dropping states of \(engine.folder.path): try again later.")
  }

  /// Nil while an import is under way.
  static func exclusive(_ engine: Engine) throws(BlobStorageError) -> StatesLock? {
    try held(engine, .exclusive, withinSeconds: 1)
  }
}

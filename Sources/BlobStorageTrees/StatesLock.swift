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

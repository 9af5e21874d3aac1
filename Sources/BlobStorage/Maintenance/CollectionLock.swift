import SystemPackage

/// The one collector of all processes. It ends with its process.
package final class CollectionLock: Sendable {
  private let file: any File

  /// Waits for another collector, and no longer than `waitSeconds`.
  ///
  /// - Throws: `busy`.
  package init(_ engine: Engine, waitSeconds: Double) throws(BlobStorageError) {
    file = try engine.folder.files.open(engine.folder.collecting, .openOrCreate)
    let time = engine.environment.time
    let end = time.now() + waitSeconds
    while !(try file.lock(.exclusive, wait: false)) {
      try CancellationFlag.check()
      guard time.now() < end else {
        file.close()
        throw BlobStorageError(
          .busy,
          "Another process has been collecting garbage in \(engine.folder.path) for \(Int(waitSeconds)) s: try again later.",
          path: engine.folder.path.string)
      }
      time.wait(0.05)
    }
  }

  deinit { file.close() }
}

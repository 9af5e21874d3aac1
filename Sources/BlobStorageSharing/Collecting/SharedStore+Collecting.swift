import BlobStorage
import Logging
import Synchronization
import SystemPackage

extension SharedStore {
  /// Collects garbage with a separate engine and state folder, whose catalog knows only published packs.
  package func collect(
    _ engine: Engine, _ options: CollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> CollectionReport? {
    try engine.checkOpen()
    let place = remote.objects.place
    if let maintainer = try remote.maintainer(),
      try !StateFolder(engine.folder, remote.objects).isOf(maintainer)
    {
      throw BlobStorageError(
        .invalidArgument,
        "Only the machine \(maintainer.machine) collects garbage in \(place), because the object store"
          + " lacks conditional put: run gc there, with the state folder that created the store.",
        path: place)
    }
    // Lock before opening: two processes must not extend the collector's catalog at once.
    let lock = try CollectionLock(engine, waitSeconds: options.waitSeconds)
    defer { withExtendedLifetime(lock) {} }
    // Publish first: other machines do not know unpublished drops.
    if !options.isDryRun { try engine.writer.rollOver() }
    var remote = remote
    remote.configuration.intervalSeconds = 0
    remote.configuration.cacheByteCountMax = 0
    remote.isForCollector = true
    let own = try Engine(
      path: engine.folder.path.appending("collector").string,
      configuration: StoreConfiguration(logger: logger, cacheByteCountMax: 0),
      environment: collectorEnvironment(engine), remote: remote)
    var outcome: Result<CollectionReport, BlobStorageError>
    do throws(BlobStorageError) {
      outcome = .success(try collect(by: own, engine, options, progress))
    } catch { outcome = .failure(error) }
    do throws(BlobStorageError) { try own.close() } catch {
      // Its published packs stay, and the next collection continues.
      logger.warning("A collection did not finish.", metadata: ["reason": "\(error.message)"])
    }
    let report = try outcome.get()
    if !options.isDryRun { try engine.catchUp() }
    return report
  }

  private func collect(
    by own: Engine, _ engine: Engine, _ options: CollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> CollectionReport {
    guard let store = own.shared else { preconditionFailure("packs as objects are shared") }
    let removal = SharedRemoval(store: store) { [self] (collections) throws(BlobStorageError) in
      // This process is also a writer, and acknowledges.
      backend.adopt(collections)
      try acknowledgeCondemnation(engine)
    }
    return try Collector(own, options, progress, removal: removal).run()
  }

  private func collectorEnvironment(_ engine: Engine) -> Engine.Environment {
    var environment = self.environment
    environment.catalogFolder = environment.catalogFolder.map { FilePath($0.string + "-of-collector") }
    environment.packByteCountTarget = engine.writer.packByteCountTarget.load(ordering: .relaxed)
    return environment
  }
}

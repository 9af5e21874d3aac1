import Logging
import Synchronization
import SystemPackage

extension Engine {
  /// Collects on a shared store, by an engine with a state folder of its own.
  func collectShared(
    _ options: CollectionOptions, _ progress: ProgressHandler?, _ remote: Remote
  ) throws(BlobStorageError) -> CollectionReport {
    try checkOpen()
    if let maintainer = try remote.maintainer(),
      try !StateFolder(folder, remote.objects).isOf(maintainer)
    {
      throw BlobStorageError(
        .invalidArgument,
        "Only the machine \(maintainer.machine) collects garbage in \(remote.objects.place), because the object store"
          + " lacks conditional put: run gc there, with the state folder that created the store.",
        path: remote.objects.place)
    }
    // Before anything is opened: two processes must not bring one catalog up to what each of them knows.
    let lock = try CollectionLock(self, waitSeconds: options.waitSeconds)
    defer { withExtendedLifetime(lock) {} }
    // Other machines learn of drops only when they are published.
    if !options.isDryRun { try writer.rollOver() }
    var configuration = remote.configuration
    configuration.intervalSeconds = 0
    configuration.cacheByteCountMax = 0
    let engine = try Engine(
      path: folder.path.appending("collector").string,
      configuration: StoreConfiguration(logger: logger, cacheByteCountMax: 0),
      environment: collectorEnvironment(),
      remote: Remote(objects: remote.objects, configuration: configuration))
    var outcome: Result<CollectionReport, BlobStorageError>
    do throws(BlobStorageError) {
      let collector = try Collector(engine, options, progress)
      // Its own process is a writer like any other.
      collector.waiting = { [self] (said) throws(BlobStorageError) in
        (backend as? RemoteBackend)?.note(said)
        try passCollections()
      }
      outcome = .success(try collector.run())
    } catch { outcome = .failure(error) }
    do throws(BlobStorageError) { try engine.close() } catch {
      // What it has published stays, and the next collection goes on.
      logger.warning("A collection did not come to its end.", metadata: ["reason": "\(error.message)"])
    }
    let report = try outcome.get()
    if !options.isDryRun { try catchUp() }
    return report
  }

  private func collectorEnvironment() -> Environment {
    var environment = self.environment
    environment.catalogFolder = environment.catalogFolder.map { FilePath($0.string + "-of-collector") }
    environment.packByteCountTarget = writer.packByteCountTarget.load(ordering: .relaxed)
    environment.isForCollector = true
    return environment
  }
}

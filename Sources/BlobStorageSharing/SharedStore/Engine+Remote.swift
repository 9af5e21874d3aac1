import BlobStorage
import Foundation
import Logging

extension Engine {
  /// Packs as objects: where they are, and how this machine uses them.
  package struct Remote: PackLocation {
    package var objects: any ObjectStore
    package var configuration: RemoteConfiguration
    /// After so many seconds without contact a writer looks whether it was fenced, before it writes.
    package var silenceSecondsMax: Double
    /// Whether the engine only collects: it looks at condemned packs like at all others.
    var isForCollector = false
    /// What the object `store` says behind the header.
    private var extra: [UInt8] = []

    package init(
      objects: any ObjectStore, configuration: RemoteConfiguration = RemoteConfiguration(),
      silenceSecondsMax: Double = 30
    ) {
      self.objects = objects
      self.configuration = configuration
      self.silenceSecondsMax = silenceSecondsMax
    }

    /// The one machine that collects garbage; nil if any may.
    func maintainer() throws(BlobStorageError) -> Maintainer? { extra.isEmpty ? nil : try Maintainer(extra) }

    package mutating func prepare(_ folder: StoreFolder) throws(BlobStorageError) {
      extra = try StateFolder(folder, objects).prepare()
    }

    package func open(_ setting: StoreSetting) throws(BlobStorageError) -> OpenedPacks {
      let (folder, environment) = (setting.folder, setting.environment)
      let backend = RemoteBackend(
        objects: objects, storeID: setting.header.storeID, folder: folder.path, asideFolder: folder.aside,
        files: folder.files, cacheByteCountMax: max(configuration.cacheByteCountMax, 64 << 20),
        width: environment.worksInline ? 0 : 8, weaknesses: environment.weaknesses,
        countsOnCondemned: isForCollector)
      try backend.removeLeftovers()
      let locks = WriterLocks(
        folder: folder.members, files: folder.files, bootIdentity: setting.identity.text)
      try SpoolAdoption.setAsideTorn(backend, locks, setting.codecs, setting.logger)
      return OpenedPacks(backend: backend) { [self] parts in SharedStore(self, backend, locks, parts) }
    }
  }

  /// Makes an empty store of objects.
  ///
  /// - Parameter extra: what its object `store` says behind the header.
  package static func create(
    in objects: any ObjectStore, options: StoreOptions, extra: [UInt8] = [],
    environment: Environment = Environment()
  ) throws(BlobStorageError) {
    try StateFolder.create(try newHeader(options, environment), extra: extra, in: objects)
  }

  /// Makes an empty store of objects in a place without conditional puts: garbage is collected from this state folder
  /// only.
  package static func create(
    in objects: any ObjectStore, maintainedFrom state: String, options: StoreOptions,
    environment: Environment = Environment()
  ) throws(BlobStorageError) {
    let identity = withUnsafeBytes(of: (environment.randomNumber(), environment.randomNumber())) { Array($0) }
    let maintainer = Maintainer(identity: identity, machine: ProcessInfo.processInfo.hostName)
    try create(in: objects, options: options, extra: maintainer.encoded(), environment: environment)
    let folder = StateFolder(StoreFolder(try absolute(state), files: environment.files), objects)
    try folder.prepare()
    try folder.note(maintainer)
  }

  /// Opens a store of objects.
  ///
  /// - Parameter path: this machine's state folder.
  package convenience init(
    path: String, configuration: StoreConfiguration, environment: Environment = Environment(), remote: Remote
  ) throws(BlobStorageError) {
    try self.init(path: path, configuration: configuration, environment: environment, location: remote)
  }

  /// The collaborator, if the store is shared.
  var shared: SharedStore? { sharing as? SharedStore }

  package var publishedPacks: CatchUp? { shared?.catchUp }

  /// Acknowledges what collectors have condemned, if nothing unpublished here may count on it.
  package func passCollections() throws(BlobStorageError) { try shared?.passCollections(self) }

  /// Does the periodic work of an open store: publishes what was written, extends the catalog, renews the registration
  /// and acknowledges condemnations.
  package func beat() { shared?.beat(self) }
}

extension SharedStore {
  func beat(_ engine: Engine) {
    do throws(BlobStorageError) {
      try engine.checkOpen()
      let session = engine.writer
      var failure: BlobStorageError?
      // A machine that cannot publish any more still reads.
      do throws(BlobStorageError) { try session.rollOver() } catch { failure = error }
      try catchUp.run()
      // Collectors need not wait for a writer that never will publish. One that cannot at the moment lives, and
      // acknowledges nothing.
      if let failure, session.ending != nil { throw failure }
      if let writer = session.publisher as? SharedWriter {
        if failure == nil { try writer.renewIfFenced(session) }
        try writer.member.signLife()
      }
      if let failure { throw failure }
      try passCollections(engine)
      try adoptLeftSpool()
    } catch {
      if error.code == .closed { return }
      logger.warning("The store was not brought up to date.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Puts in memory look everything up in the transaction that commits them. Streams count on what they found before. So
  /// the acknowledgement waits for streams that began before the catalog said what is condemned.
  func passCollections(_ engine: Engine) throws(BlobStorageError) {
    guard let member = (engine.writer.publisher as? SharedWriter)?.member, member.isJoined else { return }
    let said = backend.said
    guard said.isStanding, said.epoch > member.passedEpoch else { return }
    try engine.catalog.write { [backend] (transaction) throws(BlobStorageError) in
      try CatalogBuilder.condemnUncounted(backend, in: transaction)
    }
    guard !engine.leases.hasPuts(upTo: member.put(before: said.epoch, last: engine.leases.lastPut)) else {
      return
    }
    try engine.writer.rollOver()
    try member.pass(said.epoch)
  }
}

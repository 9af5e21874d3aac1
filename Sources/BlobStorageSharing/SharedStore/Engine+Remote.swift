import BlobStorage
import Foundation
import Logging

extension Engine {
  /// The place of a store's packs in an object store, and this machine's configuration for them.
  package struct Remote: PackLocation {
    package var objects: any ObjectStore
    package var configuration: RemoteConfiguration
    /// Seconds after which a writer looks again for a fence before it begins a pack.
    package var silenceSecondsMax: Double
    /// Entries of the log between two checkpoints.
    package var checkpointInterval = CollectionLog.usualCheckpointInterval
    /// The number of changes to keep for machines that were away. A machine that missed more lists all packs.
    package var keptChangeCount: UInt32 = 1 << 16
    /// Seconds without an acknowledgement or a renewal before gc fences a writer. A gc that waits for less fences none.
    package var fencePatienceSeconds = 180.0
    /// For a collecting engine, the renewals of the store that it collects for; else nil. A collector may rely on
    /// condemned packs.
    var life: LifeSigns?
    var isForCollector: Bool { life != nil }
    /// The bytes of the object `store` behind the header.
    private var extra: [UInt8] = []

    package init(
      objects: any ObjectStore, configuration: RemoteConfiguration = RemoteConfiguration(),
      silenceSecondsMax: Double = 30
    ) {
      self.objects = objects
      self.configuration = configuration
      self.silenceSecondsMax = silenceSecondsMax
    }

    /// The only machine that may collect garbage; nil if any may.
    func maintainer() throws(BlobStorageError) -> Maintainer? { extra.isEmpty ? nil : try Maintainer(extra) }

    package mutating func prepare(_ folder: StoreFolder) throws(BlobStorageError) {
      extra = try folder.prepareState(of: objects)
    }

    package func open(_ setting: StoreSetting) throws(BlobStorageError) -> OpenedPacks {
      let (folder, environment) = (setting.folder, setting.environment)
      let backend = RemoteBackend(
        objects: objects, storeID: setting.header.storeID, folder: folder.path, asideFolder: folder.aside,
        files: folder.files, cacheByteLimit: max(configuration.cacheByteLimit, 64 << 20),
        indexByteLimit: max(configuration.catalogByteLimit / 2, 16 << 20),
        width: environment.worksInline ? 0 : 8, weaknesses: environment.weaknesses,
        hasChanges: setting.header.flags.contains(.changes), isForCollector: isForCollector)
      try backend.removeLeftovers()
      let locks = WriterLocks(
        folder: folder.members, files: folder.files, bootIdentity: setting.identity.text)
      try SpoolAdoption.setAsideTorn(backend, locks, setting.codecs, setting.logger)
      return OpenedPacks(backend: backend, outerRows: backend) { [self] parts in
        SharedStore(self, backend, locks, parts)
      }
    }
  }

  /// Creates an empty shared store.
  ///
  /// - Parameter extra: bytes of the object `store` behind the header.
  package static func create(
    in objects: any ObjectStore, options: StoreOptions, extra: [UInt8] = [],
    environment: Environment = Environment()
  ) throws(BlobStorageError) {
    var header = try newHeader(options, environment)
    // Without conditional put, changes have no order.
    if extra.isEmpty { header.flags.insert(.changes) }
    try objects.createStore(header, extra: extra)
  }

  /// Creates an empty shared store in an object store that lacks conditional put. Only this state folder may collect
  /// garbage.
  package static func create(
    in objects: any ObjectStore, maintainedFrom state: String, options: StoreOptions,
    environment: Environment = Environment()
  ) throws(BlobStorageError) {
    let identity = withUnsafeBytes(of: (environment.randomNumber(), environment.randomNumber())) { Array($0) }
    let maintainer = Maintainer(identity: identity, machine: ProcessInfo.processInfo.hostName)
    try create(in: objects, options: options, extra: maintainer.encoded(), environment: environment)
    do throws(BlobStorageError) {
      let folder = try folder(at: state, environment.files)
      try folder.prepareState(of: objects)
      try folder.setMaintainer(maintainer)
    } catch {
      // No folder could ever collect this store.
      do throws(BlobStorageError) { try objects.delete(SharedNames.store) } catch {}
      throw error
    }
  }

  /// Opens a shared store.
  ///
  /// - Parameter path: this machine's state folder.
  package convenience init(
    path: String, configuration: StoreConfiguration, environment: Environment = Environment(), remote: Remote
  ) throws(BlobStorageError) {
    try self.init(path: path, configuration: configuration, environment: environment, location: remote)
  }

  /// The shared store; nil for other stores.
  var shared: SharedStore? { sharing as? SharedStore }

  package var publishedPacks: CatalogExtension? { shared?.catalogExtension }

  /// Acknowledges the last condemnation, unless unpublished records may rely on condemned packs.
  package func acknowledgeCondemnation() throws(BlobStorageError) {
    try shared?.acknowledgeCondemnation(self)
  }

  /// Does the periodic work of an open store: publishes commits, extends the catalog and acknowledges condemnations.
  package func runPeriodicWork() { shared?.runPeriodicWork(self) }

  /// Shows collectors that this process lives.
  package func renewRegistrations() { shared?.life.renewAll() }
}

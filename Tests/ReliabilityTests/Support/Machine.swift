import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Logging
import SystemPackage

/// One machine of several that share a store: its disk, with the state folder on it, and its clock.
///
/// Unchecked: one actor runs at a time.
final class Machine: @unchecked Sendable {
  static let statePath = "/state"

  let number: Int
  private(set) var disk = SimulatedDisk()
  private var catalog: CatalogFolder
  private var boot = 1
  let clock: TestClock
  private let scheduler: Scheduler?
  /// Whether no process has adopted all that was left since the power failed. Until then a second process may see what
  /// a torn copy of a published pack hides.
  private(set) var isTorn = false
  private var openingCount = 0
  /// The environment of the processes that it runs.
  var environment = Engine.Environment()
  /// Bytes of what it keeps of the catalog.
  var catalogByteLimit: Int64 = 1 << 30

  init(number: Int, clock: UInt64, scheduler: Scheduler? = nil) throws {
    self.number = number
    self.clock = TestClock(clock)
    self.scheduler = scheduler
    catalog = try CatalogFolder()
    disk.schedule(by: scheduler)
  }

  /// Loses what is not synced. No process may run on it.
  func cutPower(seed: UInt64) throws { try cutPower { $0.powerCut(seed: seed) } }

  func cutPower(_ cut: (SimulatedDisk) -> SimulatedDisk) throws {
    disk = cut(disk)
    isTorn = true
    disk.schedule(by: scheduler)
    boot += 1
    catalog = try catalog.afterPowerCut(in: "own")
  }

  /// Replaces its disk by an empty one. No process may run on it.
  func loseState() throws {
    disk = SimulatedDisk()
    disk.schedule(by: scheduler)
    boot += 1
    catalog = try CatalogFolder()
  }

  /// Ends its part in the run.
  func rest() { disk.schedule(by: nil) }

  func environment(_ process: SimulatedProcess) -> Engine.Environment {
    var environment = environment
    environment.files = process
    environment.catalogFiles = CatalogFiles(process, catalog.locks, scheduler)
    environment.catalogFolder = catalog.path.appending("own")
    environment.bootIdentity = "boot-\(boot)"
    environment.clock = WallClock(now: { [clock] in clock.now })
    return environment
  }

  func open(_ process: SimulatedProcess, _ objects: any ObjectStore, waitingPackLimit: Int = 2) throws
    -> Engine
  {
    openingCount += 1
    defer { openingCount -= 1 }
    var remote = Engine.Remote(
      objects: objects,
      configuration: RemoteConfiguration(
        catalogByteLimit: catalogByteLimit, interval: .zero, waitingPackLimit: waitingPackLimit))
    // Small, so that entries go while machines that know them sleep.
    remote.checkpointInterval = 3
    remote.keptChangeCount = 1
    remote.fencePatienceSeconds = 0
    let engine = try Engine(
      path: Self.statePath,
      configuration: StoreConfiguration(cacheByteLimit: 0, threadCount: 1),
      environment: environment(process), remote: remote)
    if openingCount == 1, process.isAlive { isTorn = false }
    return engine
  }
}

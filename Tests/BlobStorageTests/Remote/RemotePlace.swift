import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage

/// A store of objects, and machines that use it.
struct RemotePlace {
  let objects: MemoryObjectStore
  let temporary: TemporaryFolder

  init(_ options: StoreOptions = StoreOptions(), pageCount: Int = 1_000) throws {
    objects = MemoryObjectStore(pageCount: pageCount)
    temporary = try TemporaryFolder()
    try Engine.create(in: objects, options: options)
  }

  func statePath(_ machine: String) -> String { temporary.path.appending(machine).string }

  /// A process on a machine.
  func engine(
    _ machine: String, packByteCount: Int64 = BlobLimits.packByteCountTarget, cacheByteLimit: Int64 = 1 << 30,
    inline: Bool = false, weaknesses: Weaknesses = [], recordCountOfBatch: Int = 20_000,
    waitingPackLimit: Int = 2, bootIdentity: String? = nil,
    files: any FileSystem = SystemFiles(), log: LogRecorder = LogRecorder()
  ) throws -> Engine {
    var environment = Engine.Environment()
    environment.files = files
    environment.bootIdentity = bootIdentity
    environment.recordCountOfBatch = recordCountOfBatch
    environment.weaknesses = weaknesses
    environment.packByteCountTarget = packByteCount
    environment.worksInline = inline
    return try Engine(
      path: statePath(machine),
      configuration: StoreConfiguration(logger: log.logger, cacheByteLimit: 0, threadCount: 2),
      environment: environment,
      remote: Engine.Remote(
        objects: objects,
        configuration: RemoteConfiguration(
          cacheByteLimit: cacheByteLimit, interval: .zero, waitingPackLimit: waitingPackLimit))
    )
  }

  func removeState(_ machine: String) throws {
    guard FileManager.default.fileExists(atPath: statePath(machine)) else { return }
    try FileManager.default.removeItem(atPath: statePath(machine))
  }

  /// What other machines have kept of packs on their disk.
  func removeRanges(_ machine: String) throws {
    try FileManager.default.removeItem(atPath: statePath(machine) + "/ranges")
  }

  /// The copies of footers of the packs that it knows.
  func removeFooters(_ machine: String) throws {
    let folder = statePath(machine) + "/footers"
    for name in try FileManager.default.contentsOfDirectory(atPath: folder) {
      try FileManager.default.removeItem(atPath: folder + "/" + name)
    }
  }

  var storeID: [UInt8] {
    get throws { Array(objects.objects["store", default: []].dropFirst(32).prefix(16)) }
  }

  /// The packs, and the fences of collectors.
  var packNames: [String] {
    objects.objects.filter { $0.key.hasPrefix("packs/") && $0.value.count != Fence.endByteCount }.keys
      .sorted()
  }

  /// The end marks of writers that have left.
  var endNames: [String] {
    objects.objects.filter { $0.key.hasPrefix("packs/") && $0.value.count == Fence.endByteCount }.keys
      .sorted()
  }
}

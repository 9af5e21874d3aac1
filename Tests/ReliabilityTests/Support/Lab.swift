import BlobStorage
import BlobStorageTestSupport
import Foundation
import Logging
import Synchronization
import SystemPackage

/// A store on a simulated disk, its catalog in a real folder, and a model beside it.
///
/// Unchecked: one thread uses it at a time, which is what a scheduler is for when there are several.
final class Lab: @unchecked Sendable {
  static let storePath = "/store"
  private(set) var disk: SimulatedDisk
  private(set) var catalog: CatalogFolder {
    didSet { catalogChanged(catalog) }
  }
  /// Called when the catalog moves to another folder.
  var catalogChanged: (CatalogFolder) -> Void = { _ in }
  var model = Model()
  var held = HeldBlobs()
  var clock = TestClock()
  /// What engines are opened with.
  var packByteCountTarget: Int64 = 64 << 10
  var weaknesses = Weaknesses()
  /// Steps that engines leave out.
  var missingSteps: Set<TableStep> = []
  /// Seconds that a collection waits for a commit that another process does not end.
  var commitPatienceSeconds = 10.0
  /// Chooses the process that goes on, when there are several.
  var scheduler: Scheduler? {
    didSet { disk.schedule(by: scheduler) }
  }
  fileprivate var boot = 1
  private let random: Mutex<SplitMix64>

  init(_ options: StoreOptions = Lab.options, seed: UInt64 = 0) throws {
    random = Mutex(SplitMix64(seed: seed))
    disk = SimulatedDisk()
    catalog = try CatalogFolder()
    try Engine.create(at: Self.storePath, options: options, environment: environment(disk.process()))
  }

  private init(copy other: Lab, _ disk: SimulatedDisk, _ catalog: CatalogFolder) {
    self.disk = disk
    self.catalog = catalog
    model = other.model
    held = other.held
    clock = TestClock(other.clock.now)
    packByteCountTarget = other.packByteCountTarget
    weaknesses = other.weaknesses
    missingSteps = other.missingSteps
    boot = other.boot
    random = Mutex(other.random.withLock { $0 })
  }

  /// A store that something else left on `disk` when the power failed.
  init(_ disk: SimulatedDisk, _ model: Model) throws {
    random = Mutex(SplitMix64(seed: 0))
    self.disk = disk
    self.model = model
    catalog = try CatalogFolder()
    boot = 2
  }

  static let options = StoreOptions(averageChunkByteCount: 1 << 10, usesSimilarity: false)

  /// An independent copy of the store. No engine may be open on it.
  func copy() throws -> Lab {
    Lab(
      copy: self, disk.powerCut(keeping: disk.pendingChanges.map { ($0.number, .whole) }),
      try CatalogFolder(copyOf: catalog))
  }

  /// The store as all processes left it when they were killed with the catalog as given.
  func afterKill(_ catalog: CatalogFolder) throws -> Lab {
    Lab(copy: self, disk.copy(), try CatalogFolder(copyOf: catalog))
  }

  /// The store after a power cut.
  func afterPowerCut(_ cut: (SimulatedDisk) -> SimulatedDisk) throws -> Lab {
    let lab = Lab(copy: self, cut(disk), try CatalogFolder())
    lab.boot += 1
    return lab
  }

  func environment(_ process: SimulatedProcess) -> Engine.Environment {
    var environment = Engine.Environment()
    environment.files = process
    environment.catalogFiles = CatalogFiles(
      process, scheduler == nil ? nil : catalog.locks, scheduler, without: missingSteps)
    environment.randomNumber = { [self] in random.withLock { $0.next() } }
    environment.worksInline = true
    environment.joinsItems = true
    environment.catalogFolder = catalog.path
    let clock = clock
    environment.clock = WallClock(now: { clock.now })
    environment.time = PassingTime(now: { Double(clock.now) / 1_000 }, wait: { _ in })
    environment.bootIdentity = "boot-\(boot)"
    environment.mapByteCount = 16 << 20
    environment.packByteCountTarget = packByteCountTarget
    environment.weaknesses = weaknesses
    environment.commitPatienceSeconds = commitPatienceSeconds
    // All that streams in goes through the pipeline.
    environment.streamHeadByteCount = 1
    environment.streamBatchByteCount = 1 << 20
    return environment
  }

  /// Opens the store as a process of its own.
  func open(_ process: SimulatedProcess? = nil) throws -> Engine {
    try Engine(
      path: Self.storePath,
      configuration: StoreConfiguration(cacheByteLimit: 64 << 10, threadCount: 1),
      environment: environment(process ?? disk.process()))
  }

  // MARK: Changes, in the store and in the model

  func put(
    _ engine: Engine, _ items: [(String, Data)], archives: Bool = false, durability: Durability = .durable,
    streamed: Bool = false, condition: ChangeCondition = .always
  ) throws {
    let change = model.beginPut(
      items.map { (key: $0.0, data: $0.1) }, archives: archives, isDurable: durability == .durable)
    let names = model.changes[change].made.map { Self.metadata($0.number) }
    let options = PutOptions(
      durability: durability, replacement: archives ? .archiveCurrent : .replaceCurrent, condition: condition,
      metadata: names[0])
    do {
      if items.count > 1 {
        _ = try engine.put(
          zip(items, names).map { PutItem(key: $0.0, data: $0.1, metadata: $1) }, options)
      } else if streamed {
        let rest = Mutex(items[0].1)
        _ = try engine.put(
          items[0].0,
          .stream({
            rest.withLock { rest in
              let part = rest.prefix(1_500)
              rest = rest.dropFirst(1_500)
              return part.isEmpty ? nil : Data(part)
            }
          }), options)
      } else {
        _ = try engine.put(items[0].0, .data(items[0].1), options)
      }
      try checkAlive(engine)
    } catch {
      settle(change, error)
      throw error
    }
    model.end(change)
  }

  /// A version says by its metadata which one of the model it is.
  static func number(_ metadata: [UInt8]) -> Int? { Int(String(decoding: metadata, as: UTF8.self)) }

  /// What was ever put, by the numbers of the model.
  var contents: [Int: Data] { model.contents }

  static func metadata(_ number: Int) -> [UInt8] { Array("\(number)".utf8) }

  func keep(_ engine: Engine, _ key: String, upTo count: Int, durability: Durability = .durable) throws {
    let change = model.beginDrop([key], kept: count + 1, isDurable: durability == .durable)
    do {
      _ = try engine.keep(upTo: count, keys: [key], durability)
      try checkAlive(engine)
    } catch {
      settle(change, error)
      throw error
    }
    model.end(change)
  }

  func delete(_ engine: Engine, _ keys: [String], durability: Durability = .durable) throws {
    let change = model.beginDrop(keys, kept: 0, isDurable: durability == .durable)
    do {
      _ = try engine.delete(keys, durability)
      try checkAlive(engine)
    } catch {
      settle(change, error)
      throw error
    }
    model.end(change)
  }

  /// A process that has died while it stored a word in shared memory reports nothing.
  func checkAlive(_ engine: Engine) throws(BlobStorageError) {
    guard let process = engine.folder.files as? SimulatedProcess, !process.isAlive else { return }
    throw .simulatedStop
  }

  /// What a failed call leaves: one that was turned away has changed nothing; the outcome of any other is unknown.
  private func settle(_ change: Int, _ error: any Error) {
    switch (error as? BlobStorageError)?.code {
    case .busy?, .conditionFailed?: model.fail(change)
    default: model.leaveOpen(change)
    }
  }

  /// Calls `body` before the process syncs a pack for the second time: the first sync is of the pack's header.
  func beforeSecondSync(
    of process: SimulatedProcess, _ body: @escaping @Sendable () throws(BlobStorageError) -> Void
  ) {
    let count = Mutex(0)
    disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.process == process.number, call.kind == .synchronize, call.detail.contains("/packs/") else {
        return
      }
      let isSecond = count.withLock { count in
        count += 1
        return count == 2
      }
      if isSecond { try body() }
    }
  }

  // MARK: Crashes

  /// Every process died; what they had written is there.
  func restart(with catalog: CatalogFolder? = nil) {
    disk.heal()
    disk.crash()
    if let catalog { self.catalog = catalog }
  }

  /// The power failed.
  func loseData(_ cut: (SimulatedDisk) -> SimulatedDisk) throws {
    disk.heal()
    disk = cut(disk)
    catalog = try catalog.afterPowerCut()
    boot += 1
  }

  /// The catalog is gone; nothing else happened.
  func forgetCatalog() throws { catalog = try CatalogFolder() }
}

/// A clock that tests set.
final class TestClock: Sendable {
  private let time: Mutex<UInt64>
  init(_ start: UInt64 = 1_700_000_000_000) { time = Mutex(start) }
  var now: UInt64 { time.withLock { $0 } }
  func set(_ milliseconds: UInt64) { time.withLock { $0 = milliseconds } }
}

/// A real folder for a catalog, gone when this object is.
final class CatalogFolder: Sendable {
  let path: FilePath
  let locks = CatalogLocks()

  init() throws {
    // Memory, where the system offers it: what is here need not outlive anything.
    let parent =
      FileManager.default.fileExists(atPath: "/dev/shm")
      ? "/dev/shm" : FileManager.default.temporaryDirectory.path
    path = FilePath(parent).appending("blobstorage-reliability-\(String(randomUInt64(), radix: 16))")
    try SystemFiles().createDirectory(path)
  }

  /// What a process that is killed now would leave: not LMDB's table of readers, which names living threads.
  convenience init(copyOf other: CatalogFolder) throws {
    try self.init()
    try Self.copy(other.path, path)
  }

  /// What a power cut leaves: a catalog that was left clean has been forced to the medium; of another nothing counts.
  /// - Parameter name: the folder in this one that the catalog is in.
  func afterPowerCut(in name: String? = nil) throws -> CatalogFolder {
    let state = (name.map { path.appending($0) } ?? path).appending("state").string
    let isClean = (try? String(contentsOfFile: state, encoding: .utf8))?.contains(" clean") ?? false
    return isClean ? try CatalogFolder(copyOf: self) : try CatalogFolder()
  }

  private static func copy(_ from: FilePath, _ to: FilePath) throws {
    for name in try SystemFiles().list(from) where name != "lock.mdb" {
      let (source, target) = (from.appending(name), to.appending(name))
      if try SystemFiles().status(of: source)?.kind == .directory {
        try SystemFiles().createDirectory(target)
        try copy(source, target)
      } else {
        try FileManager.default.copyItem(atPath: source.string, toPath: target.string)
        if name == "live" { try LiveWords(at: target).adopt() }
      }
    }
    try CopiedCatalog.adopt(to.string)
  }

  deinit { try? FileManager.default.removeItem(atPath: path.string) }
}

/// Bytes that are the same for the same seed and do not compress.
func noise(_ seed: UInt64, _ count: Int) -> Data {
  var random = SplitMix64(seed: seed)
  return Data(random.bytes(count))
}

/// Bytes that compress well and are the same for the same seed.
func prose(_ seed: UInt64, _ count: Int) -> Data {
  var generator = SplitMix64(seed: seed)
  let words = ["pack ", "chunk ", "manifest ", "ref ", "drop ", "lease ", "catalog ", "seal "]
  var text = ""
  while text.utf8.count < count { text += words[Int(generator.next() % 8)] }
  return Data(text.utf8.prefix(count))
}

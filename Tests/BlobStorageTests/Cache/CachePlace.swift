import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage

/// A cache in a folder of its own, or on a simulated disk that can be full or killed.
final class CachePlace: Sendable {
  let disk: SimulatedDisk?
  private let temporary: TemporaryFolder
  private let memoryFolder: String?
  private let storePath: String
  let clock = CacheClock()
  let log = LogRecorder()
  let limits: CacheLimits

  init(
    _ limits: CacheLimits = CacheLimits(byteLimit: CacheLimits.smallestByteLimit), disk: SimulatedDisk? = nil
  ) throws {
    self.limits = limits
    self.disk = disk
    temporary = try TemporaryFolder()
    // Thousands of syncs: in memory where there is such a file system.
    let inMemory = "/dev/shm/blob-storage-\(UUID().uuidString)"
    if disk != nil {
      (storePath, memoryFolder) = ("/store", nil)
    } else if FileManager.default.isWritableFile(atPath: "/dev/shm") {
      (storePath, memoryFolder) = (inMemory, inMemory)
    } else {
      (storePath, memoryFolder) = (temporary.path.appending("store").string, nil)
    }
    var environment = Engine.Environment()
    if let disk { environment.files = disk }
    try Engine.create(at: storePath, options: limits.storeOptions, environment: environment)
  }

  deinit {
    if let memoryFolder { try? FileManager.default.removeItem(atPath: memoryFolder) }
  }

  /// Opens the store as a process of its own.
  ///
  /// - Parameters:
  ///   - files: to be used in place of the system's.
  ///   - time: the same.
  func engine(files: (any FileSystem)? = nil, time: PassingTime = .system) throws -> Engine {
    var environment = Engine.Environment()
    environment.time = time
    if let files { environment.files = files }
    if let disk {
      environment.files = disk.process()
      environment.catalogFolder = temporary.path.appending("catalog")
    }
    let clock = clock
    environment.clock = WallClock(now: { clock.now })
    return try Engine(
      path: storePath,
      configuration: StoreConfiguration(logger: log.logger, cacheByteLimit: 0, threadCount: 1),
      environment: environment)
  }

  func cache(
    _ engine: Engine? = nil, prefix: String = "", limits: CacheLimits? = nil, memoryByteLimit: Int = 0
  ) throws -> CacheCore {
    try CacheCore(
      engine: try engine ?? self.engine(), prefix: prefix, limits: limits ?? self.limits,
      memoryByteLimit: memoryByteLimit, durability: .relaxed)
  }

  func removeCatalog() throws {
    try FileManager.default.removeItem(atPath: storePath + "/catalog")
  }
}

/// A clock that shows what it is set to.
final class CacheClock: Sendable {
  private let milliseconds = Mutex<UInt64>(1_700_000_000_000)
  var now: UInt64 { milliseconds.withLock { $0 } }

  func move(seconds: Int64) {
    milliseconds.withLock { $0 = UInt64(Int64($0) + seconds * 1_000) }
  }
}

extension SplitMix64 {
  /// So many bytes, quickly also in a debug build.
  mutating func noise(_ count: Int) -> Data {
    var data = Data(count: count)
    data.withUnsafeMutableBytes { raw in
      var offset = 0
      while offset + 8 <= count {
        raw.storeBytes(of: next(), toByteOffset: offset, as: UInt64.self)
        offset += 8
      }
      while offset < count {
        raw[offset] = UInt8(truncatingIfNeeded: next())
        offset += 1
      }
    }
    return data
  }
}

extension CacheCore {
  func put(_ key: String, _ data: Data, priority: CachePriority = .normal) throws -> Bool {
    try put([CacheItem(key: key, data: data, priority: priority)])[0]
  }

  func put(
    _ key: String, _ bytes: [UInt8], priority: CachePriority = .normal, lifetime: Duration? = nil
  ) throws -> Bool {
    try put([CacheItem(key: key, data: Data(bytes), priority: priority, lifetime: lifetime)])[0]
  }

  /// Overwrites all records.
  func damagePacks() throws {
    let packs = engine.folder.packs
    for name in try SystemFiles().list(packs) {
      let file = try SystemFiles().open(packs.appending(name), .readWrite)
      let count = Int(try file.status().byteCount) - PackHeader.byteCount
      try file.write([UInt8](repeating: 0xAA, count: count), at: Int64(PackHeader.byteCount))
      file.close()
    }
  }

  /// By how many hundredths the folder exceeds the limit; negative below it.
  ///
  /// Others may write meanwhile. A file that goes while this looks and the one that takes its place never count together.
  func excess() throws -> Double {
    let path = engine.folder.path.string
    let byteCount =
      FileManager.default.fileExists(atPath: path)
      ? standingByteCount(below: path) : try engine.folder.allocatedByteCount()
    return 100 * Double(byteCount - limits.byteLimit) / Double(limits.byteLimit)
  }

  /// Bytes of the files that are there before and after the look: at some moment all of them were.
  private func standingByteCount(below path: String) -> Int64 {
    let before = allocatedByteCounts(below: path)
    return allocatedByteCounts(below: path).reduce(0) { sum, file in
      sum + min(file.value, before[file.key] ?? 0)
    }
  }

  private struct FoundFile: Hashable {
    var path: String
    var number: UInt64
  }

  private func allocatedByteCounts(below path: String) -> [FoundFile: Int64] {
    var byteCounts: [FoundFile: Int64] = [:]
    for name in FileManager.default.enumerator(atPath: path)?.compactMap({ $0 as? String }) ?? [] {
      var status = stat()
      guard lstat("\(path)/\(name)", &status) == 0 else { continue }
      byteCounts[FoundFile(path: name, number: UInt64(status.st_ino))] = Int64(status.st_blocks) * 512
    }
    return byteCounts
  }
}

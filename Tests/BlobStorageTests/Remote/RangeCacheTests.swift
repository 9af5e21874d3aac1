import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A cache of packs' ranges")
struct RangeCacheTests {
  @Test("makes room by removing what was used longest ago")
  func order() throws {
    let temporary = try TemporaryFolder()
    let cache = RangeCache(folder: temporary.path, files: SystemFiles(), byteCountMax: 1 << 20)
    let block = [UInt8](repeating: 7, count: RangeCache.blockByteCount)
    let packs = (1...24).map { PackName(writer: 1, sequence: $0) }
    for pack in packs {
      block.withUnsafeBytes { cache.store(pack, 0..<1, $0) }
      // The first is the one that is used.
      #expect(cache.missing(packs[0], 0..<1) == nil)
    }
    let kept = packs.indices.filter { cache.missing(packs[$0], 0..<1) == nil }
    #expect(kept.count > 6 && kept.count < 16)
    #expect(kept == [0] + Array((packs.count - kept.count + 1)..<packs.count))
  }

  /// With a state folder on a disk of its own.
  private static func backend(
    cacheByteLimit: Int64
  ) throws -> (backend: RemoteBackend, files: SimulatedProcess) {
    let files = SimulatedDisk().process()
    for folder in ["state", "state/packs", "state/footers", "state/incoming", "state/ranges"] {
      try files.createDirectory(FilePath("/\(folder)"))
    }
    let backend = RemoteBackend(
      objects: MemoryObjectStore(), storeID: SharedFormatTests.storeID, folder: "/state",
      asideFolder: "/state/aside", files: files, cacheByteLimit: cacheByteLimit)
    return (backend, files)
  }

  @Test("keeps a pack of this machine whole, unless it takes more than a quarter", arguments: [true, false])
  func wholePack(_ fits: Bool) throws {
    let (backend, files) = try Self.backend(cacheByteLimit: fits ? 400_000 : 399_999)
    let name = PackName(writer: 1, sequence: 1)
    try files.write(
      [UInt8](repeating: 7, count: 100_000), to: FilePath("/state/packs/\(name.fileName)"))
    try backend.settle(name)
    #expect(try files.list("/state/packs") == [])
    #expect(try files.list("/state/ranges") == (fits ? [name.fileName] : []))
  }

  @Test("holds its limit when nothing but packs of this machine come")
  func wholePacks() throws {
    let (backend, files) = try Self.backend(cacheByteLimit: 1_000_000)
    for number in 1...40 {
      let name = PackName(writer: 1, sequence: UInt32(number))
      try files.write([UInt8](repeating: 7, count: 100_000), to: FilePath("/state/packs/\(name.fileName)"))
      try backend.settle(name)
      let kept = try files.list("/state/ranges")
      #expect(kept.contains(name.fileName))
      #expect(kept.count <= 10)
    }
  }

  @Test("holds its limit however little each process adds")
  func shortProcesses() throws {
    let temporary = try TemporaryFolder()
    let block = [UInt8](repeating: 7, count: RangeCache.blockByteCount)
    for sequence in UInt32(1)...40 {
      let cache = RangeCache(folder: temporary.path, files: SystemFiles(), byteCountMax: 1 << 20)
      block.withUnsafeBytes { cache.store(PackName(writer: 1, sequence: sequence), 0..<1, $0) }
    }
    #expect(2...16 ~= (try FileManager.default.contentsOfDirectory(atPath: temporary.path.string).count))
  }

  @Test("keeps anew what another process has removed to make room, and no byte of it in a file that is gone")
  func removedElsewhere() throws {
    let temporary = try TemporaryFolder()
    func cache() -> RangeCache {
      RangeCache(folder: temporary.path, files: SystemFiles(), byteCountMax: 1 << 30)
    }
    let one = cache()
    let pack = PackName(writer: 1, sequence: 1)
    let block = [UInt8](repeating: 7, count: RangeCache.blockByteCount)
    block.withUnsafeBytes { one.store(pack, 0..<1, $0) }
    #expect(cache().missing(pack, 0..<1) == nil)
    try SystemFiles().remove(temporary.path.appending("\(pack).parts"))
    block.withUnsafeBytes { one.store(pack, 1..<2, $0) }
    let other = cache()
    #expect(other.missing(pack, 0..<2) == 0..<1)
    #expect(other.missing(pack, 0..<3) == 0..<3)
    var read = [UInt8](repeating: 0, count: block.count)
    #expect(read.withUnsafeMutableBytes { other.load(pack, 1..<2, into: $0) } == nil)
    #expect(read == block)
  }

  #if os(Linux)
    @Test("has few files open, of however many packs it has parts")
    func openFiles() throws {
      let temporary = try TemporaryFolder()
      let cache = RangeCache(folder: temporary.path, files: SystemFiles(), byteCountMax: 1 << 30)
      let packs = (1...150).map { PackName(writer: 1, sequence: $0) }
      let end = [UInt8](repeating: 7, count: 100)
      for pack in packs { end.withUnsafeBytes { cache.store(pack, 0..<1, $0) } }
      for pack in packs { #expect(cache.missing(pack, 0..<1) == nil) }
      let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
      }
      let own = open.filter { $0.hasPrefix(temporary.path.string + "/") }
      #expect(1...64 ~= own.count)
      withExtendedLifetime(cache) {}
    }
  #endif
}

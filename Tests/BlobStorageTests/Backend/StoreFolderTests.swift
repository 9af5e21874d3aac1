import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("The folder of a store")
struct StoreFolderTests {
  private let disk = SimulatedDisk()
  private var folder: StoreFolder { StoreFolder("/store", files: disk) }

  init() throws {
    var environment = Engine.Environment()
    environment.files = disk
    try Engine.create(at: "/store", options: StoreOptions(), environment: environment)
  }

  private func reserveByteCount() throws -> Int64? { try disk.status(of: folder.reserve)?.byteCount }

  /// How often `body` is run where it fails with that code each time.
  private func runCount(failing code: BlobStorageError.Code) -> Int {
    var count = 0
    let error = failure {
      try folder.withReserve { () throws(BlobStorageError) -> Void in
        count += 1
        throw BlobStorageError(code, "It failed.")
      }
    }
    #expect(error?.code == code)
    return count
  }

  @Test("gives its reserve free for what finds no room, once, and for nothing else")
  func reserve() throws {
    // Space that is taken, not a hole.
    #expect(disk.calls.contains { $0.kind == .allocate && $0.detail.hasPrefix("/store/reserve ") })
    for code in [BlobStorageError.Code.io, .readOnly, .corrupted] {
      #expect(runCount(failing: code) == 1)
      #expect(try reserveByteCount() == 512 << 10)
    }
    var isThere: [Bool] = []
    let answer = try folder.withReserve { () throws(BlobStorageError) -> Int in
      isThere.append(try disk.status(of: folder.reserve) != nil)
      if isThere.count == 1 { throw BlobStorageError(.noSpace, "There is no room.") }
      return 7
    }
    #expect(answer == 7)
    #expect(isThere == [true, false])
    // Without one there is nothing more to try.
    #expect(runCount(failing: .noSpace) == 1)
    try folder.keepReserve()
    #expect(try reserveByteCount() == 512 << 10)
    #expect(runCount(failing: .noSpace) == 2)
  }

  @Test("has no reserve rather than a part of one, and is made without where there is no room")
  func noRoom() throws {
    try disk.remove(folder.reserve)
    disk.limit(byteCount: 500_000)
    #expect(failure { try folder.keepReserve() }?.code == .noSpace)
    #expect(try reserveByteCount() == nil)
    let full = SimulatedDisk()
    full.limit(byteCount: 500_000)
    let made = StoreFolder("/store", files: full)
    let header = try folder.readHeader()
    try made.create(header)
    #expect(try made.readHeader() == header)
    #expect(try full.status(of: made.reserve) == nil)
  }

  @Test("has its file “store” for good once that was put back, and what was there before beside it")
  func restored() throws {
    let header = try folder.readHeader()
    let file = try disk.open(folder.header, .readWrite)
    let damaged = try file.read(byteCount: 1, at: 40)[0] ^ 1
    try file.write([damaged], at: 40)
    file.close()
    #expect(failure { _ = try folder.readHeader() }?.code == .corrupted)
    #expect(try folder.restoreHeader(defaults: header))
    #expect(try disk.bytes(of: folder.aside.appending("store"))[40] == damaged)
    let after = StoreFolder("/store", files: disk.powerCut())
    #expect(try after.readHeader() == header)
  }

  @Test("is damaged where packs have lost the file “store”, and no new store is made over them")
  func packsAlone() throws {
    let header = try folder.readHeader()
    let bare = SimulatedDisk()
    for path: FilePath in ["/bare", "/bare/packs"] { try bare.createDirectory(path) }
    try bare.write([1], to: "/bare/packs/0000000000000001-00000001.pack")
    let left = StoreFolder("/bare", files: bare)
    #expect(failure { _ = try left.readHeader() }?.code == .corrupted)
    #expect(failure { try left.create(header) }?.code == .corrupted)
    #expect(try bare.list("/bare") == ["packs"])
  }

  @Test("is no cache where another process ends the cache just then")
  func cacheEndedMeanwhile() throws {
    let limits = CacheLimits(byteLimit: 100_000_000)
    try CacheFile(prefix: [], limits: limits).write(folder)
    #expect(try CacheFile.read(folder)?.limits == limits)
    let (reader, other) = (disk.process(), disk.process())
    let path = folder.cache
    disk.beforeCalls { (call) throws(BlobStorageError) in
      if call.kind == .open, call.process == reader.number { try other.remove(path) }
    }
    #expect(try CacheFile.read(StoreFolder("/store", files: reader)) == nil)
    disk.beforeCalls(nil)
  }

  @Test("is known by its file “store”, and by nothing else of that name")
  func exists() throws {
    let place = try StorePlace()
    #expect(BlobStore.exists(at: place.path))
    // In the folder above it, “store” is a folder.
    let above = place.temporary.path.string
    for path in ["", above, "\(above)/none", "\(place.path)/store"] {
      #expect(!BlobStore.exists(at: path), "\(path)")
    }
    #expect(failure { _ = try Engine(path: above, configuration: StoreConfiguration()) }?.code == .notAStore)
  }

  @Test("is made in an empty folder or in none, and says for good what was decided for it")
  func made() async throws {
    let temporary = try TemporaryFolder()
    let root = temporary.path.string
    func expect(
      _ code: BlobStorageError.Code, at path: String, _ options: StoreOptions = StoreOptions(),
      sourceLocation: SourceLocation = #_sourceLocation
    ) async {
      let error = await #expect(throws: BlobStorageError.self, sourceLocation: sourceLocation) {
        _ = try await BlobStore.create(at: path, options: options)
      }
      #expect(error?.code == code, sourceLocation: sourceLocation)
    }
    let refused = [
      StoreOptions(averageChunkByteCount: 1_000), StoreOptions(averageChunkByteCount: 4 << 20),
      StoreOptions(codec: .zlib, level: 10), StoreOptions(codec: .none, level: 1), StoreOptions(level: 0),
    ]
    for options in refused { await expect(.invalidArgument, at: "\(root)/new", options) }
    await expect(.invalidArgument, at: "")
    #expect(try FileManager.default.contentsOfDirectory(atPath: root) == [])
    for path in ["\(root)/none", root] {
      let error = await #expect(throws: BlobStorageError.self) { _ = try await BlobStore.open(at: path) }
      #expect(error?.code == .noStore)
    }
    // Whatever else is there stays as it is.
    try FileManager.default.createDirectory(atPath: "\(root)/other", withIntermediateDirectories: true)
    try Data([1]).write(to: URL(filePath: "\(root)/other/file"))
    for path in ["\(root)/other", "\(root)/other/file"] {
      await expect(.notAStore, at: path)
      let error = await #expect(throws: BlobStorageError.self) { _ = try await BlobStore.open(at: path) }
      #expect(error?.code == .notAStore)
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: "\(root)/other") == ["file"])
    #expect(try Data(contentsOf: URL(filePath: "\(root)/other/file")) == Data([1]))
    // The parent is missing, too.
    let path = "\(root)/parent/store"
    let options = StoreOptions(
      digestAlgorithm: .sha256, averageChunkByteCount: 4_096, codec: .zlib, level: .max, usesSimilarity: false
    )
    let store = try await BlobStore.create(at: path, options: options)
    try await store.set("k", to: Data([2]))
    let information = store.information
    #expect(information.path == path && information.id.count == 32 && information.level == 9)
    #expect(information.digestAlgorithm == .sha256 && information.chunkSizes.average == 4_096)
    #expect(information.codec == .zlib && !information.usesSimilarity)
    #expect(abs(information.created.timeIntervalSinceNow) < 600)
    try await store.close()
    await expect(.storeExists, at: path)
    let opened = try await BlobStore.open(at: path)
    #expect(opened.information == information)
    #expect(try await opened.data(forKey: "k") == Data([2]))
    try await opened.close()
  }

  @Test(
    "is made below folders that this user may not read, and those that cannot be synced",
    arguments: [Errno.permissionDenied, .invalidArgument, .notSupported])
  func unsyncedParent(_ errno: Errno) throws {
    let disk = SimulatedDisk()
    disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.kind == .syncDirectory, call.detail == "/ " else { return }
      throw .systemCall("sync the folder", path: "/", errno: errno.rawValue)
    }
    var environment = Engine.Environment()
    environment.files = disk
    try Engine.create(at: "/store", options: StoreOptions(), environment: environment)
    #expect(try StoreFolder("/store", files: disk).readHeader().storeID.count == 16)
    disk.beforeCalls(nil)
  }

  @Test("is refused when a part of it lies behind a link", arguments: ["packs", "leases"])
  func links(_ part: String) throws {
    let place = try StorePlace()
    let outside = place.temporary.path.appending("outside").string
    try FileManager.default.moveItem(atPath: "\(place.path)/\(part)", toPath: outside)
    try FileManager.default.createSymbolicLink(
      atPath: "\(place.path)/\(part)", withDestinationPath: outside)
    #expect(failure { _ = try place.engine() }?.code == .notAStore)
  }
}

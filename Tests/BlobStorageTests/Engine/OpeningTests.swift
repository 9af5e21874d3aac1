import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import BlobStorageTransfer
import Dispatch
import Foundation
import SystemPackage
import Testing

@Suite("Opening a store")
struct OpeningTests {
  @Test("of format version 1 fails with one sentence that says how to migrate")
  func formatVersion1() async throws {
    let place = try StorePlace()
    let file = URL(filePath: place.path).appending(path: "store")
    var header = try Data(contentsOf: file)
    header[8] = 1
    header.replaceSubrange(60..., with: withUnsafeBytes(of: checksum(header).littleEndian) { Data($0) })
    try header.write(to: file)
    let error = await #expect(throws: BlobStorageError.self) {
      try await BlobStore.open(at: place.path)
    }
    #expect(error?.code == .unsupportedFormat)
    #expect(
      error?.message
        == "\(place.path): The store has format version 1, which this build does not read: "
        + "export it with the build that made it, and import that with this one.")
  }

  private func checksum(_ header: Data) -> UInt32 {
    Array(header.prefix(60)).withUnsafeBytes { CRC32C.checksum($0.bytes) }
  }

  @Test("is damage where the medium has changed the format version")
  func otherVersion() throws {
    let place = try StorePlace()
    let file = URL(filePath: place.path).appending(path: "store")
    let header = try Data(contentsOf: file)
    for bit in 0..<16 {
      var other = header
      other[8 + bit / 8] ^= 1 << (bit % 8)
      try other.write(to: file)
      let error = #expect(throws: BlobStorageError.self) { try place.engine() }
      #expect(error?.code == .corrupted, "bit \(bit): \(error?.message ?? "")")
    }
  }

  @Test("takes no folder, link or pipe for a pack, and misses the pack that one of them has replaced")
  func strangers() throws {
    let place = try StorePlace()
    let first = try place.engine()
    _ = try first.put("a", [1, 2, 3], PutOptions())
    try first.close()
    let packs = "\(place.path)/packs"
    let pack = try #require(FileManager.default.contentsOfDirectory(atPath: packs).first)
    let makers: [(String) throws -> Void] = [
      { try FileManager.default.createDirectory(atPath: $0, withIntermediateDirectories: false) },
      { try FileManager.default.createSymbolicLink(atPath: $0, withDestinationPath: "/etc/passwd") },
      { #expect(mkfifo($0, 0o600) == 0) },
    ]
    for (number, make) in makers.enumerated() {
      try make("\(packs)/aaaaaaaaaaaaaaaa-0000000\(number + 1).pack")
      let engine = try place.engine()
      #expect(try engine.data("a", nil) == Data([1, 2, 3]))
      #expect(try engine.verify().damaged == [])
      #expect(try engine.collectGarbage(GarbageCollectionOptions()).obstacles == [])
      try engine.close()
    }
    try FileManager.default.moveItem(atPath: "\(packs)/\(pack)", toPath: "\(place.path)-kept")
    for make in makers {
      try make("\(packs)/\(pack)")
      let engine = try place.engine()
      #expect(throws: BlobStorageError.self) { try engine.data("a", nil) }
      #expect(try engine.losses().lostPacks == [String(pack.dropLast(5))])
      try engine.close()
      try FileManager.default.removeItem(atPath: "\(packs)/\(pack)")
    }
    try FileManager.default.moveItem(atPath: "\(place.path)-kept", toPath: "\(packs)/\(pack)")
    let engine = try place.engine()
    #expect(try engine.data("a", nil) == Data([1, 2, 3]))
    try engine.close()
  }

  @Test("in a folder of another store is not created")
  func inside() throws {
    let place = try StorePlace()
    for inner in ["inner", "packs/inner", "a/b/c"] {
      let error = #expect(throws: BlobStorageError.self) {
        try Engine.create(at: "\(place.path)/\(inner)", options: StoreOptions())
      }
      #expect(error?.code == .notAStore, "\(inner)")
    }
    // One that is damaged is one, too.
    let file = "\(place.path)/store"
    let header = try Data(contentsOf: URL(filePath: file))
    for other in [Data(header.dropLast()), header + [1]] {
      try other.write(to: URL(filePath: file))
      #expect(throws: BlobStorageError.self) {
        try Engine.create(at: "\(place.path)/inner", options: StoreOptions())
      }
    }
    #expect(!FileManager.default.fileExists(atPath: "\(place.path)/inner"))
    try Engine.create(at: "\(place.path)-beside", options: StoreOptions())
    try FileManager.default.removeItem(atPath: "\(place.path)-beside")
  }

  @Test("reading and closing wait for no write transaction, nor for an opening")
  func besideWriter() throws {
    let place = try StorePlace()
    let writer = try place.engine()
    _ = try writer.put("a", [1, 2, 3], PutOptions())
    let done = DispatchSemaphore(value: 0)
    let outcome = Outcome()
    try writer.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.bumpEpoch()
      // As long as this runs, no other transaction of any process can write.
      Thread.detachNewThread {
        outcome.set { () throws(BlobStorageError) in
          let reader = try Engine(path: place.path, configuration: StoreConfiguration(threadCount: 1))
          let data = try reader.data("a", nil)
          try reader.close()
          return data
        }
        done.signal()
      }
      // It would wait for ever.
      #expect(done.wait(timeout: .now() + 60) == .success)
    }
    #expect(try outcome.get() == Data([1, 2, 3]))
    try writer.close()
  }

  @Test("beside a process that was stopped in a rebuild uses a private catalog")
  func besideStoppedRebuild() throws {
    let place = try StorePlace()
    let first = try place.engine()
    _ = try first.put("a", [1], PutOptions())
    try first.close()
    try FileManager.default.removeItem(at: place.catalogFolder.appending(path: "state"))
    let folder = FilePath(place.catalogFolder.path)
    let lock = try SystemFiles().open(try #require(try CopiedCatalog.lock(in: folder)), .readWrite)
    #expect(try lock.lock(.exclusive, wait: false))
    var environment = Engine.Environment()
    environment.patienceSeconds = 0.05
    let reader = try place.engine(environment)
    #expect(try reader.data("a", nil) == Data([1]))
    #expect(try Self.generations(place).count == 1)
    try lock.unlock()
    // A writer needs the one that all share, which is then what the reader uses, too.
    let writer = try place.engine()
    _ = try writer.put("a", [2], PutOptions())
    #expect(try reader.data("a", nil) == Data([2]))
    _ = try reader.put("b", [3], PutOptions())
    #expect(try writer.data("b", nil) == Data([3]))
    try reader.close()
    try writer.close()
    #expect(try Self.state(place).hasSuffix(" clean\n"))
  }

  @Test("of several that close at once, the last leaves the catalog clean")
  func closing() throws {
    let place = try StorePlace()
    for round in 0..<20 {
      let engines = try (0..<4).map { _ in try place.engine() }
      _ = try engines[0].put("a", [UInt8(round)], PutOptions())
      DispatchQueue.concurrentPerform(iterations: 4) { try? engines[$0].close() }
      #expect(try Self.state(place).hasSuffix(" clean\n"))
    }
  }

  // MARK: After the end

  @Test("and closing it: nothing is answered from then on, and nothing is left; a second time does nothing")
  func closed() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    _ = try engine.put("a", [1], PutOptions())
    let blob = try engine.openBlob("a", nil)
    #expect(blob != nil)
    try engine.close()
    try engine.close()
    let calls: [() throws -> Void] = [
      { _ = try engine.put("a", [2]) }, { _ = try engine.data("a", nil) }, { _ = try engine.versions("a") },
      { _ = try engine.keys("", after: nil, limit: 1) }, { _ = try engine.delete(["a"], .relaxed) },
      { _ = try engine.openBlob("a", nil) }, { try engine.synchronize() }, { _ = try engine.extend() },
      { _ = try engine.collectGarbage() }, { _ = try engine.verify() }, { _ = try engine.statistics() },
      { _ = try engine.put([PutItem(key: "a", data: Data([2]))], .relaxed) },
      { _ = try engine.change([.delete("a")], .relaxed) },
      { _ = try engine.delete(prefix: .bytes("a"), .relaxed) },
      { _ = try engine.keep(upTo: 0, keys: ["a"], .relaxed) }, { _ = try engine.version("a", nil) },
      { _ = try engine.keep(upTo: 0, prefix: .bytes("a"), .relaxed) }, { _ = try engine.holdVersions("a") },
      { _ = try engine.data(BlobDigest.of([1] as [UInt8])) }, { _ = try blob?.read(0..<1) },
      { _ = try engine.openBlob(BlobDigest.of([1] as [UInt8])) }, { try blob?.stream(0..<1) { _ in } },
    ]
    for (index, call) in calls.enumerated() { #expect(failure(call)?.code == .closed, "call \(index)") }
    #expect(try FileManager.default.contentsOfDirectory(atPath: "\(place.path)/leases") == [])
    let again = try place.engine()
    #expect(try again.data("a", nil) == Data([1]))
    try again.close()
  }

  @Test("ends its threads when it is closed, and when it is given up", arguments: [true, false])
  func threads(_ isClosed: Bool) throws {
    let place = try StorePlace()
    weak var pool: WorkPool?
    do {
      let engine = try place.engine()
      pool = engine.work
      _ = try engine.put("a", [1], PutOptions())
      if isClosed { try engine.close() }
    }
    // Each thread holds the pool until it ends. The limit keeps a failing test from waiting for ever.
    for _ in 0..<6_000 where pool != nil { Thread.sleep(forTimeInterval: 0.01) }
    #expect(pool == nil)
  }

  // MARK: A catalog that is ahead of its packs

  @Test(
    "whose packs have lost what was not synced reports nothing that cannot be read",
    arguments: 0..<12, ["mount", "mounted again"])
  func lostBytes(_ seed: UInt64, mount: String) throws {
    let disk = SimulatedDisk()
    var environment = Engine.Environment()
    environment.files = disk
    environment.bootIdentity = "boot"
    environment.mountIdentity = "mount"
    environment.packByteCountTarget = 100_000
    try Engine.create(
      at: "/store", options: StoreOptions(averageChunkByteCount: 1_024), environment: environment)
    let before = try TemporaryFolder()
    let process = disk.process()
    environment.files = process
    environment.catalogFolder = before.path.appending("catalog")
    let configuration = StoreConfiguration(threadCount: 1)
    let writer = try Engine(path: "/store", configuration: configuration, environment: environment)
    var random = SplitMix64(seed: seed)
    _ = try writer.put("first", random.bytes(2_000), PutOptions())
    for index in 0..<40 {
      _ = try writer.put("\(index)", random.bytes(Int(random.next() % 9_000)), .relaxed)
    }
    // The disk is gone, and comes back with what had reached it; what the system knew of the catalog is still there.
    let after = disk.powerCut(seed: seed)
    process.kill()
    let kept = try TemporaryFolder()
    try Self.copyCatalog(before.path.appending("catalog"), kept.path.appending("catalog"))
    environment.files = after
    environment.mountIdentity = mount
    environment.catalogFolder = kept.path.appending("catalog")
    let reopened = try Engine(path: "/store", configuration: configuration, environment: environment)
    let keys = try reopened.keys("", after: nil, limit: .max)
    #expect(keys.contains { $0.key == "first" })
    for entry in keys {
      let data = try reopened.data(entry.key, nil)
      #expect(data.map { BlobDigest.of($0) } == entry.current.digest, "\(entry.key)")
    }
    // A disk that is mounted again may have lost what was not synced. On one that stayed mounted nothing is lost so: packs
    // that are shorter than what was published count as cut.
    #expect(try reopened.verify().damaged.isEmpty || mount == "mount")
    try reopened.close()
    withExtendedLifetime(writer) {}
  }

  @Test("through another mount does not trust a catalog that no process has open, unless it is clean")
  func otherMount() throws {
    let place = try StorePlace()
    func engine(_ mount: String) throws -> Engine {
      var environment = Engine.Environment()
      environment.bootIdentity = "boot"
      environment.mountIdentity = mount
      return try place.engine(environment)
    }
    let first = try engine("one")
    _ = try first.put("a", [1], PutOptions())
    let generation = first.catalog.generation
    // The same file system, as another container sees it.
    let second = try engine("two")
    #expect(second.catalog.generation == generation)
    _ = try second.put("b", [2], PutOptions())
    #expect(try first.data("b", nil) == Data([2]))
    let killed = try String(contentsOf: place.catalogFolder.appending(path: "state"), encoding: .utf8)
    try first.close()
    #expect(try !Self.state(place).hasSuffix(" clean\n"))
    try second.close()
    #expect(try Self.state(place).hasSuffix(" clean\n"))
    let clean = try engine("three")
    #expect(clean.catalog.generation == generation)
    try clean.close()
    // Both were killed.
    try Data(killed.utf8).write(to: place.catalogFolder.appending(path: "state"))
    let known = try engine("two")
    #expect(known.catalog.generation == generation)
    try known.close()
    try Data(killed.utf8).write(to: place.catalogFolder.appending(path: "state"))
    let remounted = try engine("four")
    #expect(remounted.catalog.generation != generation)
    #expect(try remounted.data("b", nil) == Data([2]))
    try remounted.close()
  }

  @Test("creates a store that is not there, however many try at once, and leaves what else is there alone")
  func orCreates() async throws {
    let folder = try TemporaryFolder()
    for round in 0..<10 {
      let path = folder.path.appending("\(round)").appending("store").string
      try await withThrowingTaskGroup(of: Void.self) { group in
        for task in 0..<6 {
          group.addTask {
            let options = StoreOptions(averageChunkByteCount: task.isMultiple(of: 2) ? 64 << 10 : 256 << 10)
            let store = try await BlobStore.openOrCreate(at: path, options: options)
            try await store.set("\(task)", to: Data("\(task)".utf8))
            try await store.close()
          }
        }
        try await group.waitForAll()
      }
      let store = try BlockingBlobStore.openOrCreate(at: path)
      let keys = try store.keys(limit: 9).map(\.key)
      #expect(keys == (0..<6).map { "\($0)" })
      try store.close()
    }
    let other = folder.path.appending("other").string
    try FileManager.default.createDirectory(atPath: other, withIntermediateDirectories: false)
    try Data("text".utf8).write(to: URL(filePath: other + "/file"))
    let error = await #expect(throws: BlobStorageError.self) {
      _ = try await BlobStore.openOrCreate(at: other)
    }
    #expect(error?.code == .notAStore)
    #expect(try FileManager.default.contentsOfDirectory(atPath: other) == ["file"])
  }

  @Test("takes paths as text, as FilePath and as URL, and no URL of anything else")
  func paths() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path.appending("with space and %41")
    let url = URL(filePath: path.string)
    try await BlobStore.create(at: url).close()
    #expect(BlobStore.exists(at: path) && BlobStore.exists(at: path.string) && BlobStore.exists(at: url))
    let store = try await BlobStore.open(at: path)
    #expect(store.information.path == path.string)
    let file = url.deletingLastPathComponent().appending(path: "a file")
    try Data("text".utf8).write(to: file)
    try await store.put(try .file(at: file), forKey: "k")
    #expect(try await store.data(forKey: "k") == Data("text".utf8))
    #expect(try await store.importFiles([file]).newFileCount == 1)
    try await store.close()
    try BlockingBlobStore.open(at: url).close()
    let elsewhere = try #require(URL(string: "https://example.com" + path.string.replacing(" ", with: "%20")))
    #expect(!BlobStore.exists(at: elsewhere))
    let error = await #expect(throws: BlobStorageError.self) { _ = try await BlobStore.open(at: elsewhere) }
    #expect(error?.code == .invalidArgument)
  }

  @Test("tells mounts apart")
  func mounts() throws {
    let files = SystemFiles()
    #expect(!files.mountIdentity(of: "/").isEmpty)
    #expect(files.mountIdentity(of: "/") == files.mountIdentity(of: "/"))
    #expect(files.mountIdentity(of: "/proc") != files.mountIdentity(of: "/"))
  }

  private static func generations(_ place: StorePlace) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: place.catalogFolder.path).filter { $0.hasPrefix("g") }
  }

  private static func state(_ place: StorePlace) throws -> String {
    try String(contentsOf: place.catalogFolder.appending(path: "state"), encoding: .utf8)
  }

  /// All but LMDB's table of readers, which names living threads.
  private static func copyCatalog(_ from: FilePath, _ to: FilePath) throws {
    try FileManager.default.copyItem(atPath: from.string, toPath: to.string)
    for name in try SystemFiles().list(to) where name.hasPrefix("g") {
      try SystemFiles().remove(to.appending(name).appending("lock.mdb"))
    }
    try CopiedCatalog.adopt(to.string)
  }
}

/// What a thread has come to.
private final class Outcome: @unchecked Sendable {
  // Unchecked: written before the semaphore is signalled, read after.
  private var result: Result<Data?, BlobStorageError>?

  func set(_ body: () throws(BlobStorageError) -> Data?) {
    do throws(BlobStorageError) { result = .success(try body()) } catch { result = .failure(error) }
  }

  func get() throws -> Data? { try result?.get() }
}

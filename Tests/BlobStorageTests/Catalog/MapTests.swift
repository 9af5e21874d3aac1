import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A catalog's map")
struct MapTests {
  /// A catalog with a large map, and a second name for it. LMDB takes it for another database under that name: a second
  /// process in this one.
  private static func linked() throws -> (large: CatalogPlace, other: TemporaryFolder) {
    // With LMDB's own locks, which are one and the same for all of a process.
    let large = try CatalogPlace(mapByteCount: 1 << 26, files: OneNameFiles(HookedFiles { _, _ in }))
    try large.catalog.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
    let other = try TemporaryFolder()
    let source = large.temporary.path.appending("catalog")
    let target = other.path.appending("catalog")
    let files = SystemFiles()
    try files.createDirectory(target)
    let generation = try #require(large.catalog.generation)
    try files.createDirectory(target.appending(generation))
    let lock = try #require(try CopiedCatalog.lock(in: source))
    let locks = try #require(lock.removingLastComponent().lastComponent?.string)
    try files.createDirectory(target.appending(locks))
    for name in [
      "\(locks)/lock", "\(locks)/users", "state", "\(generation)/data.mdb", "\(generation)/lock.mdb",
    ] {
      try FileManager.default.linkItem(
        atPath: source.pushing(FilePath(name)).string, toPath: target.pushing(FilePath(name)).string)
    }
    return (large, other)
  }

  private static func addPacks(
    _ numbers: ClosedRange<UInt32>, in transaction: WriteTransaction
  ) throws(BlobStorageError) {
    for number in numbers {
      _ = try transaction.addPack(PackRow(name: PackName(writer: 1, sequence: number), created: 1))
    }
  }

  @Test("that another process grows while the catalog is opened is taken over")
  func grownAtOpening() throws {
    let (large, other) = try Self.linked()
    // A process that writes: the opening does not wait for it.
    let lock = try SystemFiles().open(
      try #require(try CopiedCatalog.lock(in: large.temporary.path.appending("catalog"))), .readWrite)
    defer { lock.close() }
    #expect(try lock.lock(.shared, wait: false))
    let catalog = large.catalog
    let opened = Mutex<UInt32>(0)
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "open", path.lastComponent?.string == "data.mdb" else { return }
      // Before LMDB opens the file, and between that and its first transaction.
      let first = opened.withLock { opened in
        opened += 1
        return opened * 5_000
      }
      try catalog.write { (transaction) throws(BlobStorageError) in
        try Self.addPacks(first...first + 4_999, in: transaction)
      }
    }
    let small = try CatalogPlace.open(
      in: other, mapByteCount: 1 << 16, files: try OneNameFiles(files, of: large, in: other))
    #expect(opened.withLock { $0 } >= 2)
    #expect(try small.read { (transaction) throws(BlobStorageError) in try transaction.epoch() } == 1)
    small.close()
    withExtendedLifetime(large) {}
  }

  #if os(Linux)
    @Test("that another process has grown does not grow again for that")
    func takenOver() throws {
      let (large, other) = try Self.linked()
      let small = try CatalogPlace.open(
        in: other, mapByteCount: 1 << 18,
        files: try OneNameFiles(HookedFiles { _, _ in }, of: large, in: other))
      try large.catalog.write { (transaction) throws(BlobStorageError) in
        try Self.addPacks(1...20_000, in: transaction)
      }
      try small.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
      let folder = try #require(other.path.lastComponent?.string)
      // `String(contentsOfFile:)` returns what the first read of such a file does.
      let file = try #require(FileHandle(forReadingAtPath: "/proc/self/maps"))
      let maps = String(decoding: try file.readToEnd() ?? Data(), as: UTF8.self).split(separator: "\n")
      let byteCounts = maps.filter { $0.contains(folder) && $0.hasSuffix("data.mdb") }.map { line in
        let ends = line.prefix { $0 != " " }.split(separator: "-").map { Int($0, radix: 16) ?? 0 }
        return ends[1] - ends[0]
      }
      #expect(byteCounts.reduce(0, +) == 1 << 26)
      small.close()
      withExtendedLifetime(large) {}
    }
  #endif

  @Test("that another process has grown is taken over, also while a transaction waits for that process")
  func grown() throws {
    let (large, other) = try Self.linked()
    let small = try CatalogPlace.open(
      in: other, mapByteCount: 1 << 18, files: try OneNameFiles(HookedFiles { _, _ in }, of: large, in: other)
    )
    let (begun, done) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let thread = Mutex<String?>(nil)
    let epochs = Epochs()
    try large.catalog.write { (transaction) throws(BlobStorageError) in
      Thread.detachNewThread {
        thread.withLock { $0 = Self.currentThread }
        begun.signal()
        // Begins to wait for the transaction under way, which grows the database beyond the map here.
        epochs.add { () throws(BlobStorageError) in
          try small.write { (transaction) throws(BlobStorageError) in
            try transaction.bumpEpoch()
            return try transaction.epoch()
          }
        }
        done.signal()
      }
      begun.wait()
      if let thread = thread.withLock({ $0 }) { Self.waitUntilAsleep(thread) }
      try Self.addPacks(1...20_000, in: transaction)
    }
    #expect(done.wait(timeout: .now() + 60) == .success)
    #expect(try epochs.values() == [2])
    #expect(try small.read { (transaction) throws(BlobStorageError) in try transaction.epoch() } == 2)
    #expect(try large.catalog.read { (transaction) throws(BlobStorageError) in try transaction.epoch() } == 2)
    small.close()
  }

  @Test("grows for a commit that does not fit into it, again for the next, and when the catalog is rebuilt")
  func largeCommit() throws {
    let temporary = try TemporaryFolder()
    let path = temporary.path.appending("store").string
    try Engine.create(at: path, options: StoreOptions())
    var environment = Engine.Environment()
    environment.mapByteCount = 1 << 20
    let engine = try Engine(path: path, configuration: StoreConfiguration(), environment: environment)
    for count in [10_000, 20_000] {
      let items = (0..<count).map { number in
        PutItem(
          key: "\(BlobDigest.of(Array("\(number)".utf8)))".padding(
            toLength: 400, withPad: "-", startingAt: 0), data: Data([UInt8(number & 7)]))
      }
      _ = try engine.put(items, PutOptions(durability: .relaxed))
      try engine.catalog.settle()
      #expect(try engine.keys("", after: nil, limit: 30_000).count == count)
    }
    // One transaction applies all of a pack this long.
    try engine.catalog.rebuild(because: nil)
    #expect(try engine.keys("", after: nil, limit: 30_000).count == 20_000)
    #expect(try engine.verify().damaged == [])
    try engine.close()
  }

  /// The folder in which the system tells of the thread that asks; nil where it does not.
  private static var currentThread: String? {
    let link = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")
    return link.map { "/proc/" + $0 }
  }

  /// Returns when the thread waits for something, or has ended.
  private static func waitUntilAsleep(_ thread: String) {
    // The state follows the name, which is in parentheses and may have any characters.
    while let line = try? String(contentsOfFile: thread + "/stat", encoding: .utf8),
      let end = line.lastIndex(of: ")"), !line[end...].hasPrefix(") S")
    { sched_yield() }
  }
}

private final class Epochs: @unchecked Sendable {
  // Unchecked: written before the semaphore is signalled, read after.
  private var results: [Result<UInt64, BlobStorageError>] = []

  func add(_ body: () throws(BlobStorageError) -> UInt64) {
    do throws(BlobStorageError) { results.append(.success(try body())) } catch {
      results.append(.failure(error))
    }
  }

  func values() throws -> [UInt64] { try results.map { try $0.get() } }
}

/// Files that pass for those of one catalog, although hard links share them.
private struct OneNameFiles: ForwardingFiles {
  let system: HookedFiles
  /// A folder that passes for another, and the inode of that one.
  private var folder: (path: FilePath, inode: UInt64)?

  init(_ files: HookedFiles) { system = files }

  init(_ files: HookedFiles, of place: CatalogPlace, in other: TemporaryFolder) throws {
    system = files
    let original = try SystemFiles().status(of: place.temporary.path.appending("catalog"))
    folder = (other.path.appending("catalog"), try #require(original).inode)
  }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    try system.open(path, intent)
  }

  func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? {
    guard var status = try system.status(of: path) else { return nil }
    if let folder, path == folder.path { status.inode = folder.inode }
    status.linkCount = 1
    return status
  }
}

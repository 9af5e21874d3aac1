import BlobStorage
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A catalog's map")
struct MapTests {
  @Test("that another process has grown is taken over, also while a transaction waits for that process")
  func grown() throws {
    let large = try CatalogPlace(mapByteCount: 1 << 26)
    try large.catalog.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
    // Under another name LMDB takes it for another database: a second process in this one.
    let other = try TemporaryFolder()
    let source = large.temporary.path.appending("catalog")
    let target = other.path.appending("catalog")
    let files = SystemFiles()
    try files.createDirectory(target)
    let generation = try #require(large.catalog.generation)
    try files.createDirectory(target.appending(generation))
    for name in ["lock", "users", "state", "\(generation)/data.mdb", "\(generation)/lock.mdb"] {
      try FileManager.default.linkItem(
        atPath: source.pushing(FilePath(name)).string, toPath: target.pushing(FilePath(name)).string)
    }
    let small = try CatalogPlace.open(in: other, mapByteCount: 1 << 18)
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
      for number in 1...20_000 as ClosedRange<UInt32> {
        _ = try transaction.addPack(PackRow(name: PackName(writer: 1, sequence: number), created: 1))
      }
    }
    #expect(done.wait(timeout: .now() + 60) == .success)
    #expect(try epochs.values() == [2])
    #expect(try small.read { (transaction) throws(BlobStorageError) in try transaction.epoch() } == 2)
    #expect(try large.catalog.read { (transaction) throws(BlobStorageError) in try transaction.epoch() } == 2)
    small.close()
  }

  @Test("grows for a commit that does not fit into it, and again for the next")
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

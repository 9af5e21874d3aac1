import BlobStorage
import Dispatch
import Foundation
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
    let done = DispatchSemaphore(value: 0)
    let epochs = Epochs()
    try large.catalog.write { (transaction) throws(BlobStorageError) in
      Thread.detachNewThread {
        // Begins to wait for the transaction under way, which grows the database beyond the map here.
        epochs.add { () throws(BlobStorageError) in
          try small.write { (transaction) throws(BlobStorageError) in
            try transaction.bumpEpoch()
            return try transaction.epoch()
          }
        }
        done.signal()
      }
      Thread.sleep(forTimeInterval: 0.05)
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

import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import BlobStorageTransfer
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("An import into a cache")
struct CacheImportTests {
  /// The most by which the folder exceeds its limit while `body` runs, in hundredths, measured again and again.
  private func most(_ cache: CacheCore, during body: () throws -> Void) throws -> Double {
    let isOver = Mutex(false)
    let most = Mutex(-100.0)
    let watcher = DispatchGroup()
    DispatchQueue.global().async(group: watcher) {
      while !isOver.withLock({ $0 }) {
        // A file that goes at this moment is looked at the next time.
        guard let excess = try? cache.excess() else { continue }
        most.withLock { $0 = max($0, excess) }
      }
    }
    defer { watcher.wait() }
    defer { isOver.withLock { $0 = true } }
    try body()
    return try max(most.withLock { $0 }, cache.excess())
  }

  private func write(_ data: Data, _ name: String, in folder: String) throws {
    try data.write(to: URL(filePath: "\(folder)/\(name)"))
  }

  /// The file systems of disks often have no files of that length.
  @Test(
    "leaves out sparse files that are longer together than a number holds",
    .enabled(if: FileManager.default.isWritableFile(atPath: "/dev/shm"), "there is no file system in memory"))
  func longest() throws {
    let folder = "/dev/shm/blob-storage-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    for name in ["a", "b", "c"] {
      let file = try SystemFiles().open(FilePath("\(folder)/\(name)"), .openOrCreate)
      defer { file.close() }
      try file.truncate(to: 1 << 62)
    }
    let place = try CachePlace()
    let cache = try place.cache()
    let report = try Importer(cache.engine, ImportOptions(), { _ in }, countingDelaySeconds: 0).run([folder])
    #expect(report.skipped.map(\.code) == [.limitExceeded, .limitExceeded, .limitExceeded])
    #expect(report.fileCount == 0)
  }

  @Test(
    "of three times the limit holds it all the while, and leaves what was imported last",
    arguments: ["", "files/"])
  func large(prefix: String) throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: prefix)
    let temporary = try TemporaryFolder()
    let folder = temporary.path.string
    var random = SplitMix64.announced()
    // At least 25.3 MB, whatever is drawn.
    for index in 0..<108 {
      let byteCount = index % 8 == 0 ? Int.random(in: 600_000...1_048_576, using: &random) : 180_000
      try write(random.noise(byteCount), "f\(1_000 + index)", in: folder)
    }
    let engine = try place.engine()
    let progressMost = Mutex(-100.0)
    var found: ImportReport?
    let most = try most(cache) {
      found = try Importer(
        engine, ImportOptions(prefix: prefix),
        { _ in
          guard let excess = try? cache.excess() else { return }
          progressMost.withLock { $0 = max($0, excess) }
        }
      ).run([folder])
    }
    let report = try #require(found)
    #expect(max(most, progressMost.withLock { $0 }) < 5)
    #expect(report.newFileCount == 108)
    #expect(report.skipped == [])
    #expect(report.byteCount > 3 * place.limits.byteLimit)
    let last = try Data(contentsOf: URL(filePath: "\(folder)/f1107"))
    #expect(try cache.data("f1107") == last)
    #expect(try cache.data("f1000") == nil)
    #expect(try cache.excess() > -30)
    #expect(try engine.verify().damaged == [])
    // What is still there is not read again.
    let left = try (0..<108).filter { try cache.contains("f\(1_000 + $0)") }
    #expect(report.evictedFileCount == 108 - left.count)
    #expect(report.evictedFileCount > 50)
    let again = try Importer(engine, ImportOptions(prefix: prefix), nil).run([folder])
    #expect(again.unchangedFileCount <= left.count)
    let leftAgain = try (0..<108).count { try cache.contains("f\(1_000 + $0)") }
    #expect(again.fileCount == 108 && again.evictedFileCount == 108 - leftAgain)
    #expect(try cache.excess() < 5)
  }

  @Test("does not read a long file again that is as its key has it")
  func unchanged() throws {
    let place = try CachePlace(CacheLimits(byteLimit: 64 << 20))
    _ = try place.cache(prefix: "")
    let temporary = try TemporaryFolder()
    let folder = temporary.path.string
    var random = SplitMix64.announced()
    try write(random.noise(1_500_000), "long", in: folder)
    let engine = try place.engine()
    for isAgain in [false, true] {
      let report = try Importer(engine, ImportOptions(), nil).run([folder])
      #expect(report.skipped == [] && report.unchangedFileCount == (isAgain ? 1 : 0), "\(report)")
      #expect(report.newFileCount == (isAgain ? 0 : 1))
    }
    try engine.close()
  }

  @Test("leaves as many long blobs of a copy as have room, whose lists lie in one pack")
  func copyOfLongBlobs() throws {
    let sourcePlace = try StorePlace()
    let source = try sourcePlace.engine()
    var random = SplitMix64.announced()
    for index in 0..<15 { _ = try source.put("f\(10 + index)", .data(random.noise(1_000_000)), .relaxed) }
    let place = try CachePlace(CacheLimits(byteLimit: 10_000_000))
    // A copy refuses versions of the future.
    place.clock.move(seconds: Int64(Date().timeIntervalSince1970) - 1_700_000_000)
    let cache = try place.cache()
    #expect(try Copier(from: source, to: cache.engine, CopyOptions(), nil).run().newVersionCount == 15)
    _ = try cache.trim()
    #expect(try cache.excess() <= 0)
    #expect(try (0..<15).count { try cache.contains("f\(10 + $0)") } >= 7)
  }

  @Test("leaves out what is too long for a value, and takes away what its key had")
  func tooLong() throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: "c/")
    let temporary = try TemporaryFolder()
    let folder = temporary.path.string
    var random = SplitMix64(seed: 21)
    #expect(try cache.put("long", [1]))
    try write(random.noise(place.limits.valueByteLimit + 1), "long", in: folder)
    // Like a photograph, which is else put from memory up to a greater length.
    try write(Data([0xFF, 0xD8, 0xFF]) + random.noise(2_000_000), "photo", in: folder)
    try write(random.noise(place.limits.valueByteLimit), "fits", in: folder)
    let report = try Importer(cache.engine, ImportOptions(prefix: "c/"), nil).run([folder])
    #expect(report.newFileCount == 1)
    #expect(report.skipped.map(\.isFailure) == [true, true])
    #expect(try cache.data("long") == nil)
    #expect(try cache.data("fits")?.count == place.limits.valueByteLimit)
    #expect(try cache.excess() <= 0)
    // Other keys of the store have no such limit.
    let other = try Importer(cache.engine, ImportOptions(prefix: "other/"), nil).run([folder])
    #expect(other.newFileCount == 3)
    #expect(
      try cache.engine.version("other/long", nil)?.byteCount == Int64(place.limits.valueByteLimit) + 1)
    #expect(try cache.excess() <= 5)
    #expect(other.evictedFileCount == 0)
  }

  @Test("keeps history when it is asked to, and counts what it keeps as live")
  func archiving() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let temporary = try TemporaryFolder()
    var random = SplitMix64(seed: 22)
    var contents: [Data] = []
    for _ in 0..<3 {
      contents.append(random.noise(50_000))
      try write(contents[contents.count - 1], "f", in: temporary.path.string)
      _ = try Importer(
        cache.engine, ImportOptions(replacement: .archiveCurrent), nil
      ).run([temporary.path.string])
    }
    let versions = try cache.engine.versions("f")
    #expect(try versions.map { try cache.engine.data("f", $0.id) } == contents.reversed())
    let noticed = try cache.statistics().garbageByteCount
    try cache.engine.writer.rollOver()
    try cache.countGarbage()
    #expect(try cache.statistics().garbageByteCount == noticed)
  }

  @Test("that is only planned evicts nothing and takes nothing away")
  func planned() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let engine = cache.engine
    let temporary = try TemporaryFolder()
    var random = SplitMix64(seed: 23)
    #expect(try cache.put("long", [1]))
    for index in 0..<40 { _ = try engine.put("past-\(index)", .data(random.noise(300_000)), .relaxed) }
    #expect(try cache.excess() > 5)
    try write(random.noise(place.limits.valueByteLimit + 1), "long", in: temporary.path.string)
    let before = try contents(of: engine)
    _ = try Importer(engine, ImportOptions(isDryRun: true), nil).run([temporary.path.string])
    #expect(try contents(of: engine) == before)
    #expect(try cache.data("long") == Data([1]))
    #expect(try cache.statistics().counts.evictedCount == 0)
  }
}

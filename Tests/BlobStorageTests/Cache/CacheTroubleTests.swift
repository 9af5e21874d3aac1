import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A cache in trouble")
struct CacheTroubleTests {
  @Test("that is killed anywhere goes on, with values that were put and below its limit")
  func killed() throws {
    let disk = SimulatedDisk()
    let place = try CachePlace(disk: disk)
    var random = SplitMix64.announced()
    var put: [String: Set<Data>] = [:]
    var cache = try place.cache()
    // A simulated disk is slow: `tools/soak` kills it more often.
    let isSoak = ProcessInfo.processInfo.environment["BLOB_STORAGE_SOAK_SECONDS"] != nil
    for round in 0..<(isSoak ? 25 : 3) {
      // Full from the first rounds on: then steps are killed too.
      let count = round == 0 ? 50 : 8
      if round > 0 {
        disk.stop(beforeMutation: disk.mutationCount + Int.random(in: 1...250, using: &random))
      }
      var isKilled = false
      for _ in 0..<count {
        let key = "key-\(Int.random(in: 0..<80, using: &random))"
        let bytes = random.noise(Int.random(in: 1...300_000, using: &random))
        put[key, default: []].insert(bytes)
        do { _ = try cache.put(key, bytes) } catch let error as BlobStorageError {
          #expect(error.code == .simulatedStop || error.code == .poisoned, "\(error)")
          isKilled = true
          break
        }
      }
      disk.heal()
      guard isKilled || round == 0 else { continue }
      cache = try place.cache()
      for (key, values) in put {
        if let data = try cache.data(key) { #expect(values.contains(data)) }
      }
      for index in 0..<3 {
        let bytes = random.noise(100_000)
        #expect(try cache.put("after-\(index)", bytes), "round \(round): \(place.log.last)")
        put["after-\(index)", default: []].insert(bytes)
        #expect(try cache.data("after-\(index)") == bytes)
        #expect(try cache.excess() < 5)
      }
    }
    #expect(try cache.engine.verify().damaged == [])
  }

  @Test("whose medium is full stores what it can, and reads what it has")
  func full() throws {
    let disk = SimulatedDisk()
    let place = try CachePlace(disk: disk)
    let cache = try place.cache()
    var random = SplitMix64(seed: 4)
    for index in 0..<20 { #expect(try cache.put("k\(index)", random.noise(100_000))) }
    let taken = Int(try cache.engine.folder.allocatedByteCount())
    disk.limit(byteCount: taken + 100_000)
    var storedCount = 0
    for index in 0..<12 {
      let bytes = random.noise(90_000)
      if try cache.put("n\(index)", bytes) {
        storedCount += 1
        #expect(try cache.data("n\(index)") == bytes)
      } else {
        #expect(try cache.data("n\(index)") == nil)
      }
    }
    #expect(storedCount > 8)
    disk.limit(byteCount: nil)
    #expect(try cache.put("again", [1]))
    #expect(try cache.engine.verify().damaged == [])
  }

  @Test("whose medium is too full to drop a damaged value gives none all the same")
  func fullAndDamaged() throws {
    let disk = SimulatedDisk()
    let place = try CachePlace(disk: disk)
    let cache = try place.cache()
    var random = SplitMix64(seed: 18)
    let whole = random.noise(5_000)
    #expect(try cache.put("damaged", random.noise(20_000)))
    #expect(try cache.put("whole", whole))
    try cache.engine.writer.rollOver()
    let name = try #require(try cache.engine.backend.packNames().live.first)
    let file = try disk.process().open(cache.engine.folder.packs.appending(name.fileName), .readWrite)
    try file.write([UInt8](repeating: 0xAA, count: 5_000), at: 10_000)
    file.close()
    disk.limit(byteCount: 1_000)
    #expect(try cache.data("damaged") == nil)
    #expect(try cache.data("whole") == whole)
    #expect(try cache.engine.version("damaged", nil) != nil, "there was no room to say that it is gone")
    disk.limit(byteCount: nil)
    #expect(try cache.put("damaged", whole))
    #expect(try cache.data("damaged") == whole)
    let counts = try cache.statistics().counts
    #expect(counts.missCount == 1 && counts.hitCount == 2)
    // The error of a put says what is full.
    try cache.engine.writer.rollOver()
    disk.limit(byteCount: 1_000)
    #expect(failure { _ = try cache.put("n", whole, PutOptions()) }?.code == .noSpace)
  }

  @Test("whose medium is full drops what is too old, and what it is told to")
  func fullAndExpired() throws {
    let disk = SimulatedDisk()
    let place = try CachePlace(disk: disk)
    let cache = try place.cache()
    var random = SplitMix64(seed: 19)
    for index in 0..<10 {
      let item = CacheItem(key: "k\(index)", data: random.noise(50_000), lifetime: .seconds(10))
      #expect(try cache.put([item]) == [true])
    }
    for key in ["a", "b"] { #expect(try cache.put(key, [1])) }
    try cache.engine.writer.rollOver()
    disk.limit(byteCount: Int(try cache.engine.folder.allocatedByteCount()) - 50_000)
    place.clock.move(seconds: 20)
    #expect(try cache.trim().expiredKeyCount == 10)
    #expect(try cache.remove(["a"]) == 1)
    #expect(try cache.data("b") == Data([1]))
  }

  @Test("that has lost its catalog has its values, in the order of their puts")
  func lostCatalog() throws {
    let place = try CachePlace()
    var random = SplitMix64(seed: 9)
    do {
      let cache = try place.cache()
      for index in 0..<120 {
        place.clock.move(seconds: 1)
        #expect(try cache.put("k\(index)", random.noise(40_000), priority: index < 10 ? .high : .normal))
      }
      _ = try cache.data("k20")
      try cache.engine.close()
    }
    try place.removeCatalog()
    let cache = try place.cache()
    #expect(try cache.statistics().keyCount == 120)
    for index in 0..<70 { #expect(try cache.put("n\(index)", random.noise(60_000))) }
    #expect(try cache.excess() < 5)
    // Priorities are in the packs; the use of k20 was not.
    #expect(try cache.contains("k0"))
    #expect(try !cache.contains("k20"))
    #expect(try cache.contains("k119"))
  }

  @Test("whose clock jumps is at worst too quick to forget")
  func clocks() throws {
    let place = try CachePlace()
    let cache = try place.cache(memoryByteLimit: 1 << 20)
    #expect(try cache.put("k", [1], lifetime: .seconds(600)))
    place.clock.move(seconds: 599)
    #expect(try cache.data("k") == Data([1]))
    place.clock.move(seconds: 1)
    #expect(try cache.data("k") == nil)
    place.clock.move(seconds: -620)
    // A little before its put: clocks are set by a few seconds.
    #expect(try cache.data("k") == Data([1]))
    place.clock.move(seconds: -3_600)
    #expect(try cache.data("k") == nil)
    #expect(try cache.put("k", [2], lifetime: .seconds(600)))
    #expect(try cache.data("k") == Data([2]))
    #expect(try cache.put("forever", [3]))
    place.clock.move(seconds: 100_000_000)
    #expect(try cache.data("forever") == Data([3]))
    #expect(try cache.trim().expiredKeyCount == 1)
    #expect(try cache.statistics().keyCount == 1)
  }

  @Test("that drops what is too old leaves what another process puts meanwhile")
  func putWhileTrimmed() throws {
    let place = try CachePlace()
    let other = try place.cache()
    let isArmed = Atomic<Bool>(false)
    // The pack of the drops is begun after the keys were found.
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "rename", path.string.contains("/packs/"),
        isArmed.exchange(false, ordering: .acquiringAndReleasing)
      else { return }
      do { #expect(try other.put("k", [2])) } catch { Issue.record(error) }
    }
    let cache = try place.cache(place.engine(files: files))
    #expect(try cache.put("k", [1], lifetime: .seconds(10)))
    try cache.engine.writer.rollOver()
    place.clock.move(seconds: 20)
    isArmed.store(true, ordering: .releasing)
    #expect(try cache.trim().expiredKeyCount == 0)
    let isStillArmed = isArmed.load(ordering: .acquiring)
    #expect(!isStillArmed, "no pack was begun")
    #expect(try cache.data("k") == Data([2]))
  }

  @Test("that another process ends while it is trimmed keeps its keys, too old or too many")
  func endedWhileTrimmed() throws {
    let place = try CachePlace(CacheLimits(byteLimit: CacheLimits.smallestByteLimit, keyLimit: 1))
    let other = try place.cache()
    let isArmed = Atomic<Bool>(false)
    // The pack of the drops is begun after the keys were found.
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "rename", path.string.contains("/packs/"),
        isArmed.exchange(false, ordering: .acquiringAndReleasing)
      else { return }
      do { #expect(try other.engine.removeCache()) } catch { Issue.record(error) }
    }
    let cache = try place.cache(place.engine(files: files))
    #expect(try cache.put("old", [1], lifetime: .seconds(10)))
    for key in ["a", "b"] { _ = try cache.engine.put(key, .data(Data([2])), .relaxed) }
    try cache.engine.writer.rollOver()
    place.clock.move(seconds: 20)
    isArmed.store(true, ordering: .releasing)
    #expect(failure { _ = try cache.trim() }?.code == .invalidArgument)
    let isStillArmed = isArmed.load(ordering: .acquiring)
    #expect(!isStillArmed, "no pack was begun")
    #expect(try other.engine.keys("", after: nil, limit: 9).map(\.key) == ["a", "b", "old"])
  }

  @Test("with a lifetime in its limits forgets what was put without one, by whomever")
  func lifetime() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    #expect(try cache.put("k", [1]))
    #expect(try cache.put("longer", [2], lifetime: .seconds(600)))
    _ = try cache.engine.put("past", .data(Data([3])), .relaxed)
    place.clock.move(seconds: 100)
    var limits = place.limits
    limits.lifetime = .seconds(200)
    try cache.setLimits(limits)
    #expect(try cache.data("k") != nil)
    place.clock.move(seconds: 100)
    #expect(try cache.data("k") == nil)
    #expect(try cache.data("past") == nil)
    #expect(try cache.data("longer") != nil)
    #expect(try cache.trim().expiredKeyCount == 2)
    #expect(try cache.engine.version("past", nil) == nil)
  }

  @Test("with a pack that cannot be taken away repairs itself, and refuses nothing")
  func repairs() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 14)
    for index in 0..<100 {
      // A repair loses the order of use: that of puts stands in for it.
      place.clock.move(seconds: 1)
      #expect(try cache.put("k\(index)", random.noise(60_000)))
    }
    try cache.engine.writer.rollOver()
    // The oldest, from a record in its middle to its end: what is whole before that is found without a footer.
    let names = try cache.engine.backend.packNames().live
    let oldest = try #require(names.min { $0.sequence < $1.sequence })
    let path = cache.engine.folder.packs.appending(oldest.fileName)
    let file = try SystemFiles().open(path, .readWrite)
    let byteCount = Int(try file.status().byteCount)
    try file.write([UInt8](repeating: 0xAA, count: byteCount - 70_000), at: 70_000)
    file.close()
    for index in 0..<80 {
      place.clock.move(seconds: 1)
      #expect(try cache.put("n\(index)", random.noise(60_000)), "\(index): \(place.log.last)")
      #expect(try cache.excess() < 5)
    }
    #expect(try cache.engine.verify().damaged == [])
    #expect(try cache.contains("k99"))
  }

  @Test("goes on after a collection was killed that had condemned all packs")
  func condemned() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 15)
    for index in 0..<200 { #expect(try cache.put("k\(index)", random.noise(60_000))) }
    try cache.engine.writer.rollOver()
    try cache.engine.catalog.write { (transaction) throws(BlobStorageError) in
      for (number, _) in try transaction.packRows() {
        try transaction.updatePack(number) { $0.state = .condemned }
      }
    }
    let next = try place.cache()
    for index in 0..<20 {
      #expect(try next.put("n\(index)", random.noise(60_000)), "\(index): \(place.log.last)")
      #expect(try next.excess() < 5)
    }
  }

  @Test("makes room beside packs of killed writers: one that is empty, one with keys that were not noted")
  func killedWriters() throws {
    let place = try CachePlace()
    var random = SplitMix64(seed: 16)
    do {
      let cache = try place.cache()
      for index in 0..<10 { #expect(try cache.put("k\(index)", random.noise(60_000))) }
      // As writers leave them that have written a commit and are killed before the catalog has it.
      for index in 0..<120 {
        _ = try cache.engine.put("past-\(index)", .data(random.noise(60_000)), .relaxed)
      }
      let header = cache.engine.header
      let name = PackName(writer: 7, sequence: 1)
      let file = try cache.engine.backend.createPack(
        name,
        header: PackHeader(
          name: name, storeID: header.storeID, digestAlgorithm: header.digestAlgorithm,
          created: place.clock.now
        ).encoded())
      try cache.engine.close()
      file.close()
    }
    let cache = try place.cache()
    for index in 0..<200 {
      #expect(try cache.put("n\(index)", random.noise(60_000)), "\(index): \(place.log.last)")
      #expect(try cache.excess() < 5)
    }
    #expect(try !cache.contains("past-0"))
    #expect(
      try cache.engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.packNumber(PackName(writer: 7, sequence: 1))
      } == nil)
  }

  @Test("with a damaged pack drops what cannot be read, and holds its limit")
  func damaged() throws {
    let place = try CachePlace()
    let files = SystemFiles()
    let cache = try place.cache()
    var random = SplitMix64(seed: 12)
    for index in 0..<100 { #expect(try cache.put("k\(index)", random.noise(20_000))) }
    try cache.engine.writer.rollOver()
    let name = try #require(try cache.engine.backend.packNames().live.first)
    let path = cache.engine.folder.packs.appending(name.fileName)
    let file = try files.open(path, .readWrite)
    let harm = UnsafeMutableRawBufferPointer.allocate(byteCount: 3_000, alignment: 8)
    defer { harm.deallocate() }
    harm.initializeMemory(as: UInt8.self, repeating: 0xAA)
    try file.write(UnsafeRawBufferPointer(harm), at: 5_000)
    file.close()
    let found = try (0..<100).filter { try cache.data("k\($0)") != nil }.count
    #expect(found < 100 && found > 80)
    for index in 0..<170 { #expect(try cache.put("n\(index)", random.noise(60_000))) }
    #expect(try cache.excess() < 5)
  }
}

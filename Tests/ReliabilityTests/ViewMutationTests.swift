import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Two processes that see what each other does at once, and what they miss when a step is left out.
@Suite("A step that is left out between processes is noticed", .serialized)
struct ViewMutationTests {
  /// Each changes something, one seals, the other rebuilds the catalog and collects; both look after each change.
  private static func exchange(without steps: Set<TableStep>, _ weaknesses: Weaknesses = []) throws {
    let lab = try Lab()
    lab.missingSteps = steps
    lab.weaknesses = weaknesses
    lab.commitPatienceSeconds = 0.05
    let (one, two) = (try lab.open(), try lab.open())
    func put(_ engine: Engine, _ key: String, _ seed: UInt64) throws {
      try lab.put(engine, [(key, noise(seed, 3_000))], durability: .relaxed)
    }
    func look(_ when: String) throws {
      for engine in [one, two] {
        let found = try lab.observed(engine)
        if !lab.model.matches(found) {
          throw Broken("V1 \(when): found \(found), expected \(lab.model.state)")
        }
      }
    }
    try look("at first")
    for number in 0..<4 {
      try put(number < 2 ? one : two, "k\(number % 2)", UInt64(number))
      try look("after put \(number)")
    }
    try two.catalog.rebuild(because: nil)
    try put(two, "k2", 10)
    try two.writer.rollOver()
    try look("in a catalog made anew")
    try put(one, "k3", 11)
    try one.writer.rollOver()
    try look("when both have sealed their packs")
    try put(one, "k0", 12)
    let report = try two.collectGarbage(
      GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0)))
    if !report.obstacles.isEmpty || report.freedByteCount == 0 { throw Broken("4: \(report)") }
    try look("after a collection")
    try one.close()
    try two.close()
    lab.missingSteps = []
    lab.weaknesses = []
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("V1: each sees what the other has done")
  func whole() throws { try Self.exchange(without: []) }

  @Test(
    "V1, V2: publishing, saying so, ending a commit",
    arguments: [TableStep.publish, .announce, .leave, .replace])
  func missing(_ step: TableStep) {
    let error = #expect(throws: (any Error).self) { try Self.exchange(without: [step]) }
    // A commit that never ends keeps a collection waiting. Everything else is seen as a broken invariant.
    #expect(
      error is Broken || step == .leave && (error as? BlobStorageError)?.code == .busy, "\(step): \(error)")
    Soak.count("mutations caught")
  }

  @Test("V5: settling before anything else is written to the catalog")
  func unsettled() {
    let error = #expect(throws: (any Error).self) { try Self.exchange(without: [], .skipsSettling) }
    #expect(error is Broken, "\(error)")
    Soak.count("mutations caught")
  }

  @Test("V1: looking at what others have published")
  func unextended() {
    let error = #expect(throws: (any Error).self) { try Self.exchange(without: [], .skipsExtending) }
    #expect(error is Broken, "\(error)")
    Soak.count("mutations caught")
  }

  @Test("V4: settling tails that are long")
  func unboundedTails() throws {
    for weaknesses in [[], Weaknesses.growsTails] {
      let lab = try Lab()
      lab.packByteCountTarget = 8 << 20
      lab.weaknesses = weaknesses
      let (one, two) = (try lab.open(), try lab.open())
      var longest = 0
      for round in 0..<11 {
        _ = try one.put((0..<400).map { PutItem(key: "k\(round)-\($0)", data: Data()) }, .relaxed)
        for engine in [one, two] {
          _ = try engine.version("k0-0", nil)
          longest = max(longest, engine.catalog.tails.size.recordCount)
        }
      }
      #expect((longest < Tails.recordCountMax) == weaknesses.isEmpty, "\(longest)")
      try one.close()
      try two.close()
    }
    Soak.count("mutations caught")
  }

  /// The file system refuses to release the reserve.
  @Test("V7: releasing the reserve on a full disk")
  func keptReserve() throws {
    for isKept in [false, true] {
      let lab = try Lab()
      try CrashTests.garbageInWholePacks(lab)
      let engine = try lab.open()
      try ReserveTests.fill(lab)
      if isKept {
        lab.disk.beforeMutations { (call) throws(BlobStorageError) in
          guard call.kind == .remove, call.detail.contains("/reserve") else { return }
          throw .systemCall("remove", path: "reserve", errno: Errno.noSpace.rawValue)
        }
      }
      let data = try engine.data("k2", nil)
      #expect(data == noise(2, 3_000))
      let changes: [() throws -> Void] = [
        {
          let report = try engine.collectGarbage(
            GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0)))
          if report.freedByteCount == 0 { throw Broken("V7: \(report)") }
        },
        { try lab.delete(engine, ["k2"], durability: .relaxed) },
      ]
      for change in changes {
        if isKept {
          #expect(throws: (any Error).self) { try change() }
        } else {
          try change()
          // The next needs it too.
          try? engine.folder.keepReserve()
          try ReserveTests.fill(lab)
        }
      }
      lab.disk.heal()
      try engine.close()
      try lab.checkInvariants(afterPowerCut: false)
    }
    Soak.count("mutations caught")
  }

  /// Fails if others keep the old catalog: they would count on what the new one has condemned.
  @Test("V1: a catalog whose maker died before it could tell of it is used by all")
  func untoldCatalog() throws {
    let lab = try Lab()
    let one = try lab.open()
    try lab.put(one, [("a", noise(1, 900))], durability: .relaxed)
    let process = lab.disk.process()
    let maker = try lab.open(process)
    let storeCount = Mutex(0)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.process == process.number, call.kind == .store, call.detail.contains("catalogCount") else {
        return
      }
      let count = storeCount.withLock { count in
        count += 1
        return count
      }
      // Once before the file is replaced, once after.
      if count == 2 { throw .simulatedStop }
    }
    #expect(throws: BlobStorageError.self) { try maker.catalog.rebuild(because: nil) }
    lab.disk.beforeMutations(nil)
    #expect(!process.isAlive)
    try lab.put(one, [("b", noise(2, 900))], durability: .relaxed)
    try one.writer.rollOver()
    let next = try lab.open()
    for engine in [one, next] {
      let found = try lab.observed(engine)
      #expect(lab.model.matches(found), "\(found)")
    }
    try lab.put(next, [("c", noise(3, 900))], durability: .relaxed)
    try next.writer.rollOver()
    let found = try lab.observed(one)
    #expect(lab.model.matches(found), "\(found)")
    withExtendedLifetime(maker) {}
    try one.close()
    try next.close()
    try lab.checkInvariants(afterPowerCut: false)
  }

  /// Fails if a commit returns whose pack a new catalog has refused after the commit looked, and before it published.
  @Test("V1: a commit beside a process that makes the catalog anew and finds the pack damaged")
  func refusedMeanwhile() throws {
    let lab = try Lab()
    let (one, two) = (try lab.open(), try lab.open())
    for number in 0..<3 { try lab.put(one, [("k\(number)", noise(UInt64(number), 300))]) }
    let path = try #require(try DamageTests.paths(lab).first)
    try DamageTests.change(lab, path) { $0[PackHeader.byteCount + 20] ^= 1 }
    let isDone = Mutex(false)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .store, call.detail.contains("published of slot"),
        !isDone.withLock({ $0.exchange(true) })
      else { return }
      try two.catalog.rebuild(because: nil)
    }
    _ = try one.put("new", .data(noise(9, 300)), .relaxed)
    lab.disk.beforeMutations(nil)
    #expect(isDone.withLock { $0 })
    for engine in [one, two] {
      let data = try engine.data("new", nil)
      #expect(data == noise(9, 300))
    }
    for engine in [one, two] { do { try engine.close() } catch {} }
  }

  /// The process dies after each of the first calls of a commit that is handed to the system in several parts.
  @Test("V6: saying which records belong together")
  func splitCommit() throws {
    let items = (0..<1_200).map { index in
      PutItem(key: "key-\(index)", data: Data(), metadata: [UInt8](repeating: 1, count: 1_000))
    }
    for weaknesses in [[], Weaknesses.splitsCommits] {
      var counts: Set<Int> = []
      for number in 1...4 {
        let lab = try Lab()
        lab.packByteCountTarget = 8 << 20
        lab.weaknesses = weaknesses
        let engine = try lab.open()
        try lab.put(engine, [("before", noise(1, 10))], durability: .relaxed)
        let stop = lab.disk.mutationCount + number
        lab.disk.afterMutations { (call) throws(BlobStorageError) in
          if call.mutationNumber == stop { throw .simulatedStop }
        }
        _ = try? engine.put(items, .relaxed)
        withExtendedLifetime(engine) {}
        lab.restart(with: try CatalogFolder())
        lab.weaknesses = []
        try lab.session { counts.insert(try $0.keys(.bytes("key-"), after: nil, limit: .max).count) }
      }
      let isWhole = counts.isSubset(of: [0, items.count])
      #expect(isWhole == weaknesses.isEmpty, "\(counts)")
    }
    Soak.count("mutations caught")
  }
}

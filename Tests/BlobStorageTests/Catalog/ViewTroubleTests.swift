import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Views while processes die, the disk is full, or the table of open packs says what it should not. Each test names the
/// invariant of the page Durability that it would find broken.
@Suite("A view in trouble")
struct ViewTroubleTests {
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0))

  /// The files of the packs.
  private static func packFiles(_ place: StorePlace) throws -> [String] {
    try SystemFiles().list(FilePath(place.path).appending("packs")).filter { $0.hasSuffix(".pack") }
  }

  // MARK: Processes that die

  /// What comes after the death of a writer that has published.
  enum After: CaseIterable { case nothing, look, settle, rebuild, collect, put }

  /// Makes changes that stay unsettled, by an engine that ends without being closed.
  ///
  /// - Returns: the content afterwards, and the pack that has it.
  private static func publishAndDie(_ place: StorePlace) throws -> (contents: [String], pack: PackName) {
    let engine = try place.engine(Pair.environment)
    _ = try engine.put("settled", [1, 2, 3])
    _ = try engine.put("gone", [4])
    try engine.catalog.settle()
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    _ = try engine.put("settled", [5, 6], options)
    _ = try engine.put((0..<30).map { PutItem(key: "batch/\($0)", data: Data([UInt8($0), 9])) }, .relaxed)
    _ = try engine.delete(["gone"], .relaxed)
    _ = try engine.put("late", [7])
    let slot = try #require(engine.ownSlot())
    let row = try #require(try engine.packRows().first { $0.name == slot.pack })
    #expect(row.appliedByteCount == slot.published && !row.isSealed)
    return (try contents(of: engine), slot.pack)
  }

  /// V6 and V1: fails if what a dead writer published is not found in its pack, or is found twice after another process
  /// has settled it. Also fails if its slot stays taken.
  @Test("has what a process published that was killed before it was settled", arguments: After.allCases)
  func killedBeforeSettling(_ after: After) throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024))
    let beside = try place.engine(Pair.environment)
    var (expected, pack) = try Self.publishAndDie(place)
    #expect(beside.slots().map(\.pack) == [pack])
    switch after {
    case .nothing: break
    case .look: #expect(try contents(of: beside) == expected)
    case .settle: try beside.catalog.settle()
    case .rebuild: try beside.catalog.rebuild(because: nil)
    case .collect: #expect(try beside.collectGarbage(Self.everything).obstacles == [])
    case .put:
      _ = try beside.put("late", [8])
      expected = try contents(of: beside)
      #expect(expected.contains { $0.hasPrefix("settled x2") } && expected.count == 33)
    }
    #expect(try contents(of: beside) == expected)
    // An opening recovers the pack, also beside other processes.
    let next = try place.engine(Pair.environment)
    #expect(try contents(of: next) == expected)
    #expect(!next.slots().contains { $0.pack == pack })
    #expect(try next.packRows().allSatisfy { $0.name != pack || $0.isSealed })
    #expect(try contents(of: beside) == expected)
    #expect(try answers(of: beside) == answers(of: next))
    try next.catalog.rebuild(because: nil)
    for engine in [beside, next] { #expect(try contents(of: engine) == expected) }
    _ = try next.put("new", [1])
    #expect(try beside.data("new", nil) == Data([1]))
    #expect(try beside.verify().damaged.isEmpty)
    try beside.close()
    try next.close()
    try place.removeCatalog()
    let last = try place.engine(Pair.environment)
    #expect(try last.keys("", after: nil, limit: .max).count == 33)
    try last.close()
  }

  /// V6: fails if the next process takes a part of a commit whose writer died before it published. V1: fails if those
  /// beside it see anything of it before it is recovered.
  @Test("has all or nothing of a commit whose process died between appending and publishing")
  func killedBeforePublishing() throws {
    // Refs that are handed to the system in several parts.
    var random = SplitMix64(seed: 4)
    let items = (0..<3_000).map { index in
      PutItem(key: "key-\(index)", data: Data(), metadata: random.bytes(1_000))
    }
    var outcomes: Set<Int> = []
    var mutation = 0
    var isDead = true
    while isDead, mutation < 20 {
      mutation += 1
      let disk = SimulatedDisk()
      let folder = try TemporaryFolder()
      var environment = Pair.environment
      environment.files = disk
      environment.catalogFolder = folder.path.appending("catalog")
      try Engine.create(at: "/store", options: StoreOptions(), environment: environment)
      func opened() throws -> Engine {
        var environment = environment
        environment.files = disk.process()
        return try Engine(
          path: "/store", configuration: StoreConfiguration(threadCount: 1), environment: environment)
      }
      let beside = try opened()
      func die() throws -> (pack: PackName, isDead: Bool) {
        let engine = try opened()
        _ = try engine.put("before", [1])
        let pack = try #require(engine.ownSlot()).pack
        let stop = disk.mutationCount + mutation
        // What it says has been done on the disk; the process does not learn of it.
        disk.afterMutations { (call) throws(BlobStorageError) in
          if call.mutationNumber == stop { throw .simulatedStop }
        }
        return (pack, failure { _ = try engine.put(items, .relaxed) } != nil)
      }
      let death = try die()
      isDead = death.isDead
      disk.heal()
      #expect(try beside.data("before", nil) == Data([1]))
      let seenCount = try beside.keys(.bytes("key-"), after: nil, limit: .max).count
      #expect(seenCount == (isDead ? 0 : items.count), "stopped after call \(mutation)")
      let next = try opened()
      let count = try next.keys(.bytes("key-"), after: nil, limit: .max).count
      #expect(count == 0 || count == items.count, "stopped after call \(mutation)")
      outcomes.insert(count)
      #expect(try beside.keys(.bytes("key-"), after: nil, limit: .max).count == count)
      #expect(!next.slots().contains { $0.pack == death.pack })
      _ = try next.put("after", [2])
      #expect(try beside.data("after", nil) == Data([2]))
      try next.close()
      try beside.close()
    }
    #expect(mutation > 2)
    #expect(outcomes == [0, items.count])
  }

  /// V1: fails if a view waits for the number of the database's newest page to be that of a snapshot. A writer that is
  /// killed between writing that page and counting its transaction leaves a page that no snapshot ever has.
  @Test("is taken after the death of a writer whose transaction is in the file and does not count")
  func killedInTransaction() throws {
    let pair = try Pair()
    for index in 0..<4 { _ = try pair.both[index % 2].put("k\(index)", [UInt8(index)]) }
    try pair.one.catalog.settle()
    #expect(try pair.two.data("k3", nil) == Data([3]))
    // A page of LMDB's begins with its number; behind 16 bytes, the newest state of the database ends with the number
    // of its transaction. Of two such pages the older is overwritten by the next transaction.
    let file = try SystemFiles().open(FilePath(pair.place.databaseFile().path), .readWrite)
    let lengthWord = try file.read(byteCount: 4, at: 40)
    let pageByteCount = Int64(lengthWord.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) })
    func transaction(_ page: [UInt8]) -> UInt64 {
      page.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 144, as: UInt64.self) }
    }
    let pages = try (0..<2).map { try file.read(byteCount: 152, at: Int64($0) * pageByteCount) }
    let older = transaction(pages[0]) < transaction(pages[1]) ? 0 : 1
    var page = pages[1 - older]
    let number = transaction(page)
    try #require(number > 0 && transaction(pages[older]) == number - 1)
    page.replaceSubrange(0..<8, with: pages[older][0..<8])
    page.replaceSubrange(144..<152, with: withUnsafeBytes(of: number + 1) { Array($0) })
    try file.write(page, at: Int64(older) * pageByteCount)
    file.close()
    let found = try ending { () throws -> [String] in
      _ = try pair.one.put("k4", [4])
      _ = try pair.two.put("k3", [5])
      return try pair.both.flatMap { try contents(of: $0) }
    }
    #expect(found?.count == 10)
    try pair.one.catalog.settle()
    #expect(try pair.two.data("k3", nil) == Data([5]))
    try pair.close()
  }

  // MARK: Damage in open packs

  private static func flip(_ pack: PackName, at offset: Int64, _ place: StorePlace) throws {
    let path = FilePath(place.path).appending("packs").appending(pack.fileName)
    let file = try SystemFiles().open(path, .readWrite)
    defer { file.close() }
    try file.write(try file.read(byteCount: 1, at: offset).map { $0 ^ 1 }, at: offset)
  }

  /// V1: fails if a tail that cannot be read is passed over. V4: fails if its writer does not settle it.
  @Test("is refused while another process has a tail that cannot be read, until its writer has settled")
  func unreadableTail() throws {
    let seconds = Atomic<Int>(0)
    var environment = Pair.environment
    environment.time = PassingTime(now: { Double(seconds.load(ordering: .relaxed)) }, wait: { _ in })
    let pair = try Pair(environment)
    _ = try pair.one.put("a", [1])
    #expect(try pair.two.data("a", nil) == Data([1]))
    _ = try pair.one.put("b", [2])
    // It ends with the ref.
    let slot = try #require(pair.one.ownSlot())
    try Self.flip(slot.pack, at: slot.published - 1, pair.place)
    for key in ["a", "b"] { #expect(failure { _ = try pair.two.data(key, nil) }?.code == .corrupted) }
    #expect(failure { _ = try pair.two.put("a", [3]) }?.code == .corrupted)
    // Losses can still be reported, also by an opening.
    #expect(try pair.two.losses().isEmpty)
    try pair.place.engine(environment).close()
    #expect(try pair.one.data("b", nil) == Data([2]))
    seconds.store(2, ordering: .relaxed)
    _ = try pair.one.put("c", [3])
    for engine in [pair.two, pair.one] {
      for (key, byte) in [("a", 1), ("b", 2), ("c", 3)] as [(String, UInt8)] {
        #expect(try engine.data(key, nil) == Data([byte]))
      }
    }
    _ = try pair.two.put("a", [4])
    #expect(try pair.one.data("a", nil) == Data([4]))
    try pair.close()
  }

  /// Fails if a chunk counts whose last bytes the file has lost since they were published.
  @Test("is refused if the pack was cut inside the last chunk")
  func cutTail() throws {
    let pair = try Pair()
    _ = try pair.one.put("a", [1])
    #expect(try pair.two.data("a", nil) == Data([1]))
    var random = SplitMix64(seed: 7)
    let bytes = random.bytes(3_000)
    let digest = BlobDigest.of(bytes.span.bytes, by: pair.one.header.digestAlgorithm)
    try pair.one.writer.append(
      .chunk(ChunkRecord(digest: digest, plainByteCount: bytes.count, codecNumber: 0)),
      payload: bytes.span.bytes)
    _ = try pair.one.writer.commit(on: []) { _ in }
    let slot = try #require(pair.one.ownSlot())
    let path = FilePath(pair.place.path).appending("packs").appending(slot.pack.fileName)
    let file = try SystemFiles().open(path, .readWrite)
    defer { file.close() }
    try file.truncate(to: slot.published - 1)
    #expect(failure { _ = try pair.two.data("a", nil) }?.code == .corrupted)
    for engine in pair.both { do { try engine.close() } catch {} }
  }

  /// V1: fails if a commit goes on to be published by a length that views do not look at any more.
  @Test("shows what a process commits to a pack that a catalog made anew has found damaged")
  func damagedWhileOpen() throws {
    let pair = try Pair()
    for index in 0..<3 { _ = try pair.one.put("k\(index)", [UInt8(index)], PutOptions()) }
    let pack = try #require(pair.one.ownSlot()).pack
    // The refs behind it say that this was on the medium.
    try Self.flip(pack, at: Int64(PackHeader.byteCount) + 20, pair.place)
    try pair.two.catalog.rebuild(because: nil)
    #expect(try pair.two.packRows().contains { $0.name == pack && $0.isDamaged && $0.isSealed })
    for index in 5..<8 {
      _ = try pair.one.put("k\(index)", [UInt8(index)], index == 5 ? PutOptions() : .relaxed)
      for engine in [pair.two, pair.one] {
        #expect(try engine.data("k\(index)", nil) == Data([UInt8(index)]))
      }
    }
    #expect(try !pair.two.losses().isEmpty)
    for engine in pair.both { do { try engine.close() } catch {} }
  }

  // MARK: A collection beside commits

  private static func putGarbage(_ engine: Engine) throws {
    var random = SplitMix64(seed: 5)
    _ = try engine.put("garbage", random.bytes(20_000))
    _ = try engine.put("kept", [1, 2, 3])
    _ = try engine.delete(["garbage"], .relaxed)
  }

  /// Fails if a collection removes what a commit under way may count on.
  @Test("of a commit that does not end has a collection end as busy, which removes nothing")
  func stoppedCommit() throws {
    let pair = try Pair()
    try Self.putGarbage(pair.one)
    // Another process, which is stopped inside of a commit.
    let table = try #require(
      try LiveTable.open(
        in: FilePath(pair.place.catalogFolder.path), SystemFiles(), MediumIdentity(boot: "boot", mount: ""),
        isAlone: false))
    let name = PackName(writer: 7, sequence: 1)
    let slot = try #require(try table.claim(name))
    let epoch = slot.enter()
    let before = try Self.packFiles(pair.place)
    for engine in pair.both {
      let error = failure { _ = try engine.collectGarbage(Self.everything) }
      #expect(error?.code == .busy)
      #expect(error?.pack == name.description)
      #expect(error?.message.contains(Self.ownProcess) == true, "\(error)")
      #expect(try Self.packFiles(pair.place) == before)
      #expect(try engine.packRows().allSatisfy { $0.state == .live })
      #expect(try engine.data("kept", nil) == Data([1, 2, 3]))
    }
    // Others go on.
    _ = try pair.two.put("new", [4])
    #expect(try pair.one.data("new", nil) == Data([4]))
    slot.leave(epoch)
    let report = try pair.two.collectGarbage(Self.everything)
    #expect(report.obstacles == [] && report.freedByteCount > 15_000)
    #expect(try Self.packFiles(pair.place) != before)
    #expect(try pair.one.data("kept", nil) == Data([1, 2, 3]))
    slot.release()
    table.close()
    #expect(try pair.one.verify().damaged.isEmpty)
    try pair.close()
  }

  /// As messages name this process, which stands for all.
  private static let ownProcess = "process \(ProcessInfo.processInfo.processIdentifier), pack"

  /// Fails if a commit waits for ever for a process that is stopped inside one.
  @Test("of a commit that does not end has another to its key end as busy, which names the process")
  func stoppedStripe() throws {
    var environment = Pair.environment
    environment.stripePatienceSeconds = 0.05
    let pair = try Pair(environment)
    _ = try pair.one.put("k", [1])
    let table = try #require(
      try LiveTable.open(
        in: FilePath(pair.place.catalogFolder.path), SystemFiles(), MediumIdentity(boot: "boot", mount: ""),
        isAlone: false))
    let name = PackName(writer: 7, sequence: 1)
    let slot = try #require(try table.claim(name))
    let stripes = LiveTable.stripes([Array("k".utf8)])
    try #require(LiveTable.stripes([Array("other".utf8)]) != stripes)
    for hasSlot in [true, false] {
      try table.locked(stripes) { () throws(BlobStorageError) in
        let epoch = hasSlot ? slot.enter() : nil
        for engine in pair.both {
          let error = failure { _ = try engine.put("k", [2]) }
          #expect(error?.code == .busy)
          #expect(error?.pack == (hasSlot ? name.description : nil))
          #expect(error?.message.contains(Self.ownProcess) == hasSlot, "\(error)")
          #expect(failure { _ = try engine.delete(["k"], .relaxed) }?.code == .busy)
          // Others go on.
          #expect(failure { _ = try engine.put("other", [3]) } == nil)
          #expect(failure { _ = try engine.data("k", nil) } == nil)
        }
        if let epoch { slot.leave(epoch) }
      }
    }
    for (index, engine) in pair.both.enumerated() {
      _ = try engine.put("k", [UInt8(4 + index)])
      #expect(try pair.both[1 - index].data("k", nil) == Data([UInt8(4 + index)]))
    }
    slot.release()
    table.close()
    #expect(try pair.one.verify().damaged.isEmpty)
    try pair.close()
  }

  /// V6: fails if a collection waits for the commit of a process that is dead.
  @Test("of a commit whose process died does not keep a collection waiting")
  func deadCommit() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024))
    let engine = try place.engine(Pair.environment)
    try Self.putGarbage(engine)
    func die() throws -> PackName {
      let other = try place.engine(Pair.environment)
      _ = try other.put("late", [7])
      let slot = try #require(other.ownSlot())
      // It began its next commit in the first epoch.
      try LiveWords(in: FilePath(place.catalogFolder.path)).set(slot.slot, .epoch, 1)
      #expect(failure { _ = try engine.collectGarbage(Self.everything) }?.code == .busy)
      withExtendedLifetime(other) {}
      return slot.pack
    }
    let pack = try die()
    #expect(engine.slots().contains { $0.pack == pack })
    let report = try engine.collectGarbage(Self.everything)
    #expect(report.obstacles == [] && report.freedByteCount > 15_000)
    #expect(!engine.slots().contains { $0.pack == pack })
    #expect(try engine.data("late", nil) == Data([7]))
    #expect(try engine.data("kept", nil) == Data([1, 2, 3]))
    try engine.close()
  }

  /// H2: fails if a collection recovers the first writer that dies in a commit, and ignores one that dies after that.
  /// The last commit of that one may rely on what the collection removes.
  @Test("of two commits whose processes die one after the other while a collection waits has both recovered")
  func deadCommitsInTurn() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024))
    let words = LiveWords(in: FilePath(place.catalogFolder.path))
    let living = Mutex<[Engine?]>([])
    let slots = Mutex<[LiveTable.Entry]>([])
    var environment = Pair.environment
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard let first = slots.withLock({ $0.first }) else { return }
      do {
        if call == "lock bytes", path.lastComponent?.string == "live",
          try words.word(LiveTable.Word.epoch.rawValue) > 1
        {
          // The collector is about to see whether the first is dead.
          living.withLock { $0[0] = nil }
        }
        let sequence = LiveTable.headerWordCount + first.slot * LiveTable.slotWordCount
        if call == "unlock", path.lastComponent?.string == "lock",
          try words.word(sequence + LiveTable.SlotWord.sequence.rawValue) == 0
        {
          // It has recovered the first.
          living.withLock { $0[1] = nil }
        }
      } catch { throw BlobStorageError(.io, "\(error)") }
    }
    let collector = try place.engine(environment)
    try Self.putGarbage(collector)
    func begin(_ number: Int) throws {
      let engine = try place.engine(Pair.environment)
      _ = try engine.put("late \(number)", [UInt8(number)])
      let slot = try #require(engine.ownSlot())
      // Its next commit began in the first epoch.
      try words.set(slot.slot, .epoch, 1)
      slots.withLock { $0.append(slot) }
      living.withLock { $0.append(engine) }
    }
    for number in 0..<2 { try begin(number) }
    let packs = slots.withLock { $0.map(\.pack) }
    let report = try collector.collectGarbage(Self.everything)
    #expect(report.obstacles == [] && report.freedByteCount > 15_000)
    #expect(living.withLock { $0.allSatisfy { $0 == nil } })
    #expect(!collector.slots().contains { packs.contains($0.pack) })
    #expect(try collector.packRows().allSatisfy { !packs.contains($0.name) || $0.isSealed })
    for number in 0..<2 { #expect(try collector.data("late \(number)", nil) == Data([UInt8(number)])) }
    try collector.close()
  }

  /// Fails if what two processes read and write of one key in a commit can overtake each other.
  @Test("of two processes with two threads each loses none of the additions to one key")
  func additions() throws {
    let pair = try Pair()
    let refusedCount = Atomic<Int>(0)
    try together(
      (0..<4).map { thread in
        {
          let engine = pair.both[thread % 2]
          var count = 0
          while count < 40 {
            let current = try engine.version("n", nil)
            let bytes = try current.flatMap { try engine.data("n", $0.id) }
            // Replaced since it was looked up.
            if current != nil, bytes == nil { continue }
            let next = (bytes.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0) + 1
            do {
              let options = PutOptions(
                durability: .relaxed, condition: current.map { .current($0.id) } ?? .absent)
              _ = try engine.put("n", .data(Data("\(next)".utf8)), options)
              count += 1
              // Another key has another stripe.
              _ = try engine.put("own \(thread)", [UInt8(count)])
            } catch let error as BlobStorageError where error.code == .conditionFailed {
              refusedCount.wrappingAdd(1, ordering: .relaxed)
            }
          }
        }
      })
    for engine in pair.both {
      let value = try engine.data("n", nil)
      #expect(value == Data("160".utf8), "\(refusedCount.load(ordering: .relaxed)) were refused")
      #expect(try engine.versions("n").count == 1)
      for thread in 0..<4 { #expect(try engine.data("own \(thread)", nil) == Data([40])) }
    }
    try pair.close()
  }

  // MARK: No room

  /// V7: fails if reading, putting into an open pack, deleting or collecting needs the catalog to be written without
  /// the reserve.
  @Test("goes on where the catalog has no room until the reserve is given free", arguments: [false, true])
  func noRoom(_ deletesFirst: Bool) throws {
    let isFull = Atomic<Bool>(false)
    let refusedCount = Atomic<Int>(0)
    let reserve = Mutex("")
    let isKept = Atomic<Bool>(false)
    var environment = Pair.environment
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "remove", path.lastComponent?.string == "reserve", isKept.load(ordering: .acquiring)
      else {
        return
      }
      throw .systemCall("remove", path: path, errno: Errno.noSpace.rawValue)
    }
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "lock", path.lastComponent?.string == "lock", isFull.load(ordering: .acquiring),
        FileManager.default.fileExists(atPath: reserve.withLock { $0 })
      else { return }
      refusedCount.wrappingAdd(1, ordering: .relaxed)
      throw .systemCall("lock", path: path, errno: Errno.noSpace.rawValue)
    }
    let pair = try Pair(environment)
    let path = pair.place.path + "/reserve"
    reserve.withLock { $0 = path }
    #expect(FileManager.default.fileExists(atPath: path))
    try Self.putGarbage(pair.one)
    isFull.store(true, ordering: .releasing)
    // No write transaction begins from here on, and more is published than tails should hold.
    var count = 0
    while count < Tails.recordCountMax + 600 {
      let items = (0..<500).map { PutItem(key: "k\(count + $0)", data: Data()) }
      count += try pair.one.put(items, .relaxed).count
      for engine in pair.both { #expect(try engine.version(items[499].key, nil) != nil) }
    }
    #expect(refusedCount.load(ordering: .relaxed) > 0)
    #expect(pair.one.catalog.tails.size.recordCount > Tails.recordCountMax)
    #expect(FileManager.default.fileExists(atPath: path))
    #expect(try pair.two.keys(.bytes("k"), after: nil, limit: .max).count == count + 1)
    #expect(try pair.two.data("kept", nil) == Data([1, 2, 3]))
    // In the pack that is open this takes no room for the catalog.
    #expect(try pair.one.delete(["k0"], .relaxed) == 1)
    #expect(FileManager.default.fileExists(atPath: path))
    if deletesFirst {
      // This begins a pack.
      #expect(try pair.two.delete(["k1"], .relaxed) == 1)
      #expect(!FileManager.default.fileExists(atPath: path))
      #expect(try pair.one.version("k1", nil) == nil)
    }
    if !deletesFirst {
      // Without the reserve nothing would go.
      isKept.store(true, ordering: .releasing)
      #expect(failure { _ = try pair.two.collectGarbage(Self.everything) }?.code == .noSpace)
      isKept.store(false, ordering: .releasing)
    }
    let report = try pair.two.collectGarbage(Self.everything)
    #expect(report.obstacles == [])
    // The pack of the other process is not sealed: it closes it, and is collected.
    isFull.store(false, ordering: .releasing)
    try pair.one.writer.rollOver()
    isFull.store(true, ordering: .releasing)
    let second = try pair.two.collectGarbage(Self.everything)
    #expect(second.obstacles == [] && second.deletedChunkCount > 0 && second.garbageByteCount < 1_000)
    #expect(try pair.one.data("kept", nil) == Data([1, 2, 3]))
    isFull.store(false, ordering: .releasing)
    let expectedCount = count - (deletesFirst ? 2 : 1)
    for engine in pair.both {
      try engine.catalog.settle()
      #expect(try engine.keys(.bytes("k"), after: nil, limit: .max).count == expectedCount + 1)
      #expect(!engine.hasLongTails)
    }
    try pair.close()
  }

  /// V4: fails if the number of records alone is bounded while the catalog has no room.
  @Test(
    "keeps a bounded part of long keys and metadata in memory where the catalog has no room",
    arguments: [[], Weaknesses.growsTails])
  func longKeys(_ weaknesses: Weaknesses) throws {
    let isFull = Atomic<Bool>(false)
    var environment = Pair.environment
    environment.weaknesses = weaknesses
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "lock", path.lastComponent?.string == "lock", isFull.load(ordering: .acquiring) else {
        return
      }
      throw .systemCall("lock", path: path, errno: Errno.noSpace.rawValue)
    }
    let place = try StorePlace()
    let engine = try place.engine(environment)
    _ = try engine.put("k", [1])
    isFull.store(true, ordering: .releasing)
    let (tails, table) = (engine.catalog.tails, try #require(engine.catalog.live.table))
    let header = PackHeader(
      name: PackName(writer: 9, sequence: 1), storeID: engine.header.storeID,
      digestAlgorithm: engine.header.digestAlgorithm, created: 1)
    let slot = try #require(try table.claim(header.name))
    /// Publishes records that take so much memory, about.
    func publish(byteCount: Int) throws {
      let content = PackRecord.Content.ref(
        RefRecord(
          key: [UInt8](repeating: 1, count: 4_096), version: Stamp(time: 1, writer: 9), replaced: .none,
          digest: BlobDigest.of([1]), byteCount: 1, created: 1, metadata: []))
      let records = (0..<byteCount / 4_096).map {
        PackRecord(content, in: Int64($0) * 8_192..<Int64($0 + 1) * 8_192)
      }
      let end = Int64(records.count) * 8_192
      try tails.publish(records, of: header, upTo: end, in: slot, isPromised: false)
      #expect(tails.size.recordCount < 8 * Tails.recordCountMax)
    }
    try publish(byteCount: Int(Tails.byteCountMax) / 2)
    _ = try engine.put("k", [2])
    try publish(byteCount: Int(Tails.byteCountMax))
    let error = failure { _ = try engine.put("k", [3]) }
    #expect(error?.code == (weaknesses.isEmpty ? .noSpace : nil))
    #expect(try engine.data("k", nil) == Data([weaknesses.isEmpty ? 2 : 3]))
    slot.release()
    isFull.store(false, ordering: .releasing)
    _ = try engine.put("k", [4])
    #expect(try engine.data("k", nil) == Data([4]))
    try engine.close()
  }

  /// V1 and V7: fails if a commit is published where no view looks.
  @Test("shows all where there is no table of open packs, as it cannot be made")
  func noTable() throws {
    var environment = Pair.environment
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "allocate", path.lastComponent?.string == "live.new" else { return }
      throw .systemCall(call, path: path, errno: Errno.noSpace.rawValue)
    }
    let place = try StorePlace()
    let engines = try (0..<2).map { _ in try place.engine(environment) }
    #expect(engines.allSatisfy { $0.catalog.live.table == nil })
    for index in 0..<12 {
      _ = try engines[index % 2].put("k\(index % 5)", [UInt8(index)])
      #expect(try engines[(index + 1) % 2].data("k\(index % 5)", nil) == Data([UInt8(index)]))
    }
    // A third that could make one does not: those would not see what is published there.
    let third = try place.engine(Pair.environment)
    #expect(third.catalog.live.table == nil)
    _ = try third.put("k9", [9])
    for engine in engines {
      #expect(try engine.data("k9", nil) == Data([9]))
      try engine.close()
    }
    try third.close()
    let alone = try place.engine(Pair.environment)
    #expect(alone.catalog.live.table != nil)
    #expect(try alone.keys("", after: nil, limit: 9).count == 6)
    try alone.close()
  }
}

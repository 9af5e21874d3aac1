import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// A table of open packs that is full, gone, old or wrong: never a crash, and never an old answer without an error.
/// Each test names the invariant of the page Durability that it would find broken.
@Suite("A store whose table of open packs")
struct HostileTableTests {
  private static func words(_ place: StorePlace) -> LiveWords {
    LiveWords(in: FilePath(place.catalogFolder.path))
  }

  /// The table, as another process has it open.
  private static func table(_ place: StorePlace) throws -> LiveTable {
    try #require(
      try LiveTable.open(
        in: FilePath(place.catalogFolder.path), SystemFiles(), MediumIdentity(boot: "boot", mount: ""),
        isAlone: false))
  }

  /// Puts under keys of both engines in turn, and looks for what was put through both at once.
  private static func exchange(_ engines: [Engine], _ round: Int) throws {
    for index in 0..<6 {
      let (key, bytes) = ("k\(index % 4)", [UInt8(round), UInt8(index)])
      _ = try engines[index % engines.count].put(key, bytes)
      for engine in engines {
        #expect(try engine.data(key, nil) == Data(bytes), "round \(round), put \(index)")
      }
    }
    let expected = try contents(of: engines[0])
    for engine in engines { #expect(try contents(of: engine) == expected) }
  }

  /// V1: fails if a writer that finds no free slot publishes nowhere.
  @Test("has no free slot makes every commit visible through the catalog, until there is one")
  func full() throws {
    let pair = try Pair()
    let table = try Self.table(pair.place)
    try Self.exchange([pair.one], 1)
    let slots = try (0..<LiveTable.slotCount).compactMap { number in
      try table.claim(PackName(writer: UInt64(number) + 1, sequence: 1))
    }
    #expect(slots.count == LiveTable.slotCount - 1)
    // The one has its slot, the other gets none.
    try Self.exchange(pair.both, 2)
    #expect(pair.one.ownSlot() != nil && pair.two.ownSlot() == nil)
    _ = try pair.two.put((0..<40).map { PutItem(key: "b\($0)", data: Data()) }, .relaxed)
    #expect(try pair.one.keys(.bytes("b"), after: nil, limit: .max).count == 40)
    try pair.one.writer.rollOver()
    #expect(pair.one.slots().count == LiveTable.slotCount - 1)
    try Self.exchange(pair.both, 3)
    for slot in slots { slot.release() }
    // The next packs.
    for engine in pair.both { try engine.writer.rollOver() }
    try Self.exchange(pair.both, 4)
    #expect(Set(pair.two.slots().map(\.pack.writer)) == Set(pair.both.map(\.writer.writerID)))
    table.close()
    try pair.close()
  }

  /// V1: fails if a commit is published in a table that new processes do not see.
  @Test("is removed while it is in use goes on without one")
  func removed() throws {
    let pair = try Pair()
    try Self.exchange(pair.both, 1)
    try SystemFiles().remove(Self.words(pair.place).path)
    try Self.exchange(pair.both, 2)
    let third = try pair.place.engine(Pair.environment)
    try Self.exchange([third, pair.one, pair.two], 3)
    try Self.exchange([pair.two, third], 4)
    try third.close()
    try Self.exchange(pair.both, 5)
    let before = try contents(of: pair.one)
    try pair.close()
    let next = try pair.place.engine(Pair.environment)
    #expect(next.catalog.live.table != nil)
    #expect(try contents(of: next) == before)
    try next.close()
  }

  /// V1: fails if a commit returns that only the removed table shows.
  @Test("is removed during a commit has that commit seen by the process that opens the store next")
  func removedDuringCommit() throws {
    let path = Mutex<FilePath?>(nil)
    var environment = Pair.environment
    environment.files = HookedFiles { (call, file) throws(BlobStorageError) in
      guard call == "write", file.string.contains("/packs/"), let path = path.withLock({ $0.take() }) else {
        return
      }
      try SystemFiles().remove(path)
    }
    let pair = try Pair(environment)
    _ = try pair.one.put("a", [1])
    path.withLock { $0 = Self.words(pair.place).path }
    _ = try pair.one.put("b", [2])
    #expect(path.withLock { $0 } == nil)
    let third = try pair.place.engine(Pair.environment)
    for engine in [third, pair.one, pair.two] {
      #expect(try engine.data("a", nil) == Data([1]) && engine.data("b", nil) == Data([2]))
    }
    try Self.exchange([third, pair.one, pair.two], 2)
    try third.close()
    try pair.close()
  }

  /// V1: fails if a process that opens the store while another one makes the table anew keeps the one before.
  @Test("is made anew while another process opens the store is soon the table of both")
  func replacedDuringOpening() throws {
    let place = try StorePlace()
    let path = place.path
    var environment = Pair.environment
    environment.mountIdentity = "before"
    let first = try place.engine(environment)
    _ = try first.put("k", [1])
    try first.close()
    environment.mountIdentity = "after"
    let opened = Mutex<Result<Engine, BlobStorageError>?>(nil)
    var hooked = environment
    hooked.catalogFiles = HookedFiles { [environment] (call, file) throws(BlobStorageError) in
      guard call == "remove", file.lastComponent?.string == "live" else { return }
      let other = Result { () throws(BlobStorageError) in
        try Engine(
          path: path, configuration: StoreConfiguration(threadCount: 1), environment: environment)
      }
      opened.withLock { $0 = other }
    }
    let writer = try place.engine(hooked)
    let reader = try #require(try opened.withLock { $0 }?.get())
    #expect(try reader.data("k", nil) == Data([1]))
    _ = try writer.put("k", [2])
    // It looks some times a second whether its table was removed.
    var found: Data?
    let end = ContinuousClock.now.advanced(by: .seconds(60))
    repeat { found = try reader.data("k", nil) } while found != Data([2]) && ContinuousClock.now < end
    #expect(found == Data([2]))
    try reader.close()
    try writer.close()
  }

  enum Harm: String, CaseIterable { case missing, short, noise, otherBoot, deadSlots }

  /// V1 and V6: fails if what an invalid or an old table says is believed.
  @Test("is not valid when the store is opened is as if it had none", arguments: Harm.allCases)
  func invalid(_ harm: Harm) throws {
    let place = try StorePlace()
    func die() throws -> [String] {
      let engines = try (0..<2).map { _ in try place.engine(Pair.environment) }
      try Self.exchange(engines, 1)
      return try contents(of: engines[0])
    }
    let expected = try die()
    let path = Self.words(place).path
    var environment = Pair.environment
    var random = SplitMix64(seed: 12)
    switch harm {
    case .missing: try SystemFiles().remove(path)
    case .short: try SystemFiles().write(random.bytes(100), to: path)
    case .noise: try SystemFiles().write(random.bytes(LiveTable.byteCount), to: path)
    case .otherBoot: environment.bootIdentity = "next"
    case .deadSlots: break
    }
    let engines = try (0..<2).map { _ in try place.engine(environment) }
    for engine in engines {
      #expect(engine.catalog.live.table != nil)
      #expect(engine.slots().isEmpty)
      #expect(try contents(of: engine) == expected)
    }
    try Self.exchange(engines, 2)
    #expect(try engines[0].verify().damaged.isEmpty)
    for engine in engines { try engine.close() }
  }

  /// V1: fails if an opening continues without the table in which others publish.
  @Test(
    "is damaged while it is in use is missed by the next process that opens the store",
    arguments: [LiveTable.Word.mark, .inode, .boot])
  func damagedHeader(_ word: LiveTable.Word) throws {
    let pair = try Pair()
    try Self.exchange(pair.both, 1)
    let expected = try contents(of: pair.one)
    try Self.words(pair.place).set(word, 1)
    #expect(failure { _ = try pair.place.engine(Pair.environment) }?.code == .corrupted)
    for engine in pair.both { #expect(try contents(of: engine) == expected) }
    try Self.exchange(pair.both, 2)
    let last = try contents(of: pair.two)
    try pair.close()
    let next = try pair.place.engine(Pair.environment)
    #expect(next.catalog.live.table != nil)
    #expect(try contents(of: next) == last)
    try next.close()
  }

  enum Length: String, CaseIterable {
    case beyond, farBeyond, greatest, inTheMiddle, header, zero
    /// As if a writer had stored it.
    case publishedBeyond, publishedInTheMiddle

    func word(_ slot: LiveTable.Entry) -> UInt64 {
      switch self {
      case .beyond: UInt64(slot.published) + 10
      case .farBeyond: 1 << 40
      case .greatest: .max
      case .inTheMiddle: UInt64(slot.published) - 1
      case .header: 3
      case .zero: 0
      case .publishedBeyond: LiveTable.word(slot.published + 10, of: slot.pack, isPromised: false)
      case .publishedInTheMiddle: LiveTable.word(slot.published - 1, of: slot.pack, isPromised: false)
      }
    }
  }

  /// V1: fails if a published length is believed that the records of the pack do not confirm.
  @Test("has a wrong length answers rightly or says that it cannot", arguments: Length.allCases)
  func wrongLength(_ length: Length) throws {
    let pair = try Pair()
    var expected: [String: Data] = [:]
    for index in 0..<5 {
      let data = Data((0..<40 + index).map { UInt8($0 + index) })
      expected["k\(index)"] = data
      _ = try pair.one.put("k\(index)", .data(data), .relaxed)
      // The other has read all but the last two.
      if index == 2 { #expect(try pair.two.data("k2", nil) == data) }
    }
    let slot = try #require(pair.one.ownSlot())
    let words = Self.words(pair.place)
    try words.set(slot.slot, .published, length.word(slot))
    try words.set(.publishCount, 1_000_000)
    for key in expected.keys { #expect(failure { _ = try pair.two.data(key, nil) }?.code == .corrupted) }
    #expect(failure { _ = try pair.two.put("other", [1]) }?.code == .corrupted)
    // Also after a process that does not know better has rebuilt the catalog.
    do { try pair.two.catalog.rebuild(because: nil) } catch {}
    for key in expected.keys { #expect(failure { _ = try pair.two.data(key, nil) }?.code == .corrupted) }
    // Its writer knows better. Once that has looked, all do.
    for engine in [pair.one, pair.two] {
      for (key, data) in expected { #expect(try engine.data(key, nil) == data, "\(key)") }
    }
    _ = try pair.two.put("other", [1])
    #expect(try pair.one.data("other", nil) == Data([1]))
    try pair.close()
    let next = try pair.place.engine(Pair.environment)
    #expect(try next.losses().isEmpty)
    for (key, data) in expected { #expect(try next.data(key, nil) == data, "\(key)") }
    #expect(!next.slots().contains { $0.pack == slot.pack })
    _ = try next.put("new", [1])
    #expect(try next.data("new", nil) == Data([1]))
    try next.close()
  }

  /// V6: fails if a length that no writer stored counts as a promise that the pack does not keep.
  @Test("has a changed length of a dead writer's pack costs nothing, and nothing counts as lost for it")
  func changedAfterDeath() throws {
    for length in Length.allCases where ![.publishedBeyond, .publishedInTheMiddle].contains(length) {
      for word in [LiveTable.SlotWord.published, .promised] {
        let place = try StorePlace()
        func die() throws -> (contents: [String], slot: LiveTable.Entry) {
          let engine = try place.engine(Pair.environment)
          for index in 0..<5 {
            let options = PutOptions(durability: index % 2 == 0 ? .durable : .relaxed)
            _ = try engine.put("k\(index)", [UInt8(index)], options)
          }
          return (try contents(of: engine), try #require(engine.ownSlot()))
        }
        let (expected, slot) = try die()
        try Self.words(place).set(slot.slot, word, length.word(slot))
        for _ in 0..<2 {
          let engine = try place.engine(Pair.environment)
          #expect(try contents(of: engine) == expected, "\(length), \(word)")
          #expect(try engine.losses().isEmpty, "\(length), \(word)")
          #expect(engine.slots().isEmpty)
          try engine.close()
          try place.removeCatalog()
        }
      }
    }
  }

  /// Fails if slots run out because of packs that are not there.
  @Test("has a slot for a missing pack frees it once no process holds it", arguments: [false, true])
  func missingPack(_ opens: Bool) throws {
    let pair = try Pair()
    try Self.exchange([pair.one], 1)
    let table = try Self.table(pair.place)
    let pack = PackName(writer: 77, sequence: 7)
    let slot = try #require(try table.claim(pack))
    slot.publish(5_000, isPromised: true)
    func look() throws {
      if opens {
        try pair.place.engine(Pair.environment).close()
      } else {
        #expect(try pair.two.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).obstacles == [])
      }
    }
    try look()
    #expect(pair.one.slots().contains { $0.pack == pack })
    try Self.exchange(pair.both, 2)
    table.close()
    try look()
    #expect(!pair.one.slots().contains { $0.pack == pack })
    #expect(pair.one.ownSlot() != nil || !opens)
    try Self.exchange(pair.both, 3)
    #expect(try pair.two.losses().isEmpty)
    withExtendedLifetime(slot) {}
    try pair.close()
  }

  /// V1: fails if slots of unknown packs keep a store from working.
  @Test("has noise in its slots works as if they were taken", arguments: 0..<3)
  func noise(_ round: Int) throws {
    let place = try StorePlace()
    func die() throws -> [String] {
      let engine = try place.engine(Pair.environment)
      try Self.exchange([engine], 1)
      return try contents(of: engine)
    }
    let expected = try die()
    let words = Self.words(place)
    var random = SplitMix64(seed: UInt64(round) + 70)
    // All but what makes the table valid.
    let start = LiveTable.Word.epoch.rawValue
    let bytes = try SystemFiles().bytes(of: words.path).prefix(start * 8)
    try SystemFiles().write(Array(bytes) + random.bytes(LiveTable.byteCount - start * 8), to: words.path)
    let engines = try (0..<2).map { _ in try place.engine(Pair.environment) }
    for engine in engines {
      #expect(engine.catalog.live.table != nil)
      #expect(try contents(of: engine) == expected)
    }
    for number in 2..<5 {
      try Self.exchange(engines, number)
      try engines[number % 2].catalog.rebuild(because: nil)
      try engines[number % 2].writer.rollOver()
    }
    // A commit seems to be under way that no process can end: then nothing is removed.
    let error = failure {
      _ = try engines[0].collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    }
    #expect(error == nil || error?.code == .busy)
    try Self.exchange(engines, 6)
    #expect(try engines[1].verify().damaged.isEmpty)
    let last = try contents(of: engines[0])
    for engine in engines { try engine.close() }
    let next = try place.engine(Pair.environment)
    #expect(try contents(of: next) == last)
    try next.close()
  }

  /// V1: fails if a slot of the pack of another is believed beside that pack's own.
  @Test("has a slot for a pack that is sealed shows what the catalog has of it, and frees the slot")
  func sealedPack() throws {
    let place = try StorePlace()
    let first = try place.engine(Pair.environment)
    try Self.exchange([first], 1)
    let pack = try #require(first.ownSlot()).pack
    let expected = try contents(of: first)
    try first.close()
    let engine = try place.engine(Pair.environment)
    func claim() throws {
      let table = try Self.table(place)
      let slot = try #require(try table.claim(pack))
      slot.publish(1 << 20, isPromised: true)
      #expect(try contents(of: engine) == expected)
      table.close()
    }
    try claim()
    #expect(engine.slots().map(\.pack) == [pack])
    #expect(try contents(of: engine) == expected)
    #expect(try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).obstacles == [])
    #expect(!engine.slots().contains { $0.pack == pack })
    #expect(try contents(of: engine) == expected)
    try engine.catalog.rebuild(because: nil)
    #expect(try contents(of: engine) == expected)
    try engine.close()
  }
}

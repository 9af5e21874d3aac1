import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("The table of open packs")
struct LiveTableTests {
  let temporary: TemporaryFolder
  var words: LiveWords { LiveWords(in: temporary.path) }

  init() throws { temporary = try TemporaryFolder() }

  private static func pack(_ number: Int) -> PackName { PackName(writer: UInt64(number), sequence: 1) }

  private func opened(
    isAlone: Bool = false, boot: String = "boot", mount: String = "mount"
  ) throws -> LiveTable? {
    try LiveTable.open(
      in: temporary.path, SystemFiles(), MediumIdentity(boot: boot, mount: mount), isAlone: isAlone)
  }

  private func made() throws -> LiveTable { try #require(try opened(isAlone: true)) }
  private func joined() throws -> LiveTable { try #require(try opened()) }

  @Test("tells the others of a pack and of its lengths, and a slot that was given back is taken again")
  func slots() throws {
    let (one, two) = (try made(), try joined())
    #expect(two.entries().isEmpty)
    let slot = try #require(try one.claim(Self.pack(1)))
    var entry = try #require(two.entries().first)
    #expect(
      entry.pack == Self.pack(1) && entry.published == Int64(PackHeader.byteCount) && entry.promised == 0)
    let before = two.publishCount
    slot.publish(500, isPromised: true)
    #expect(two.publishCount == before + 1)
    slot.publish(700, isPromised: false)
    entry = try #require(two.entries().first)
    #expect(entry.published == 700 && entry.promised == 500)
    #expect(one.entries() == two.entries())
    let other = try #require(try two.claim(Self.pack(2)))
    #expect(one.entries().map(\.pack) == [Self.pack(1), Self.pack(2)])
    slot.release()
    #expect(two.entries().map(\.pack) == [Self.pack(2)])
    let again = try #require(try two.claim(Self.pack(3)))
    #expect(again.number == slot.number)
    entry = try #require(one.entries().first)
    #expect(
      entry.pack == Self.pack(3) && entry.published == Int64(PackHeader.byteCount) && entry.promised == 0)
    other.release()
    again.release()
    #expect(one.entries().isEmpty)
  }

  @Test("has so many slots, and none more")
  func allTaken() throws {
    let (one, two) = (try made(), try joined())
    let slots = try (0..<LiveTable.slotCount).compactMap { number in
      try (number % 3 == 0 ? two : one).claim(Self.pack(number))
    }
    #expect(Set(slots.map(\.number)) == Set(0..<LiveTable.slotCount))
    #expect(try one.claim(Self.pack(900)) == nil)
    #expect(try two.claim(Self.pack(900)) == nil)
    slots[77].release()
    let again = try #require(try two.claim(Self.pack(900)))
    #expect(again.number == slots[77].number)
    #expect(Set(one.entries().map(\.pack)).count == LiveTable.slotCount)
  }

  @Test("knows by the slot's lock whether a writer is dead, and frees what the catalog has whole")
  func death() throws {
    let (one, two) = (try made(), try joined())
    let living = try #require(try two.claim(Self.pack(1)))
    let killed = [2, 3].map { Self.pack($0) }
    let slots = try killed.compactMap { try one.claim($0) }
    #expect(slots.count == 2)
    for entry in two.entries() {
      #expect(try !two.isDead(entry))
      #expect(try !one.isDead(entry))
    }
    try one.reap { _ in true }
    try two.reap { _ in true }
    #expect(two.entries().count == 3)
    one.close()
    #expect(try two.entries().filter { try two.isDead($0) }.map(\.pack) == killed)
    let three = try joined()
    #expect(try three.entries().filter { try three.isDead($0) }.map(\.pack) == killed)
    withExtendedLifetime(slots) {}
    try three.reap { $0.pack == Self.pack(3) }
    #expect(two.entries().map(\.pack) == [Self.pack(1), Self.pack(2)])
    // Trying the lock of a slot leaves it free, also for the process that takes it next.
    let new = try #require(try two.claim(Self.pack(4)))
    #expect(try three.entries().filter { try three.isDead($0) }.map(\.pack) == [Self.pack(2)])
    try three.reap { _ in true }
    #expect(Set(three.entries().map(\.pack)) == [Self.pack(1), Self.pack(4)])
    living.release()
    new.release()
  }

  @Test("keeps what was published in a slot whose writer gave up, as if it had died")
  func givenUp() throws {
    let (one, two) = (try made(), try joined())
    func giveUp() throws {
      let slot = try #require(try one.claim(Self.pack(1)))
      slot.publish(300, isPromised: false)
    }
    try giveUp()
    for table in [one, two] {
      let entry = try #require(table.entries().first)
      #expect(entry.pack == Self.pack(1) && entry.published == 300)
      #expect(try table.isDead(entry))
    }
    let next = try #require(try one.claim(Self.pack(2)))
    #expect(next.number == 1)
    try two.reap { $0.pack == Self.pack(1) }
    #expect(one.entries().map(\.pack) == [Self.pack(2)])
    next.release()
  }

  @Test("does not let a writer that released a slot touch it when another has it")
  func givenBack() throws {
    let (one, two) = (try made(), try joined())
    var old: LiveTable.Slot? = try one.claim(Self.pack(1))
    #expect(old != nil)
    let number = old?.number
    old?.release()
    let new = try #require(try one.claim(Self.pack(2)))
    #expect(new.number == number)
    let epoch = new.enter()
    old?.leave(epoch)
    old?.release()
    old = nil
    let entry = try #require(two.entries().first)
    #expect(entry.pack == Self.pack(2) && entry.epoch > 0)
    #expect(try !two.isDead(entry))
    new.leave(epoch)
    new.release()
    #expect(two.entries().isEmpty)
  }

  /// Threads of one process share the locks of the open file. Fails if two can take one slot, or if one that looks for
  /// dead writers gives back the lock of another's slot.
  @Test("gives threads of one process slots of their own, whose locks stay")
  func threads() throws {
    let (one, two) = (try made(), try joined())
    let kept = Mutex<[LiveTable.Slot]>([])
    try together(
      (0..<4).map { thread in
        {
          for number in 0..<150 {
            guard let slot = try one.claim(Self.pack(thread * 1_000 + number)) else {
              throw Unexpected("no slot is left")
            }
            if number % 6 == 0 { kept.withLock { $0.append(slot) } } else { slot.release() }
            for entry in one.entries() { _ = try one.isDead(entry) }
            try one.reap { _ in true }
          }
        }
      })
    let slots = kept.withLock { $0 }
    #expect(slots.count == 100 && Set(slots.map(\.number)).count == 100)
    let entries = two.entries()
    #expect(Set(entries.map(\.slot)) == Set(slots.map(\.number)))
    for entry in entries { #expect(try !two.isDead(entry)) }
  }

  /// V1: fails without the number that is odd while a slot changes hands.
  @Test("is read with name and length of one pack while slots change hands")
  func consistency() throws {
    let (one, two) = (try made(), try joined())
    let isDone = Atomic<Bool>(false)
    let lookCount = Atomic<Int>(0)
    try together([
      {
        defer { isDone.store(true, ordering: .releasing) }
        for number in 1...6_000 {
          guard let slot = try one.claim(Self.pack(100_000 + number)) else { throw Unexpected("no slot") }
          slot.publish(Int64(100_000 + number), isPromised: true)
          slot.release()
        }
      },
      {
        repeat {
          for entry in two.entries() {
            let own = Int64(entry.pack.writer)
            guard entry.published == own || entry.published == Int64(PackHeader.byteCount),
              entry.promised == own || entry.promised == 0
            else { throw Unexpected("\(entry)") }
          }
          lookCount.wrappingAdd(1, ordering: .relaxed)
        } while !isDone.load(ordering: .acquiring)
      },
    ])
    #expect(lookCount.load(ordering: .relaxed) > 0)
    #expect(two.entries().isEmpty)
  }

  @Test("does not show a slot that changes hands, and one left so by a death can be taken")
  func halfChanged() throws {
    let (one, two) = (try made(), try joined())
    let slot = try #require(try one.claim(Self.pack(1)))
    let turn = try words.word(LiveTable.headerWordCount + slot.number * 8 + LiveTable.SlotWord.turn.rawValue)
    #expect(turn % 2 == 0)
    try words.set(slot.number, .turn, turn + 1)
    #expect(two.entries().isEmpty)
    try words.set(slot.number, .turn, turn + 2)
    #expect(two.entries().map(\.pack) == [Self.pack(1)])
    slot.release()
    // Its next owner died after it had made it odd, and before it had written the name.
    let last = try words.word(LiveTable.headerWordCount + slot.number * 8)
    try words.set(slot.number, .turn, last | 1)
    #expect(two.entries().isEmpty)
    let again = try #require(try two.claim(Self.pack(2)))
    #expect(again.number == slot.number)
    #expect(one.entries().map(\.pack) == [Self.pack(2)])
    // One that has its name already, and whose owner lives, cannot be taken.
    let next = try words.word(LiveTable.headerWordCount + slot.number * 8)
    try words.set(slot.number, .turn, next | 1)
    let third = try #require(try one.claim(Self.pack(3)))
    #expect(third.number != slot.number)
    again.release()
    let fourth = try #require(try one.claim(Self.pack(4)))
    #expect(fourth.number == slot.number)
    #expect(two.entries().map(\.pack) == [Self.pack(4), Self.pack(3)])
  }

  enum Harm: String, CaseIterable {
    case missing, empty, short, long, holes, noise, noMark, copy, otherBoot, folder
  }

  @Test(
    "that is not valid is used by no process, and created again by one that is alone",
    arguments: Harm.allCases)
  func invalid(_ harm: Harm) throws {
    let first = try made()
    _ = try #require(try first.claim(Self.pack(1)))
    first.close()
    var boot = "boot"
    let path = temporary.path.appending("live")
    let files = SystemFiles()
    var random = SplitMix64(seed: 3)
    switch harm {
    case .missing: try files.remove(path)
    case .empty: try files.write([], to: path)
    case .short: try files.write(Array(try files.bytes(of: path).dropLast(8)), to: path)
    case .long: try files.write(try files.bytes(of: path) + [0], to: path)
    case .holes:
      // Storing into it could end the process on a full disk.
      let bytes = Array(try files.bytes(of: path).prefix(32))
      try files.remove(path)
      let file = try files.open(path, .create)
      try file.truncate(to: Int64(LiveTable.byteCount))
      try file.write(bytes, at: 0)
      try words.set(.inode, try file.status().inode)
      file.close()
    case .noise: try files.write(random.bytes(LiveTable.byteCount), to: path)
    case .noMark: try words.set(.mark, 1)
    case .copy:
      // Users of the store that it was copied from would share a table with users of this one.
      let copy = temporary.path.appending("copy")
      try files.write(try files.bytes(of: path), to: copy)
      try files.rename(copy, to: path)
    case .otherBoot: boot = "next"
    case .folder:
      try files.remove(path)
      try files.createDirectory(path)
    }
    #expect(try opened(boot: boot) == nil)
    if harm == .folder {
      // What is no file of ours is not removed.
      #expect(throws: BlobStorageError.self) { try opened(isAlone: true) }
      #expect(try files.list(temporary.path) == ["live"])
      return
    }
    let new = try #require(try opened(isAlone: true, boot: boot))
    #expect(new.entries().isEmpty)
    let slot = try #require(try new.claim(Self.pack(2)))
    let other = try #require(try opened(boot: boot))
    slot.publish(99, isPromised: false)
    #expect(other.entries().map(\.published) == [99])
    #expect(try files.list(temporary.path) == ["live"])
  }

  @Test("of another mount is shared with its users, and not trusted by a process that is alone")
  func otherMount() throws {
    let one = try made()
    _ = try #require(try one.claim(Self.pack(1)))
    let two = try #require(try opened(mount: "other"))
    #expect(two.entries().map(\.pack) == [Self.pack(1)])
    let again = try #require(try opened(isAlone: true))
    #expect(again.entries().map(\.pack) == [Self.pack(1)])
    let alone = try #require(try opened(isAlone: true, mount: "other"))
    #expect(alone.entries().isEmpty)
  }

  @Test("that cannot be made leaves nothing behind", arguments: ["allocate", "mapped", "rename"])
  func cannotBeMade(_ failing: String) throws {
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == failing else { return }
      throw .systemCall(call, path: path, errno: Errno.noSpace.rawValue)
    }
    let identity = MediumIdentity(boot: "boot", mount: "mount")
    let error = failure {
      _ = try LiveTable.open(in: temporary.path, files, identity, isAlone: true)
    }
    #expect(error?.code == .noSpace)
    #expect(try SystemFiles().list(temporary.path).isEmpty)
    #expect(try made().entries().isEmpty)
  }

  @Test("may have any numbers in it")
  func hostile() throws {
    var random = SplitMix64.announced()
    let one = try made()
    let noisy: [UInt64] = [0, 1, 63, 64, 1 << 31, 1 << 32, 1 << 62, 1 << 63, .max - 1, .max]
    for _ in 0..<40 {
      for slot in 0..<LiveTable.slotCount {
        for word in 1..<LiveTable.slotWordCount {
          let number = Bool.random(using: &random) ? random.next() : noisy.randomElement(using: &random) ?? 0
          try words.set(LiveTable.headerWordCount + slot * 8 + word, number)
        }
        // Only its first slots in each round, which is enough.
        if slot == 12 { break }
      }
      for entry in one.entries() {
        // None of these lengths has been published.
        #expect(!entry.isValid && entry.published == 0 && entry.promised == 0, "\(entry)")
        #expect(!entry.pack.fileName.isEmpty)
      }
      try one.reap { _ in Bool.random(using: &random) }
    }
    #expect(try one.claim(Self.pack(1)) != nil)
  }

  /// Fails if a slot stays wrong for as long as its writer lives.
  @Test("does not believe a length that was changed, and its writer puts it right at the next look")
  func changed() throws {
    let (one, two) = (try made(), try joined())
    let slot = try #require(try one.claim(Self.pack(1)))
    slot.publish(500, isPromised: true)
    slot.publish(700, isPromised: false)
    let right = one.entries()
    #expect(two.entries() == right && right.map(\.isValid) == [true])
    for number in [0, 64, 500, 699, 701, 1 << 33, 1 << 63, .max] as [UInt64] {
      try words.set(slot.number, .published, number)
      #expect(two.entries().map(\.isValid) == [false], "\(number)")
      let before = two.publishCount
      #expect(one.entries() == right)
      // The others look again.
      #expect(two.publishCount == before + 1)
      #expect(two.entries() == right)
      #expect(one.entries() == right && two.publishCount == before + 1)
    }
    // One bit of a word that was published, or the word of another pack.
    let word = LiveTable.word(700, of: Self.pack(1), isPromised: false)
    for bit in 0..<64 {
      try words.set(slot.number, .published, word ^ 1 << UInt64(bit))
      #expect(two.entries().map(\.isValid) == [false], "bit \(bit)")
    }
    for other in [
      LiveTable.word(700, of: Self.pack(2), isPromised: false),
      LiveTable.word(700, of: Self.pack(1), isPromised: true),
    ] {
      try words.set(slot.number, .published, other)
      #expect(two.entries().map(\.isValid) == [false])
    }
    for other in [LiveTable.SlotWord.turn, .writer, .sequence, .promised, .epoch, .process] {
      try words.set(slot.number, other, 77)
      #expect(two.entries() != right)
      #expect(one.entries() == right)
      #expect(two.entries() == right)
    }
    slot.release()
    #expect(two.entries().isEmpty)
  }

  /// V1: fails if a slot looks as if it changed hands while its writer restores it: a view would lack its tail.
  @Test(
    "has a slot at each store by which its writer puts it right",
    arguments: [LiveTable.SlotWord.published, .promised, .epoch, .writer])
  func restored(_ word: LiveTable.SlotWord) throws {
    let disk = SimulatedDisk()
    let identity = MediumIdentity(boot: "boot", mount: "mount")
    let files = CatalogFiles(disk.process(), nil, nil)
    let one = try #require(try LiveTable.open(in: temporary.path, files, identity, isAlone: true))
    let two = try joined()
    let slot = try #require(try one.claim(Self.pack(1)))
    slot.publish(500, isPromised: true)
    let right = two.entries()
    #expect(right.count == 1)
    try words.set(slot.number, word, 77)
    let seen = Mutex<[Int]>([])
    disk.beforeMutations { (call) throws(BlobStorageError) in
      if call.kind == .store { seen.withLock { $0.append(two.entries().count) } }
    }
    #expect(one.entries() == right)
    disk.beforeMutations(nil)
    let counts = seen.withLock { $0 }
    #expect(!counts.isEmpty && counts.allSatisfy { $0 == 1 }, "\(counts)")
    #expect(two.entries() == right)
    slot.release()
  }

  @Test("says which process has a slot")
  func process() throws {
    let (one, two) = (try made(), try joined())
    let slot = try #require(try one.claim(Self.pack(1)))
    let process = UInt64(ProcessInfo.processInfo.processIdentifier)
    #expect(two.entries().map(\.process) == [process])
    slot.release()
  }

  /// Locks end with the open file, and a mapping keeps that open.
  @Test("holds no lock once it is closed, although its memory is still referenced, and stores nothing more")
  func closed() throws {
    let (one, two) = (try made(), try joined())
    let slot = try #require(try one.claim(Self.pack(1)))
    try one.locked(LiveTable.stripes(nil)) { one.close() }
    let isFree = try ending { () throws -> Bool in
      try two.locked(LiveTable.stripes(nil)) { () throws(BlobStorageError) in true }
    }
    #expect(isFree == true)
    #expect(try two.entries().map { try two.isDead($0) } == [true])
    try two.reap { _ in true }
    let next = try #require(try two.claim(Self.pack(2)))
    #expect(next.number == slot.number)
    next.publish(300, isPromised: false)
    let entries = two.entries()
    #expect(!slot.publish(500, isPromised: true))
    slot.enter()
    slot.release()
    #expect(two.entries() == entries && entries.map(\.published) == [300])
    withExtendedLifetime(one) {}
  }

  @Test("says in which epoch a commit began")
  func epochs() throws {
    let (one, two) = (try made(), try joined())
    let slot = try #require(try one.claim(Self.pack(1)))
    #expect(two.entries().map(\.epoch) == [0])
    let entered = slot.enter()
    #expect(entered > 0)
    #expect(two.entries().map(\.epoch) == [entered])
    #expect(two.beginEpoch() == entered + 1)
    #expect(two.entries().map(\.epoch) == [entered])
    slot.leave(entered)
    #expect(two.entries().map(\.epoch) == [0])
    #expect(slot.enter() == entered + 1)
    #expect(two.entries().map(\.epoch) == [entered + 1])
  }

  /// Fails if gc does not wait for each of several commits under way.
  @Test(
    "says in which epoch the oldest of several commits began, in whatever order they end", arguments: 0..<6)
  func oldestEpoch(_ order: Int) throws {
    let (one, two) = (try made(), try joined())
    let slot = try #require(try one.claim(Self.pack(1)))
    // Two of the same epoch, and one of the next.
    var epochs = [slot.enter(), slot.enter()]
    #expect(two.beginEpoch() == epochs[0] + 1)
    epochs.append(slot.enter())
    #expect(epochs == [epochs[0], epochs[0], epochs[0] + 1])
    var left = epochs.indices.map { $0 }
    for choice in [order % 3, order / 3, 0] {
      #expect(two.entries().map(\.epoch) == [left.map { epochs[$0] }.min()])
      slot.leave(epochs[left.remove(at: choice)])
    }
    #expect(two.entries().map(\.epoch) == [0])
  }

  // MARK: Stripes

  @Test("has the same stripe for the same key, each once and in one order, and the whole range for many keys")
  func stripes() {
    var random = SplitMix64.announced()
    let keys = (0..<200).map { _ in random.bytes(Int.random(in: 1...40, using: &random)) }
    let whole = LiveTable.stripes(nil)
    #expect(whole.count == 1)
    #expect(LiveTable.stripes(keys) == whole)
    #expect(LiveTable.stripes([]).isEmpty)
    var all: Set<Range<Int64>> = []
    for _ in 0..<300 {
      let some = (0..<Int.random(in: 1...16, using: &random)).map { _ in
        keys.randomElement(using: &random) ?? []
      }
      let stripes = LiveTable.stripes(some)
      #expect(stripes == LiveTable.stripes(some.shuffled(using: &random)))
      #expect(zip(stripes, stripes.dropFirst()).allSatisfy { $0.upperBound <= $1.lowerBound })
      #expect(stripes.allSatisfy { $0.count == 1 && whole[0].contains($0.lowerBound) })
      for key in some { #expect(stripes.contains(LiveTable.stripes([key])[0])) }
      all.formUnion(stripes)
    }
    #expect(all.count > 100)
  }

  /// Fails if commits of two processes to one key run beside each other.
  @Test("lets one process at a time go on with a key, and with all keys")
  func turns() throws {
    let tables = [try made(), try joined()]
    let value = Atomic<Int>(0)
    try together(
      tables.map { table in
        {
          for round in 0..<600 {
            let keys: [[UInt8]]? = round % 4 == 0 ? nil : [[1], [UInt8(round % 200 + 2)]]
            try table.locked(LiveTable.stripes(keys)) { () throws(BlobStorageError) in
              // In two steps, so that one beside it would be lost.
              let last = value.load(ordering: .acquiring)
              if round % 8 == 0 { Thread.sleep(forTimeInterval: 0.000_05) }
              value.store(last + 1, ordering: .releasing)
            }
          }
        }
      })
    #expect(value.load(ordering: .acquiring) == 1_200)
    // What is thrown gives the stripes back.
    let thrown = failure {
      try tables[0].locked(LiveTable.stripes(nil)) { () throws(BlobStorageError) -> Void in
        throw BlobStorageError(.cancelled, "")
      }
    }
    #expect(thrown?.code == .cancelled)
    let isFree = try ending { [table = tables[1]] () throws -> Bool in
      try table.locked(LiveTable.stripes([[1]])) { () throws(BlobStorageError) in true }
    }
    #expect(isFree == true)
  }

  /// Fails if commits of a few keys can begin while one of all keys waits: it would wait as long as they overlap.
  @Test("keeps later commits back while one of all keys waits")
  func gate() throws {
    let (first, second, whole) = (try made(), try joined(), try joined())
    let isHeld = Atomic<Bool>(false)
    let isDone = Atomic<Bool>(false)
    @Sendable func begins() -> BlobStorageError? {
      failure { try second.locked(LiveTable.stripes([[2]]), withinSeconds: 0.05) {} }
    }
    try together([
      {
        try first.locked(LiveTable.stripes([[1]])) { () throws(BlobStorageError) in
          isHeld.store(true, ordering: .releasing)
          while !second.isGateClosed { Thread.sleep(forTimeInterval: 0.000_5) }
          #expect(begins()?.code == .busy)
          let isDone = isDone.load(ordering: .acquiring)
          #expect(!isDone)
        }
      },
      {
        while !isHeld.load(ordering: .acquiring) { Thread.sleep(forTimeInterval: 0.000_5) }
        try whole.locked(LiveTable.stripes(nil)) {}
        isDone.store(true, ordering: .releasing)
      },
    ])
    #expect(!second.isGateClosed)
    #expect(begins() == nil)
  }

  /// Fails if a gate that a dead process left closed keeps commits back, or stays closed for ever.
  @Test("lets commits through a gate that a dead process left closed, and one of all keys opens it")
  func deadGate() throws {
    let (table, other) = (try made(), try joined())
    try words.set(.gate, 1)
    for table in [table, other] {
      #expect(failure { try table.locked(LiveTable.stripes([[1]]), withinSeconds: 0.05) {} } == nil)
    }
    #expect(failure { try table.locked(LiveTable.stripes(nil), withinSeconds: 0.05) {} } == nil)
    #expect(!other.isGateClosed)
  }
}

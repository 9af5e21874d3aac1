import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Synchronization
import Testing

@Suite("Sharing a store")
struct SharingTests {
  private let id = SharedFormatTests.storeID

  private func name(_ writer: UInt64, _ sequence: UInt32) -> PackName {
    PackName(writer: writer, sequence: sequence)
  }

  // MARK: Membership

  @Test("a writer registers before it looks, and passes at once what stands then")
  func order() throws {
    let place = SharedPlace()
    let mine = try #require(try place.log.condemn([name(3, 1)], after: Collections(), by: 9))
    let calls = Calls()
    place.objects.setHook { (call) throws(BlobStorageError) in calls.append(call) }
    let (member, collections) = try Membership.join(
      place.objects, storeID: id, writer: 5, process: WriterProcess(machine: "a"))
    #expect(calls.all.first == "put writers/0000000000000005")
    #expect(calls.all.last == "put acks/00000001/0000000000000005")
    #expect(collections == mine)
    #expect(try Membership.writers(place.objects) == [5])
    #expect(try Membership.passed(1, place.objects) == [5])
    try member.leave(publishedSequence: 0)
    #expect(try Membership.writers(place.objects).isEmpty)
    try Membership.removeAcks(before: 2, place.objects)
    #expect(try Membership.passed(1, place.objects).isEmpty)
  }

  @Test("a sign of life changes the registration")
  func life() throws {
    let place = SharedPlace()
    var (member, _) = try Membership.join(
      place.objects, storeID: id, writer: 5, process: WriterProcess(machine: "a"))
    let first = try Membership.registration(of: 5, place.objects, storeID: id)
    member.lifeCount += 1
    try member.register(Collections(), publishedSequence: 0)
    #expect(try Membership.registration(of: 5, place.objects, storeID: id) != first)
    #expect(try Membership.registration(of: 6, place.objects, storeID: id) == nil)
  }

  @Test("acks of earlier condemnations are taken away, and no others")
  func acks() throws {
    let place = SharedPlace()
    let (member, _) = try Membership.join(
      place.objects, storeID: id, writer: 5, process: WriterProcess(machine: "a"))
    for epoch in UInt32(1)...3 { try member.pass(epoch) }
    try Membership.removeAcks(before: 2, place.objects)
    #expect(try Membership.passed(1, place.objects).isEmpty)
    for epoch in UInt32(2)...3 { #expect(try Membership.passed(epoch, place.objects) == [5]) }
  }

  // MARK: Collections

  @Test("of two collectors that condemn at the same time one does, and only the last one removes")
  func twoCollectors() throws {
    let place = SharedPlace()
    let first = try #require(try place.log.condemn([name(3, 1)], after: Collections(), by: 1))
    #expect(try place.log.condemn([name(3, 2)], after: Collections(), by: 2) == nil)
    let second = try #require(try place.log.condemn([name(3, 2)], after: first, by: 2))
    #expect(second.condemned == [name(3, 1), name(3, 2)])
    // The first one slept.
    #expect(try place.log.remove([name(3, 1)], after: first, by: 1) == nil)
    let done = try #require(try place.log.remove(second.condemned, after: second, by: 2))
    #expect(done.condemned.isEmpty && done.removed.contains(name(3, 1)) && !done.isStanding)
    #expect(try place.log.read(after: first) == done)
  }

  @Test("an entry whose answer was lost is one's own")
  func lostEntry() throws {
    var faults = ObjectFaults()
    faults.lostAnswers = 500
    faults.attemptCountMax = 30
    for seed in UInt64(1)...20 {
      let place = SharedPlace(faults, seed: seed)
      let mine = try #require(try place.log.condemn([name(3, 1)], after: Collections(), by: 1))
      #expect(try place.log.remove([name(3, 1)], after: mine, by: 1) != nil, "seed \(seed)")
    }
  }

  @Test("an entry that is missing is noticed")
  func missingEntry() throws {
    let place = SharedPlace()
    let first = try #require(try place.log.condemn([name(3, 1)], after: Collections(), by: 1))
    _ = try place.log.condemn([name(3, 2)], after: first, by: 1)
    place.objects.set("collections/00000001", nil)
    let error = #expect(throws: BlobStorageError.self) { try place.log.read(after: Collections()) }
    #expect(error?.code == .corrupted)
  }

  // MARK: Publishing and fencing

  @Test("a fence is put behind the last pack, removed ones counted, and holds")
  func fencing() throws {
    let place = SharedPlace()
    for sequence in UInt32(1)...3 { #expect(try place.publish(5, sequence) == .published) }
    var removed = RemovedPacks()
    for sequence in UInt32(2)...3 {
      removed.insert(name(5, sequence))
      place.objects.set(SharedNames.pack(name(5, sequence)), nil)
    }
    #expect(try place.fence(5, removed) == 4)
    #expect(try place.publish(5, 4) == .fenced)
    // Another collector's counts as well.
    #expect(try place.fence(5, removed) == 4)
    #expect(try place.fence(6) == 1)
  }

  @Test("a fence put behind what is listed alone holds no writer when packs were removed")
  func fenceByListing() throws {
    for weaknesses in [[], Weaknesses.fencesByListing] {
      let place = SharedPlace()
      for sequence in UInt32(1)...2 { #expect(try place.publish(5, sequence) == .published) }
      // Another collector removes both.
      let both = [name(5, 1), name(5, 2)]
      let mine = try #require(try place.log.condemn(both, after: Collections(), by: 1))
      let done = try #require(try place.log.remove(both, after: mine, by: 1))
      for name in both { try place.objects.delete(SharedNames.pack(name)) }
      _ = try place.fence(5, done.removed, weaknesses)
      #expect(try place.publish(5, 3) == (weaknesses.isEmpty ? .fenced : .published))
    }
  }

  @Test("a pack that comes in between moves the fence back")
  func race() throws {
    let place = SharedPlace()
    place.addPack(5, 1)
    let isDone = Flag()
    place.objects.setHook { (call) throws(BlobStorageError) in
      if call.kind == .put, isDone.isFirst() { place.addPack(5, 2) }
    }
    #expect(try place.fence(5) == 3)
  }

  @Test("a fence takes a name that was taken and is free again, unless a collector has removed its pack")
  func freeAgain() throws {
    for isRemoved in [false, true] {
      let place = SharedPlace()
      let mine = try #require(try place.log.condemn([name(5, 1)], after: Collections(), by: 1))
      let (isPut, isRead) = (Flag(), Flag())
      place.objects.setHook { (call) throws(BlobStorageError) in
        if call.kind == .put, SharedNames.packName(call.name) != nil, isPut.isFirst() { place.addPack(5, 1) }
        guard call.kind == .tail, isRead.isFirst() else { return }
        if isRemoved { _ = try place.log.remove([PackName(writer: 5, sequence: 1)], after: mine, by: 1) }
        place.objects.set(call.name, nil)
      }
      #expect(try place.fence(5) == (isRemoved ? 2 : 1))
      #expect(try place.publish(5, isRemoved ? 2 : 1) == .fenced)
    }
  }

  @Test("a writer that publishes on and on is not fenced")
  func publishesOn() throws {
    let place = SharedPlace()
    place.objects.setHook { (call) throws(BlobStorageError) in
      if call.kind == .put, let pack = SharedNames.packName(call.name) { place.addPack(5, pack.sequence) }
    }
    #expect(try place.fence(5) == nil)
  }

  @Test("a fence under a name that was removed later is none")
  func misplacedFence() throws {
    let place = SharedPlace()
    place.objects.set(SharedNames.pack(name(5, 1)), Fence(name(5, 1), by: 1).encoded(storeID: id))
    place.addPack(5, 2)
    let mine = try #require(try place.log.condemn([name(5, 1)], after: Collections(), by: 1))
    let done = try #require(try place.log.remove([name(5, 1)], after: mine, by: 1))
    let listing = try place.listing()
    #expect(listing.fences.isEmpty && listing.leftovers == [name(5, 1)] && listing.packs.count == 1)
    #expect(try place.fence(5, done.removed) == 3)
  }

  @Test("a pack whose answer was lost is published; another one's is not")
  func lostAnswer() throws {
    var faults = ObjectFaults()
    faults.lostAnswers = 500
    faults.attemptCountMax = 30
    for seed in UInt64(1)...20 { #expect(try SharedPlace(faults, seed: seed).publish(5, 1) == .published) }
    let place = SharedPlace()
    #expect(try place.publish(5, 1, 1) == .published)
    #expect(try place.publish(5, 1, 1) == .published)
    #expect(try place.publish(5, 1, 2) == .foreign)
    let hidden = Flag()
    place.objects.setHook { (call) throws(BlobStorageError) in
      // Deleted between the put and the look, by no collector.
      if call.kind == .tail, hidden.isFirst() { place.objects.set(call.name, nil) }
    }
    #expect(try place.publish(5, 1, 1) == .published)
    #expect(place.objects.peek(SharedNames.pack(name(5, 1))) != nil)
    place.objects.setHook { (call) throws(BlobStorageError) in
      if call.kind == .tail { place.objects.set(call.name, nil) }
      if call.kind == .put { place.addPack(5, 1, 1) }
    }
    #expect(throws: BlobStorageError.self) { try place.publish(5, 1, 1) }
  }

  @Test("a pack that was collected between its put and the look is published, and is not put again")
  func collectedMeanwhile() throws {
    let place = SharedPlace()
    let pack = name(5, 1)
    #expect(try place.publish(5, 1, 1) == .published)
    let mine = try #require(try place.log.condemn([pack], after: Collections(), by: 1))
    let isDone = Flag()
    place.objects.setHook { (call) throws(BlobStorageError) in
      guard call.kind == .tail, isDone.isFirst() else { return }
      _ = try place.log.remove([pack], after: mine, by: 1)
      place.objects.set(call.name, nil)
    }
    #expect(try place.publish(5, 1, 1) == .published)
    #expect(place.objects.peek(SharedNames.pack(pack)) == nil)
  }

  @Test("a pack that differs from the one of its name in the last byte is another")
  func lastByte() throws {
    let place = SharedPlace()
    // More than is compared at once.
    var bytes = [UInt8](repeating: 1, count: 4 << 20 | 1)
    func publish() throws -> Publication.Outcome {
      try Publication.publish(name(5, 1), .bytes(bytes), place.objects, storeID: id)
    }
    #expect(try publish() == .published)
    #expect(try publish() == .published)
    bytes[bytes.count - 1] = 2
    #expect(try publish() == .foreign)
    bytes.removeLast()
    #expect(try publish() == .foreign)
  }

  // MARK: Listing

  @Test("packs are listed again when some were removed meanwhile")
  func removedMeanwhile() throws {
    let place = SharedPlace()
    place.addPack(5, 1)
    let mine = try #require(try place.log.condemn([name(5, 1)], after: Collections(), by: 1))
    let log = place.log
    let listed = Atomic<Int>(0)
    place.objects.setHook { (call) throws(BlobStorageError) in
      guard call.kind == .list else { return }
      // After the packs were listed, the copy comes and the old one goes.
      if call.name == SharedNames.packs { listed.add(1, ordering: .relaxed) }
      guard call.name == SharedNames.collections, listed.load(ordering: .relaxed) == 1 else { return }
      listed.add(1, ordering: .relaxed)
      place.addPack(1, 1)
      _ = try log.remove([PackName(writer: 5, sequence: 1)], after: mine, by: 1)
    }
    let listing = try place.listing()
    #expect(listing.packs.keys.map(\.writer) == [1])
    #expect(listing.leftovers == [name(5, 1)])
  }

  @Test("a pack that a listing has passed over is looked for again before it is called missing")
  func passedOver() throws {
    for weaknesses in [[], Weaknesses.acceptsGaps] {
      let place = SharedPlace()
      for sequence: UInt32 in [1, 3] { place.addPack(5, sequence) }
      let listings = CallCount()
      place.objects.setHook { (call) throws(BlobStorageError) in
        // It came behind the place where the first listing was.
        if call.kind == .list, call.name == SharedNames.packs, listings.next() == 2 { place.addPack(5, 2) }
      }
      let listing = try place.listing(weaknesses)
      #expect(listing.missing == (weaknesses.isEmpty ? [] : [name(5, 2)]))
      #expect(listing.packs.count == (weaknesses.isEmpty ? 3 : 2))
      #expect(listings.value == (weaknesses.isEmpty ? 2 : 1))
    }
  }

  /// A writer that leaves after its last pack was removed puts no end mark.
  @Test("a pack is missing though the log has removed all later packs of its writer")
  func lostBeforeRemoved() throws {
    let place = SharedPlace()
    for sequence in UInt32(1)...2 { place.addPack(5, sequence) }
    place.addPack(6, 1)
    let mine = try #require(try place.log.condemn([name(5, 2)], after: Collections(), by: 1))
    _ = try #require(try place.log.remove([name(5, 2)], after: mine, by: 1))
    place.objects.set(SharedNames.pack(name(5, 2)), nil)
    #expect(try place.listing().missing == [])
    for bytes in [[UInt8](repeating: 7, count: Fence.byteCount), nil] {
      place.objects.set(SharedNames.pack(name(5, 1)), bytes)
      let listing = try place.listing()
      #expect(listing.missing == [name(5, 1)] && listing.fences.isEmpty)
      // The listing of another writer says nothing about it.
      #expect(
        try StoreListing.read(place.objects, storeID: id, known: Collections(), of: 6).missing == [])
    }
  }

  /// Fails if a stray object hides a published pack and all behind it.
  @Test(
    "an object as short as a fence under a published pack's name is none, and that pack is missing",
    arguments: [Fence.byteCount, Fence.endByteCount])
  func noFence(_ byteCount: Int) throws {
    let place = SharedPlace()
    for sequence in UInt32(1)...3 { place.addPack(5, sequence) }
    place.addPack(6, 1)
    #expect(try place.fence(6) == 2)
    let bytes = [UInt8](repeating: 7, count: byteCount)
    place.objects.set(SharedNames.pack(name(5, 2)), bytes)
    var listing = try place.listing()
    #expect(listing.missing == [name(5, 2)] && listing.fences == [6: 2])
    #expect(Set(listing.packs.keys) == [name(5, 1), name(5, 3), name(6, 1)])
    // The last one of its writer, as its registration says.
    place.objects.set(SharedNames.pack(name(5, 3)), bytes)
    listing = try StoreListing.read(
      place.objects, storeID: id, known: Collections(), published: [5: 3])
    #expect(listing.missing == [name(5, 2), name(5, 3)] && listing.fences == [6: 2])
    // The last one of a writer that has left.
    place.addPack(7, 1)
    let end = Fence(name(7, 2), by: nil).encoded(storeID: id)
    place.objects.set(SharedNames.pack(name(7, 2)), end)
    #expect(try place.listing().ended.contains(7))
    place.objects.set(SharedNames.pack(name(7, 1)), bytes)
    listing = try place.listing()
    #expect(listing.missing.contains(name(7, 1)) && listing.fences[7] == 2)
  }

  @Test("every page is asked for, and missing pages are reported")
  func pages() throws {
    var faults = ObjectFaults()
    faults.pageCount = 2
    let place = SharedPlace(faults)
    for sequence in UInt32(1)...5 { place.addPack(5, sequence) }
    #expect(try place.listing().packs.count == 5)
    place.objects.set(SharedNames.pack(name(5, 2)), nil)
    #expect(try place.listing().missing == [name(5, 2)])
    place.objects.set("packs/something else", [1])
    #expect(try place.listing().packs.count == 4)
  }

  @Test("every page of writers, acks, entries and a writer's packs is asked for, too")
  func allPages() throws {
    var faults = ObjectFaults()
    faults.pageCount = 2
    let place = SharedPlace(faults)
    let writers = Array(UInt64(1)...5)
    let members = try writers.map { writer in
      try Membership.join(place.objects, storeID: id, writer: writer, process: WriterProcess(machine: "a"))
        .membership
    }
    #expect(try Membership.writers(place.objects) == writers)
    var collections = Collections()
    for sequence in UInt32(1)...5 {
      collections = try #require(try place.log.condemn([name(9, sequence)], after: collections, by: 7))
    }
    #expect(collections.number == 5 && collections.condemned.count == 5)
    #expect(try place.log.read(after: Collections()) == collections)
    for epoch: UInt32 in [9, 15, 16] { for member in members { try member.pass(epoch) } }
    for epoch: UInt32 in [9, 15, 16] { #expect(try Membership.passed(epoch, place.objects) == Set(writers)) }
    try Membership.removeAcks(before: 16, place.objects)
    for epoch: UInt32 in [9, 15] { #expect(try Membership.passed(epoch, place.objects).isEmpty) }
    #expect(try Membership.passed(16, place.objects) == Set(writers))
    // The first put goes right behind the last pack: eight tries would not do for a later page.
    for sequence in UInt32(1)...20 { place.addPack(9, sequence) }
    #expect(try place.fence(9) == 21)
    for sequence in UInt32(1)...5 { place.addPack(8, sequence) }
    #expect(try place.fence(8) == 6)
    #expect(try place.listing().fences == [9: 21, 8: 6])
  }

  @Test("a listing beside which packs are removed again and again is given up, and is there afterwards")
  func removedAgain() throws {
    let place = SharedPlace()
    place.addPack(6, 1)
    let log = place.log
    let count = CallCount()
    let collections = Mutex(Collections())
    place.objects.setHook { (call) throws(BlobStorageError) in
      guard call.kind == .list, call.name == SharedNames.packs else { return }
      let pack = PackName(writer: 5, sequence: UInt32(count.next()))
      let known = collections.withLock { $0 }
      guard let mine = try log.condemn([pack], after: known, by: 1),
        let done = try log.remove([pack], after: mine, by: 1)
      else { return }
      collections.withLock { $0 = done }
    }
    let error = #expect(throws: BlobStorageError.self) { try place.listing() }
    #expect(error?.code == .busy)
    #expect(2...1_000 ~= count.value)
    place.objects.setHook(nil)
    #expect(try place.listing().packs.keys.map { $0 } == [name(6, 1)])
  }

  @Test("what is missing is told in time and memory that do not grow with it")
  func farAway() throws {
    let place = SharedPlace()
    place.addPack(5, 1)
    place.addPack(5, .max)
    place.addPack(4, 3)
    let first = try #require(try place.log.condemn([name(4, 2), name(5, 3)], after: Collections(), by: 1))
    _ = try #require(try place.log.remove(first.condemned, after: first, by: 1))
    let missing = try place.listing().missing
    #expect(missing.count == StoreListing.missingCountMax)
    #expect(missing.prefix(4) == [name(4, 1), name(5, 2), name(5, 4), name(5, 5)])
  }
}

/// True once.
private final class Flag: Sendable {
  private let isTaken = Atomic<Bool>(false)
  func isFirst() -> Bool { !isTaken.exchange(true, ordering: .relaxed) }
}

private final class Calls: Sendable {
  private let calls = Mutex<[String]>([])
  var all: [String] { calls.withLock { $0 } }
  func append(_ call: ObjectCall) { calls.withLock { $0.append("\(call)") } }
}

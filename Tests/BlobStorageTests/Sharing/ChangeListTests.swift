import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("Changes")
struct ChangeListTests {
  private func number(_ name: String) -> UInt32? { SharedNames.changeNumber(name) }
  private func numbers(_ store: SimulatedObjectStore) -> [UInt32] {
    store.objects.keys.compactMap { SharedNames.changeNumber($0) }.sorted()
  }

  // MARK: The list

  @Test("are numbered without gaps, also when answers are lost or puts come twice, and each is there once")
  func lostAnswers() throws {
    var faults = ObjectFaults()
    (faults.lostAnswers, faults.doubledPuts, faults.attemptCountMax) = (300, 300, 30)
    for seed in UInt64(1)...20 {
      let place = SharedPlace(faults, seed: seed)
      var last: UInt32 = 0
      for sequence in UInt32(1)...9 {
        last = try place.changes.append(Change(5, sequence..<sequence + 1)) { last }
        #expect(last == sequence, "seed \(seed)")
      }
      place.objects.settle()
      #expect(numbers(place.objects) == Array(1...9), "seed \(seed)")
    }
  }

  @Test("of two machines follow each other")
  func twoMachines() throws {
    let place = SharedPlace()
    let once = Once()
    let changes = place.changes
    place.objects.setHook { (call) throws(BlobStorageError) in
      guard call.kind == .put else { return }
      once.run {
        for sequence in UInt32(1)...3 { _ = try changes.append(Change(6, sequence..<sequence + 1)) { 0 } }
      }
    }
    #expect(try changes.append(Change(5, 1..<2)) { 0 } == 4)
    place.objects.setHook(nil)
    // One that knows nothing goes on behind the last.
    #expect(try changes.append(Change(7, 1..<2)) { 0 } == 5)
    #expect(try changes.last(after: 0) == 5)
    #expect(try changes.last(after: 5) == 5)
  }

  @Test("go past objects that are no changes, wherever those are")
  func strays() throws {
    let place = SharedPlace()
    for name in ["changes/", "changes/00000002", "changes/ffffffff", "changes/readme"] {
      place.objects.set(name, [1, 2, 3])
    }
    for expected: UInt32 in [1, 3, 4] {
      #expect(try place.changes.append(Change(5, expected..<expected + 1)) { 0 } == expected)
    }
    // A change of another store, and one under another's number.
    let other = [UInt8](repeating: 9, count: 16)
    place.objects.set("changes/00000005", Change(5, 1..<2).encoded(number: 5, storeID: other))
    place.objects.set("changes/00000006", place.objects.peek("changes/00000001"))
    #expect(try place.changes.last(after: 0) == 4)
  }

  @Test("that say what cannot be are none")
  func impossible() throws {
    for change in [Change(5, 0..<1), Change(5, 1..<1), Change(5, 1..<5_000)] {
      let bytes = change.encoded(number: 1, storeID: SharedFormatTests.storeID)
      let error = failure { _ = try Change(bytes, number: 1, storeID: SharedFormatTests.storeID) }
      #expect(error?.code == .corrupted)
    }
    let end = Change(5, 1..<1, isLast: true)
    let bytes = end.encoded(number: 1, storeID: SharedFormatTests.storeID)
    #expect(try Change(bytes, number: 1, storeID: SharedFormatTests.storeID) == end)
  }

  @Test("are deleted up to a number, with what came late under theirs")
  func removal() throws {
    var faults = ObjectFaults()
    faults.pageCount = 2
    let place = SharedPlace(faults)
    for sequence in UInt32(1)...9 { _ = try place.changes.append(Change(5, sequence..<sequence + 1)) { 0 } }
    try place.changes.remove(upTo: 4)
    #expect(numbers(place.objects) == Array(5...9))
    place.objects.set("changes/00000002", [1])
    try place.changes.remove(upTo: 6)
    #expect(numbers(place.objects) == Array(7...9))
  }

  // MARK: Machines

  private func changeCount(_ machines: SharedMachines) -> UInt32 { numbers(machines.store).last ?? 0 }

  @Test("that another program deleted cost a listing, and no version", arguments: [1, 2, 3] as [UInt32])
  func deleted(_ number: UInt32) throws {
    let machines = try SharedMachines()
    let (reader, writer) = (try machines.engine("reader"), try machines.engine("writer"))
    for key in ["a", "b", "c"] { _ = try writer.put(key, Array(key.utf8), PutOptions()) }
    machines.store.set(SharedNames.change(number), nil)
    if number == 3 { _ = try machines.engine("another").put("d", Array("d".utf8), PutOptions()) }
    try reader.extend()
    let keys = try reader.keys("", after: nil, limit: 9).map(\.key)
    // Behind the last one there is nothing to miss it by until the next comes.
    #expect(keys.starts(with: ["a", "b"]))
    #expect(keys.contains("c") == (number < 3))
    var expected: [String: [UInt8]] = ["a": [97], "b": [98], "c": [99]]
    if number == 3 { expected["d"] = [100] }
    try machines.check(expected, "on a new machine")
  }

  /// A process that dies between storing a pack and naming it. Returns its bytes.
  private func die(_ machines: SharedMachines, _ random: inout SplitMix64) throws -> [UInt8] {
    let bytes = random.bytes(20_000)
    let client = machines.store.client { (call) throws(BlobStorageError) in
      if call.kind == .put, call.name.hasPrefix(SharedNames.changes) { throw BlobStorageError.simulatedStop }
    }
    var dying: Engine? = try machines.engine("dying", client)
    #expect(failure { _ = try dying?.put("late", bytes, PutOptions()) } != nil)
    client.kill()
    dying = nil
    #expect(machines.names("packs/").contains { machines.store.peek($0)?.count ?? 0 > 20_000 })
    return bytes
  }

  @Test("are put for a pack whose process died before, by the next on its machine or by a collector")
  func died() throws {
    var random = SplitMix64.announced()
    for (isLost, weaknesses) in [(false, []), (true, []), (true, Weaknesses.skipsUnnamedPacks)] {
      let machines = try SharedMachines()
      let reader = try machines.engine("reader")
      let other = try machines.engine("other", weaknesses: weaknesses)
      _ = try other.put("gone", random.bytes(20_000), PutOptions())
      _ = try other.delete(["gone"], .durable)
      let bytes = try die(machines, &random)
      try reader.extend()
      #expect(try reader.data("late", nil) == nil)
      if isLost {
        #expect(try other.collectGarbage(SharedMachines.everything).obstacles == [])
        #expect(machines.names("writers/").count == 1)
      } else {
        try machines.engine("dying").close()
      }
      try reader.extend()
      #expect(try reader.data("late", nil) == (weaknesses.isEmpty ? Data(bytes) : nil))
      try machines.check(["late": bytes], "on a new machine")
    }
  }

  @Test("need not name a pack yet for what others share of it to be read")
  func sharedUnnamed() throws {
    var random = SplitMix64.announced()
    let machines = try SharedMachines()
    let reader = try machines.engine("reader")
    let bytes = try die(machines, &random)
    #expect(try machines.engine("new").put("b", bytes, PutOptions()).newByteCount == 0)
    try reader.extend()
    #expect(try reader.data("b", nil) == Data(bytes))
    #expect(try reader.verify().damaged == [])
  }

  @Test("are not deleted while a writer that lives may take their numbers for free ones")
  func deletedEarly() throws {
    var random = SplitMix64.announced()
    for weaknesses in [[], Weaknesses.deletesChangesEarly] {
      let machines = try SharedMachines()
      let once = Once()
      let collector = try machines.engine("one", weaknesses: weaknesses, keptChangeCount: 0)
      let reader = try machines.engine("reader")
      let noise = random.bytes(20_000)
      let living = Living()
      let client = machines.store.client { (call) throws(BlobStorageError) in
        guard call.kind == .put, call.name.hasPrefix(SharedNames.changes) else { return }
        once.run {
          // Its request is on its way, and others are quicker.
          _ = try collector.put("gone", noise, PutOptions())
          _ = try collector.delete(["gone"], .durable)
          // It knows the changes, so it does not list packs afterwards.
          try reader.extend()
          let error = failure {
            _ = try collector.collectGarbage(SharedMachines.everything) { progress in
              if progress.phase == "waiting" { living.engine?.renewRegistrations() }
            }
          }
          #expect(error?.code == .busy)
          try reader.extend()
        }
      }
      let engine = try machines.engine("living", client)
      living.engine = engine
      _ = try engine.put("kept", Array("text".utf8), PutOptions())
      #expect(once.isDone)
      try reader.extend()
      #expect(try reader.data("kept", nil) == (weaknesses.isEmpty ? Data("text".utf8) : nil))
      living.engine = nil
    }
  }

  @Test("under numbers that were deleted are not believed by a machine that was away")
  func late() throws {
    var random = SplitMix64.announced()
    for weaknesses in [[], Weaknesses.trustsOldChanges] {
      let machines = try SharedMachines()
      let one = try machines.engine("one")
      _ = try one.put("first", Array("first".utf8), PutOptions())
      let old = changeCount(machines)
      try machines.engine("reader").close()
      _ = try one.put("second", Array("second".utf8), PutOptions())
      _ = try one.put("gone", random.bytes(20_000), PutOptions())
      _ = try one.delete(["gone"], .durable)
      try one.close()
      // Just the change of the second is deleted.
      let collector = try machines.engine("two", keptChangeCount: changeCount(machines) - old - 1)
      #expect(try collector.collectGarbage(SharedMachines.everything).deletedPackCount > 0)
      try collector.close()
      #expect(machines.store.peek(SharedNames.change(old)) == nil)
      #expect(machines.store.peek(SharedNames.change(old + 1)) == nil)
      #expect(machines.store.peek(SharedNames.change(old + 2)) != nil)
      // A put of a fenced writer arrives.
      let late = Change(one.writer.writerID, 1..<2).encoded(number: old + 1, storeID: one.header.storeID)
      machines.store.set(SharedNames.change(old + 1), late)
      let reader = try machines.engine("reader", weaknesses: weaknesses)
      #expect(try reader.data("second", nil) == (weaknesses.isEmpty ? Data("second".utf8) : nil))
      try machines.check(["first": Array("first".utf8), "second": Array("second".utf8)], "on a new machine")
    }
  }
}

/// The engine that a hook of its own requests needs. Unchecked: one thread.
private final class Living: @unchecked Sendable { var engine: Engine? }

import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@testable import BlobStorageSharing

@Suite("The log of collections")
struct CollectionLogTests {
  private let id = SharedFormatTests.storeID
  private let objects = SimulatedObjectStore()
  private var log: CollectionLog { CollectionLog(objects, storeID: id, checkpointInterval: 8) }

  /// Collections of one pack each, of a writer each. Returns each state.
  private func collections(_ count: UInt64, after first: Collections = Collections()) throws -> [Collections]
  {
    var states = [first]
    for number in 1...count {
      let name = PackName(writer: UInt64(first.number) + number, sequence: 1)
      let condemned = try #require(try log.condemn([name], after: states[states.count - 1], by: 1))
      states += [condemned, try #require(try log.remove([name], after: condemned, by: 1))]
    }
    return states
  }

  @Test("can be kept by two processes at once")
  func keptAtOnce() throws {
    let temporary = try TemporaryFolder()
    let folder = FilePath(temporary.path.string)
    try SystemFiles().createDirectory(folder.appending("incoming"))
    let states = try collections(1).map { $0.encoded(.checkpoint, storeID: id) }
    let other = LogFile(.checkpoint, in: folder, SystemFiles(), storeID: id)
    let calls = CallCount()
    let files = HookedFiles { (call, _) throws(BlobStorageError) in
      if call == "rename", calls.next() == 1 { try other.keep(states[2]) }
    }
    let file = LogFile(.checkpoint, in: folder, files, storeID: id)
    try file.keep(states[1])
    #expect(calls.value == 1)
    #expect(try file.read()?.bytes == states[1])
    #expect(try SystemFiles().list(folder.appending("incoming")) == [])
  }

  private func numbers(_ prefix: String) -> [Int] {
    objects.objects.keys.filter { $0.hasPrefix(prefix) }
      .compactMap { Int($0.dropFirst(prefix.count), radix: 16) }.sorted()
  }

  @Test("has entries that do not grow, and one checkpoint that replaces those before it")
  func checkpoints() throws {
    let states = try collections(50)
    #expect(numbers(SharedNames.checkpoints) == [96])
    #expect(numbers(SharedNames.collections) == [96, 97, 98, 99, 100])
    for number in 97...100 {
      let bytes = try #require(objects.peek(SharedNames.collection(UInt32(number))))
      #expect(bytes.count <= 44 + 16 + 20)
    }
    let last = try #require(states.last)
    #expect(last.number == 100 && last.removed.ranges.count == 50)
    // Whatever a machine knows, it comes to know the same.
    for known in states { #expect(try log.read(after: known) == last, "after \(known.number)") }
    let before = objects.counts[.list, default: 0]
    #expect(try log.read(after: last) == last)
    #expect(objects.counts[.list, default: 0] == before + 1)
  }

  @Test("passes over an entry and a checkpoint that none could follow")
  func greatestNumber() throws {
    let last = try #require(try collections(10).last)
    var state = Collections()
    state.number = .max
    for kind in [SharedObject.Kind.collection, .checkpoint] {
      let name = kind == .collection ? SharedNames.collection(.max) : SharedNames.checkpoint(.max)
      let bytes = state.encoded(kind, storeID: id)
      #expect(try objects.put(name, .bytes(bytes), ifAbsent: true) == .stored)
    }
    #expect(try log.read(after: Collections()) == last)
    #expect(try collections(1, after: last).last?.number == last.number + 2)
  }

  @Test("takes no entry from a collector that slept while its number was taken and deleted")
  func sleeper() throws {
    let states = try collections(20)
    let last = try #require(states.last)
    #expect(numbers(SharedNames.collections) == [40])
    for known in states.dropLast() {
      let name = PackName(writer: 99, sequence: 1)
      #expect(try log.condemn([name], after: known, by: 7) == nil, "after \(known.number)")
      if known.isStanding, known.number < 39 {
        #expect(try log.remove(known.condemned, after: known, by: 1) == nil, "after \(known.number)")
      }
    }
    // Its objects are in the bucket, and mean nothing to any machine.
    #expect(numbers(SharedNames.collections).count > 30)
    for known in states { #expect(try log.read(after: known) == last, "after \(known.number)") }
    let more = try collections(4, after: last)
    #expect(numbers(SharedNames.collections) == [48])
    for known in states + more { #expect(try log.read(after: known) == more.last) }
  }

  @Test("is read without its oldest entries, while a listing shows some that are being deleted")
  func deletedMeanwhile() throws {
    let states = try collections(3)
    let (log, last) = (log, try #require(states.last))
    let once = Once()
    objects.setHook { (call) throws(BlobStorageError) in
      guard call.kind == .get, call.name == SharedNames.collection(2) else { return }
      once.run { _ = try collections(2, after: last) }
    }
    let found = try log.read(after: Collections())
    objects.setHook(nil)
    #expect(once.isDone)
    #expect(found.number == 10)
    #expect(found.removed.ranges.count == 5)
  }

  @Test("an object that is no entry and has the name of the next one stops only collections, which name it")
  func malformed() throws {
    let last = try #require(try collections(3).last)
    for bytes in [[], [7], [UInt8](repeating: 7, count: 100)] as [[UInt8]] {
      let name = SharedNames.collection(7)
      objects.set(name, bytes)
      #expect(try log.read(after: Collections()) == last)
      #expect(try log.read(after: last) == last)
      let error = failure { _ = try log.condemn([PackName(writer: 9, sequence: 1)], after: last, by: 1) }
      #expect(error?.code == .corrupted)
      #expect(error?.message.contains("The object \(name) in") == true)
      #expect(error?.message.contains("delete it") == true)
      objects.set(name, nil)
    }
    #expect(try collections(1, after: last).last?.number == 8)
  }

  @Test("of a later build stops a machine")
  func laterBuild() throws {
    let last = try #require(try collections(1).last)
    var bytes = try #require(objects.peek(SharedNames.collection(2)))
    bytes[8] = 9
    objects.set(SharedNames.collection(3), bytes)
    #expect(failure { _ = try log.read(after: last) }?.code == .unsupportedFormat)
  }

  @Test("is kept in the state folder: another process reads what came since")
  func copy() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    func process(_ body: (Engine) throws -> Void) throws {
      let engine = try place.engine("one", inline: true)
      try body(engine)
      try engine.close()
    }
    for _ in 0..<3 {
      try process { engine in
        _ = try engine.put("a", random.bytes(10_000), PutOptions())
        _ = try engine.collectGarbage(SharedMachines.everything)
      }
    }
    #expect(place.objects.names.filter { $0.hasPrefix(SharedNames.collections) }.count == 4)
    let asked = CallCount()
    place.objects.beforeRequests { request, name in
      if request == "get", name.hasPrefix(SharedNames.collections) { _ = asked.next() }
    }
    try process { (engine) throws in
      let keys = try engine.keys("", after: nil, limit: 10).map(\.key)
      #expect(keys == ["a"])
    }
    #expect(asked.value == 0)
    // What is damaged, or of another store, is read anew.
    try Data([1, 2, 3]).write(to: URL(filePath: place.statePath("one") + "/log"))
    try process { (engine) throws in
      let keys = try engine.keys("", after: nil, limit: 10).map(\.key)
      #expect(keys == ["a"])
    }
    #expect(asked.value == 4)
  }

  @Test("what killed probes have left goes with a later collection, and no other's")
  func trials() throws {
    let names = ["probe/000000040000abcd-0", "probe/000000050000abcd-3", "probe/other", "probe/4-0"]
    for name in names { objects.set(name, [1]) }
    try ConditionalPutProbe.removeTrials(before: 5, on: objects, below: "probe")
    #expect(objects.objects.keys.sorted() == Array(names.dropFirst()).sorted())
    #expect(try ConditionalPutProbe(isInline: true).run(on: objects, below: "probe", number: 4) == .holds)
    let made = CallCount()
    objects.setHook { (call) throws(BlobStorageError) in
      if call.kind == .put, call.name.hasPrefix("probe/00000004") { _ = made.next() }
      if call.kind == .delete { throw BlobStorageError(.io, "It was killed.") }
    }
    #expect(throws: BlobStorageError.self) {
      try ConditionalPutProbe(isInline: true).run(on: objects, below: "probe", number: 4)
    }
    objects.setHook(nil)
    #expect(made.value > 0)
    #expect(objects.objects.keys.count == 4)
    try ConditionalPutProbe.removeTrials(before: 5, on: objects, below: "probe")
    #expect(objects.objects.keys.count == 3)
  }
}

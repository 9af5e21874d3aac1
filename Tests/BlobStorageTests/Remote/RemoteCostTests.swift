import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("Requests")
struct RemoteCostTests {
  /// A machine that has caught up, and nothing of the packs' chunks.
  private func reader(_ place: RemotePlace, _ machine: String) throws -> Engine {
    let engine = try place.engine(machine, inline: true)
    place.objects.forgetCounts()
    return engine
  }

  @Test("are one for a range of 64 KiB that was not read before")
  func coldRange() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(20 << 20)
    // Of several threads the one that is done first appends first: neighbours may come to lie too far apart for one.
    let writer = try place.engine("writer", inline: true)
    _ = try writer.put("blob", bytes, PutOptions())
    try writer.close()
    let engine = try reader(place, "reader")
    let blob = try #require(try engine.openBlob("blob", nil))
    // The lists of the manifest are fetched once each.
    for start in stride(from: 0, to: Int64(bytes.count), by: 1 << 20) { _ = try blob.read(start..<start + 1) }
    var counts: [Int] = []
    for mebibyte in 0..<20 {
      // Far enough from all that was read before: between parts that are there already it takes two.
      let start = mebibyte << 20 + Int.random(in: 300_000..<650_000, using: &random)
      place.objects.forgetCounts()
      let read = try blob.read(Int64(start)..<Int64(start + 65_536))
      #expect(Array(read) == Array(bytes[start..<start + 65_536]))
      counts.append(place.objects.count)
    }
    #expect(counts.contains(1))
    #expect(counts.allSatisfy { $0 <= 1 }, "\(counts)")
    // What was read once costs nothing the next time.
    let start = Int64(5 << 20)
    _ = try blob.read(start..<start + 65_536)
    place.objects.forgetCounts()
    _ = try blob.read(start..<start + 65_536)
    #expect(place.objects.count == 0)
  }

  @Test("are two for each pack that is imported, and few for what is read in order")
  func wholeBlobs() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let writer = try place.engine("writer", packByteCount: 16 << 20)
    try writer.writer.join()
    place.objects.forgetCounts()
    let bytes = random.bytes(48 << 20)
    _ = try writer.put("blob", bytes, .relaxed)
    try writer.close()
    // The pack and its change; one more for the end mark.
    #expect(place.objects.count(of: "put") == place.packNames.count * 2 + 1)
    #expect(place.packNames.count <= 4)
    // Its registration goes with the last.
    #expect(place.objects.count == place.packNames.count * 2 + 2)
    let engine = try reader(place, "reader")
    #expect(try engine.data("blob", nil) == Data(bytes))
    #expect(place.objects.count <= 30)
    #expect(place.objects.gotByteCount < bytes.count * 5 / 4)
    // Memory does not grow with the blob: no answer is longer than a request may ask for.
    #expect(place.objects.longestGetByteCount <= 9 << 20)
  }

  @Test("to catch up are one listing, and with new packs one more, and two or three for each pack")
  func catchingUp() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace(pageCount: 4)
    let writer = try place.engine("writer")
    let engine = try place.engine("reader")
    for index in 0..<5 { _ = try writer.put("key \(index)", random.bytes(100_000), PutOptions()) }
    _ = try writer.put("long", random.bytes(3 << 20), PutOptions())
    place.objects.forgetCounts()
    #expect(try engine.extend().newPackCount == 6)
    // Two pages of changes, and a look that no collector has deleted any meanwhile.
    #expect(place.objects.count(of: "list") == 3)
    #expect(place.objects.count(of: "tail") == 6)
    #expect((6...7).contains(place.objects.count(of: "get")))
    place.objects.forgetCounts()
    #expect(try engine.extend().newPackCount == 0)
    #expect(place.objects.count == 1)
    // A catalog is rebuilt from what is here.
    try engine.catalog.rebuild(because: nil)
    #expect(place.objects.count(of: "get") + place.objects.count(of: "tail") == 0)
    #expect(try engine.keys("", after: nil, limit: 10).count == 6)
  }

  @Test("of a get are two when nothing has changed, and follow the changes, however many packs there are")
  func warmGet() throws {
    let machines = try SharedMachines()
    // Daily a tenth of it, with pages of a tenth.
    let isWhole = ProcessInfo.processInfo.environment["BLOB_STORAGE_SOAK_SECONDS"] != nil
    let (pageCount, changeCount) = isWhole ? (1_000, 2_500) : (100, 250)
    machines.store.faults.pageCount = pageCount
    func get(_ machine: String) throws -> [ObjectCallKind: Int] {
      let before = machines.store.counts
      let engine = try machines.engine(machine)
      #expect(try engine.data("kept", nil) == Data("text".utf8))
      try engine.close()
      return machines.store.counts.merging(before) { $0 - $1 }
    }
    let writer = try machines.engine("writer")
    var number = 0
    func put(_ count: Int) throws {
      for _ in 0..<count {
        _ = try writer.put("key \(number % 50)", Array("value \(number)".utf8), PutOptions())
        number += 1
      }
    }
    _ = try writer.put("kept", Array("text".utf8), PutOptions())
    // What each machine knows now is what it has when it comes back.
    _ = try get("many")
    try put(changeCount - 10)
    _ = try get("ten")
    try put(10)
    _ = try get("none")
    try writer.close()
    for index in UInt64(0)..<(isWhole ? 1_000_000 : 10_000) {
      machines.store.set(SharedNames.pack(PackName(writer: 0xf << 60 | index, sequence: 1)), [1])
    }
    let none = try get("none")
    #expect(none[.get] == 1 && none[.list] == 1 && none[.put, default: 0] + none[.tail, default: 0] == 0)
    let ten = try get("ten")
    #expect(ten[.list, default: 0] <= 2 && ten[.get] == 11 && ten[.tail] == 10)
    let many = try get("many")
    #expect(many[.list, default: 0] <= 1 + 3 && many[.get] == changeCount + 1 && many[.tail] == changeCount)
    for (count, kinds) in [(0, none), (10, ten), (changeCount, many)] {
      let kinds = kinds.filter { $0.value > 0 }.map { "\($0.value) \($0.key)" }.sorted()
      print("a get after \(count) changes: \(kinds.joined(separator: ", "))")
    }
  }

  @Test("of several that put at once are shared")
  func groupCommit() throws {
    let place = try RemotePlace()
    let engine = try place.engine("writer")
    try engine.writer.join()
    let objects = place.objects
    objects.forgetCounts()
    // The first is held up until all have committed.
    objects.beforeRequests { request, _ in
      guard request == "put" else { return }
      while (try? engine.keys("", after: nil, limit: 100).count) != 40 {
        Thread.sleep(forTimeInterval: 0.001)
      }
      objects.beforeRequests(nil)
    }
    let threads = (0..<40).map { index in
      let done = DispatchSemaphore(value: 0)
      Thread {
        #expect(throws: Never.self) {
          try engine.put("key \(index)", Array("value \(index)".utf8), PutOptions())
        }
        done.signal()
      }.start()
      return done
    }
    for done in threads { done.wait() }
    // Packs and their changes.
    #expect(1...6 ~= objects.count(of: "put"))
    try engine.close()
    #expect(try place.engine("reader").keys("", after: nil, limit: 100).count == 40)
  }

  @Test("bring back what is damaged on this machine's disk", arguments: ["parts", "whole"])
  func damagedRanges(_ kind: String) throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(600_000)
    let writer = try place.engine("writer")
    _ = try writer.put("blob", bytes, PutOptions())
    let engine = try kind == "parts" ? place.engine("reader") : writer
    #expect(try engine.data("blob", nil) == Data(bytes))
    let folder = place.statePath(kind == "parts" ? "reader" : "writer") + "/ranges"
    let names = try FileManager.default.contentsOfDirectory(atPath: folder)
    #expect(!names.isEmpty)
    for name in names {
      let url = URL(filePath: folder).appending(path: name)
      let length = try #require(FileManager.default.attributesOfItem(atPath: url.path)[.size] as? Int)
      let handle = try FileHandle(forWritingTo: url)
      for offset in stride(from: 70_000, to: length - 1, by: 30_000) {
        try handle.seek(toOffset: UInt64(offset))
        try handle.write(contentsOf: Data(repeating: 0x5a, count: 40))
      }
      try handle.close()
    }
    #expect(try engine.data("blob", nil) == Data(bytes))
    try FileManager.default.removeItem(atPath: folder)
    #expect(try engine.data("blob", nil) == Data(bytes))
  }

  @Test("are no more for what several threads read at the same time than for one of them")
  func sameTime() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(60_000)
    _ = try place.engine("writer").put("blob", bytes, PutOptions())
    let alone = try reader(place, "alone")
    #expect(try alone.data("blob", nil) == Data(bytes))
    let count = place.objects.count
    #expect(count > 0)
    let engine = try reader(place, "reader")
    place.objects.beforeRequests { request, _ in
      // Long enough for the others to want the same.
      if request == "get" { Thread.sleep(forTimeInterval: 0.3) }
    }
    let threads = (0..<4).map { _ in
      let done = DispatchSemaphore(value: 0)
      Thread {
        #expect(throws: Never.self) {
          let data = try engine.data("blob", nil)
          #expect(data == Data(bytes))
        }
        done.signal()
      }.start()
      return done
    }
    for done in threads { done.wait() }
    place.objects.beforeRequests(nil)
    #expect(place.objects.count == count)
  }

  @Test("stay few when the cache is too small, and the cache stays below its limit")
  func smallCache() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let writer = try place.engine("writer", packByteCount: 8 << 20)
    for index in 0..<12 { _ = try writer.put("\(index)", random.bytes(8 << 20), .relaxed) }
    try writer.close()
    let engine = try place.engine("reader", cacheByteLimit: 64 << 20)
    for index in 0..<12 { #expect(try engine.data("\(index)", nil)?.count == 8 << 20) }
    let kept = try SystemFiles().allocatedByteCount(below: FilePath(place.statePath("reader") + "/ranges"))
    #expect(kept <= 64 << 20)
    #expect(kept > 16 << 20)
  }

  @Test("are none for what was just read, also where less room was asked for than reading needs")
  func leastRoom() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    _ = try place.engine("writer").put("blob", random.bytes(300_000), PutOptions())
    let engine = try place.engine("reader", cacheByteLimit: 0, inline: true)
    #expect(try engine.data("blob", nil)?.count == 300_000)
    place.objects.forgetCounts()
    #expect(try engine.data("blob", nil)?.count == 300_000)
    #expect(place.objects.count == 0)
  }

  #if os(Linux)
    @Test("keep no pack open that was removed to make room")
    func room() throws {
      var random = SplitMix64.announced()
      let place = try RemotePlace()
      let engine = try place.engine("writer", packByteCount: 8 << 20, cacheByteLimit: 64 << 20)
      for index in 0..<12 {
        _ = try engine.put("\(index)", random.bytes(8 << 20))
        try engine.synchronize()
        #expect(try engine.data("\(index)", nil)?.count == 8 << 20)
      }
      let ranges = place.statePath("writer") + "/ranges/"
      let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
      }
      #expect(open.contains { $0.hasPrefix(ranges) })
      #expect(open.filter { $0.hasPrefix(ranges) && $0.hasSuffix(" (deleted)") } == [])
      withExtendedLifetime(engine) {}
    }
  #endif

  @Test("of a chunk that is damaged in its pack leave the rest of the pack where it is, and come once")
  func damagedInItsPack() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let one = try place.engine("one")
    let bytes = random.bytes(2 << 20)
    _ = try one.put("long", bytes, PutOptions())
    let name = place.packNames[0]
    place.objects.objects[name]?[1 << 20] ^= 1
    let engine = try place.engine("reader", inline: true)
    let blob = try #require(try engine.openBlob("long", nil))
    func read() -> Int {
      place.objects.forgetCounts()
      for start in stride(from: Int64(0), to: 2 << 20, by: 100_000) {
        do {
          let part = try blob.read(start..<start + 100_000)
          #expect(Array(part) == Array(bytes[Int(start)..<min(Int(start) + 100_000, bytes.count)]))
        } catch {
          #expect(error.code == .corrupted)
        }
      }
      return place.objects.count
    }
    _ = read()
    #expect(read() == 0)
  }
}

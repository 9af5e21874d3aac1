import BlobStorage
import BlobStorageCache
import BlobStorageSharing
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Damage of a store of objects")
struct RemoteDamageTests {
  /// A store with three blobs in a pack each, by their digests and packs, and a machine that has read all of it.
  private struct Lab {
    let place: RemotePlace
    let bytes: [[UInt8]]
    var packs: [String] = []
    var digests: [BlobDigest] = []

    init(_ random: inout SplitMix64) throws {
      place = try RemotePlace()
      // One of a chunk, one of several, one that compresses.
      bytes = [
        random.bytes(9_000), random.bytes(400_000), Array(repeating: 7, count: 30_000) + random.bytes(2_000),
      ]
      let writer = try place.engine("writer")
      for (index, bytes) in bytes.enumerated() {
        digests.append(try writer.put("\(index)", bytes, PutOptions()).version.digest)
        packs.append(try #require(place.packNames.first { !packs.contains($0) }))
      }
      try writer.close()
    }

    func engine() throws -> Engine { try place.engine("reader") }
    func all(_ engine: Engine) throws -> [Data?] { try bytes.indices.map { try engine.data("\($0)", nil) } }
  }

  @Test(
    "in what a machine keeps of packs is no damage of the store, and heals", arguments: ["writer", "reader"])
  func kept(_ machine: String) throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.place.engine(machine)
    _ = try lab.all(engine)
    try engine.close()
    for folder in ["ranges", "footers"] {
      let path = lab.place.statePath(machine) + "/" + folder
      let names = try FileManager.default.contentsOfDirectory(atPath: path)
      #expect(!names.isEmpty)
      for name in names {
        let url = URL(filePath: "\(path)/\(name)")
        var bytes = try Data(contentsOf: url)
        for index in stride(from: 100, to: bytes.count, by: 777) { bytes[index] ^= 1 }
        try bytes.write(to: url)
      }
    }
    let again = try lab.place.engine(machine)
    let targetPlace = try CopyPlace(isRemote: false)
    let target = try targetPlace.engine()
    #expect(try runCopy(again, to: target).damaged == [])
    #expect(try lab.all(target) == lab.bytes.map { Data($0) })
    #expect(try again.verify().damaged == [])
    #expect(try again.repair().damaged == [])
    #expect(try lab.all(again) == lab.bytes.map { Data($0) })
  }

  @Test("in the lengths that a machine keeps of packs is passed over, also where the checksum is right")
  func keptLengths() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let state = lab.place.statePath("writer")
    let names = try FileManager.default.contentsOfDirectory(atPath: state + "/footers")
    #expect(!names.isEmpty)
    for name in names {
      let url = URL(filePath: "\(state)/footers/\(name)")
      var bytes = Array(try Data(contentsOf: url).dropLast(4))
      withUnsafeBytes(of: Int64.min.littleEndian) { bytes.replaceSubrange(0..<8, with: $0) }
      let checksum = CRC32C.checksum(bytes.span.bytes)
      withUnsafeBytes(of: checksum.littleEndian) { bytes += Array($0) }
      try Data(bytes).write(to: url)
    }
    try FileManager.default.removeItem(atPath: state + "/catalog")
    let again = try lab.place.engine("writer")
    #expect(try lab.all(again) == lab.bytes.map { Data($0) })
    #expect(try again.verify().damaged == [])
  }

  @Test("is not what a power cut leaves of a machine's own packs: they are read where they were published")
  func tornByPowerCut() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let state = URL(filePath: lab.place.statePath("writer"))
    // The names are there, and nothing that was not synced: no footers, and packs that are empty behind their headers.
    for name in try FileManager.default.contentsOfDirectory(atPath: state.path + "/footers") {
      try Data().write(to: state.appending(path: "footers/\(name)"))
    }
    for name in try FileManager.default.contentsOfDirectory(atPath: state.path + "/ranges") {
      let url = state.appending(path: "ranges/\(name)")
      let bytes = try Data(contentsOf: url)
      try (bytes.prefix(64) + Data(count: max(bytes.count - 64, 0))).write(to: url)
    }
    try FileManager.default.removeItem(at: state.appending(path: "catalog"))
    let again = try lab.place.engine("writer", bootIdentity: "second")
    #expect(try lab.all(again) == lab.bytes.map { Data($0) })
    #expect(try again.verify().damaged == [])
  }

  @Test("is not what a full disk leaves of a machine's own packs: they are read where they were published")
  func fullDisk() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let name = try #require(SharedNames.packName(lab.packs[0]))
    let disk = SimulatedDisk()
    let files = disk.process()
    for folder in ["state", "state/packs", "state/footers", "state/incoming", "state/ranges"] {
      try files.createDirectory(FilePath("/\(folder)"))
    }
    let backend = RemoteBackend(
      objects: lab.place.objects, storeID: try lab.place.storeID, folder: "/state",
      asideFolder: "/state/aside",
      files: files, cacheByteLimit: 1 << 30)
    // As it stands after a power cut: as long as it was, and empty.
    let byteCount = try #require(lab.place.objects.objects[lab.packs[0]]?.count)
    try files.write([UInt8](repeating: 0, count: byteCount), to: FilePath("/state/packs/\(name.fileName)"))
    try backend.settle(name)
    disk.limit(byteCount: 0)
    let file = try #require(try backend.openPack(name))
    defer { file.close() }
    // There is no room for its footer.
    for folder in ["footers", "incoming"] { #expect(try files.list(FilePath("/state/\(folder)")) == []) }
    let outcome = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { _ in }
    #expect(outcome.isSealed && outcome.gaps.isEmpty)
    #expect(try file.read(byteCount: byteCount, at: 0) == lab.place.objects.objects[lab.packs[0]])
  }

  @Test(
    "is not what the medium cannot read of a machine's own packs: they are read where they were published",
    arguments: [false, true])
  func unreadableCopy(isOpen: Bool) throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let name = try #require(SharedNames.packName(lab.packs[0]))
    let disk = SimulatedDisk()
    let files = disk.process()
    for folder in ["state", "state/packs", "state/footers", "state/incoming", "state/ranges"] {
      try files.createDirectory(FilePath("/\(folder)"))
    }
    let backend = RemoteBackend(
      objects: lab.place.objects, storeID: try lab.place.storeID, folder: "/state",
      asideFolder: "/state/aside",
      files: files, cacheByteLimit: 1 << 30)
    let bytes = try #require(lab.place.objects.objects[lab.packs[0]])
    try files.write(bytes, to: FilePath("/state/packs/\(name.fileName)"))
    try backend.settle(name)
    try backend.openPack(name)?.close()
    let open = isOpen ? try backend.openPack(name) : nil
    disk.plan(Fault(.read, errno: .ioError, isPermanent: true))
    let file = try #require(try open ?? backend.openPack(name))
    defer { file.close() }
    #expect(try file.read(byteCount: bytes.count, at: 0) == bytes)
  }

  @Test("is not what another machine removes while it is verified")
  func removedMeanwhile() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.engine()
    let collector = try lab.place.engine("collector")
    try engine.close()
    try lab.place.removeFooters("reader")
    let again = try lab.engine()
    try lab.place.removeFooters("reader")
    let objects = lab.place.objects
    let isDone = Atomic(false)
    objects.beforeRequests { request, name in
      // The listing has it, and so has the catalog.
      guard request == "tail", name == lab.packs[1], !isDone.exchange(true, ordering: .relaxed) else {
        return
      }
      #expect(throws: Never.self) {
        _ = try RemoteCopy.records(of: lab.packs[1], in: lab.place, to: collector)
        try RemoteCopy.remove(lab.packs[1], in: lab.place)
      }
    }
    #expect(try again.verify().damaged == [])
    let wasDone = isDone.load(ordering: .relaxed)
    #expect(wasDone)
    #expect(try lab.all(again) == lab.bytes.map { Data($0) })
  }

  @Test(
    "of a pack is found by verify, whatever a machine keeps of it, with the pack's name", arguments: 0..<3)
  func object(_ index: Int) throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.engine()
    #expect(try lab.all(engine) == lab.bytes.map { Data($0) })
    let name = try #require(PackName(fileName: String(lab.packs[index].dropFirst(6))))
    lab.place.objects.objects[lab.packs[index]]?[1_000] ^= 1
    let report = try engine.verify()
    #expect(report.damaged.map(\.pack) == ["\(name)"])
    #expect(report.damaged.first?.keys == ["\(index)"])
    // By the structure alone it is not seen.
    #expect(try engine.verify(.structure).damaged == [])

    let repaired = try engine.repair()
    #expect(repaired.damaged.map(\.pack) == ["\(name)"])
    #expect(repaired.setAside == [])
    #expect(repaired.unreadable.map(\.key) == ["\(index)"])
    _ = try engine.put("again", lab.bytes[index], PutOptions())
    #expect(try engine.verify().damaged == [])
    let other = try lab.place.engine("other")
    #expect(try lab.all(other) == lab.bytes.map { Data($0) })
    #expect(try other.verify().damaged == [])
  }

  @Test(
    "of a pack's header or footer is found by verify, though the machine keeps both", arguments: [20, -20])
  func ends(_ place: Int) throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.engine()
    let name = try #require(SharedNames.packName(lab.packs[0]))
    let byteCount = try #require(lab.place.objects.objects[lab.packs[0]]?.count)
    let index = place < 0 ? byteCount + place : place
    lab.place.objects.objects[lab.packs[0]]?[index] ^= 1
    #expect(try engine.verify().damaged.map(\.pack) == ["\(name)"])
    #expect(try lab.all(engine) == lab.bytes.map { Data($0) })
  }

  @Test("in what a machine keeps is none of the store for a later reader that finds it either")
  func twoReaders() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let name = try #require(SharedNames.packName(lab.packs[0]))
    let engine = try lab.place.engine("writer")
    let file = try #require(try engine.backend.openPack(name) as? RemoteFile)
    let range: Range<Int64> = 64..<8_000
    var readCount = 0
    let found = try file.readingAfresh(range) { () throws(BlobStorageError) -> Int in
      readCount += 1
      guard readCount == 1 else { return readCount }
      // Another thread was first.
      file.dropKept(range)
      throw BlobStorageError(.corrupted, "It is damaged.")
    }
    #expect(found == 2)
    try engine.close()
  }

  @Test("that an answer had once is none of the store: what was kept of it is fetched again")
  func wrongOnce() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.engine()
    let (objects, pack, count) = (lab.place.objects, lab.packs[0], CallCount())
    objects.beforeRequests { request, name in
      // Wrong in the first answer, right again in the second.
      if request == "get", name == pack, count.next() <= 2 { objects.objects[pack]?[4_000] ^= 1 }
    }
    #expect(try engine.data("0", nil) == Data(lab.bytes[0]))
    #expect(count.next() > 2, "the first answer was asked for")
    #expect(try engine.verify().damaged == [])
    try engine.close()
  }

  @Test(
    "that an answer had once in a footer is none of the store: the footer is fetched again",
    arguments: [false, true])
  func wrongFooterOnce(_ isRebuilt: Bool) throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    if isRebuilt {
      try lab.engine().close()
      try lab.place.removeFooters("reader")
    }
    let known = isRebuilt ? try lab.engine() : nil
    let (objects, pack, count) = (lab.place.objects, lab.packs[0], CallCount())
    let byteCount = try #require(objects.objects[pack]?.count)
    objects.beforeRequests { request, name in
      // Wrong in the first answer, right again in the second.
      guard name == pack, count.next() <= 2 else { return }
      objects.objects[pack]?[byteCount - PackFooter.Trailer.byteCount - 10] ^= 1
    }
    let engine = try known ?? lab.engine()
    if isRebuilt { try engine.catalog.rebuild(because: nil) }
    #expect(try lab.all(engine) == lab.bytes.map { Data($0) })
    #expect(count.next() > 2)
    #expect(try engine.verify().damaged == [])
    try engine.close()
  }

  @Test("of a chunk is none for a reader of another pack, whichever is damaged")
  func secondCopy() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(9_000)
    let one = try place.engine("one")
    _ = try one.put("first", bytes, .relaxed)
    _ = try place.engine("two").put("second", bytes, PutOptions())
    try one.close()
    #expect(place.packNames.count == 2)
    // Which of the two a catalog points at is a matter of chance.
    for name in place.packNames {
      place.objects.objects[name]?[1_000] ^= 1
      let reader = try place.engine("reader of the other than \(name.dropFirst(6))")
      func check() {
        for key in ["first", "second"] {
          #expect((try? reader.data(key, nil)) == Data(bytes), "\(key)")
        }
      }
      check()
      // What the other copy stands in for stays in its pack until that goes.
      #expect(try reader.verify().damaged == [])
      #expect(try reader.repair().unreadable == [])
      check()
      place.objects.objects[name]?[1_000] ^= 1
    }
  }

  @Test("of a chunk is remembered when the catalog is made anew, so that a put heals it")
  func rebuilt() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.engine()
    lab.place.objects.objects[lab.packs[0]]?[1_000] ^= 1
    #expect(throws: BlobStorageError.self) { try engine.data("0", nil) }
    try engine.catalog.rebuild(because: nil)
    _ = try engine.put("again", lab.bytes[0], PutOptions())
    #expect(try engine.data("0", nil) == Data(lab.bytes[0]))
  }

  @Test("of a manifest heals by a put after a repair")
  func manifest() throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.engine()
    let offset = try #require(
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.manifestRow(lab.digests[1])?.payloadOffset
      })
    lab.place.objects.objects[lab.packs[1]]?[Int(offset)] ^= 1
    #expect(try engine.verify().damaged.count == 1)
    #expect(try engine.repair().unreadable.map(\.key) == ["1"])
    _ = try engine.put("again", lab.bytes[1], PutOptions())
    #expect(try engine.data("1", nil) == Data(lab.bytes[1]))
    #expect(try lab.all(lab.place.engine("other")) == lab.bytes.map { Data($0) })
  }

  @Test("of the whole: a pack that was deleted or cut is reported by its name", arguments: [true, false])
  func gone(_ isDeleted: Bool) throws {
    var random = SplitMix64.announced()
    let lab = try Lab(&random)
    let engine = try lab.engine()
    #expect(try lab.all(engine) == lab.bytes.map { Data($0) })
    let name = try #require(PackName(fileName: String(lab.packs[1].dropFirst(6))))
    if isDeleted {
      try lab.place.objects.delete(lab.packs[1])
    } else {
      lab.place.objects.objects[lab.packs[1]]?.removeLast(300_000)
    }
    let damaged = try engine.verify().damaged
    #expect(!damaged.isEmpty && damaged.allSatisfy { $0.pack == "\(name)" })
    if isDeleted { #expect(try engine.verify(.structure).damaged.map(\.pack) == ["\(name)"]) }
    let repaired = try engine.repair()
    #expect(repaired.unreadable.map(\.key) == ["1"])
    _ = try engine.put("1", lab.bytes[1], PutOptions())
    #expect(try lab.all(engine) == lab.bytes.map { Data($0) })
  }

  @Test("is none where a cache would be: that is refused in a sentence")
  func cache() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one")
    let error = #expect(throws: BlobStorageError.self) {
      try CacheCore(
        engine: engine, prefix: "", limits: CacheLimits(byteLimit: 1 << 30), memoryByteLimit: 0,
        durability: .relaxed)
    }
    #expect(error?.message.contains("cannot be a cache") == true)
  }
}

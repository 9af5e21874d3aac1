import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("What a process that died has left in its spool")
struct RemoteSpoolTests {
  private let place: RemotePlace
  private var spool: String { place.statePath("one") + "/packs" }

  init() throws { place = try RemotePlace() }

  /// Leaves three packs. The second refers to what lies in the first, and the third to nothing.
  private func die(_ random: inout SplitMix64) throws -> [String] {
    let shared = random.bytes(60_000)
    var dying: Engine? = try place.engine("one", packByteCount: 10_000, inline: true, bootIdentity: "first")
    _ = try dying?.put("published", Array("text".utf8), PutOptions())
    place.objects.setDown(true)
    _ = try dying?.put("a", shared, .relaxed)
    _ = try dying?.put("b", shared, .relaxed)
    _ = try dying?.put("c", random.bytes(20_000), .relaxed)
    _ = try dying?.put("d", random.bytes(20_000), .relaxed)
    dying = nil
    place.objects.setDown(false)
    return try FileManager.default.contentsOfDirectory(atPath: spool).sorted()
  }

  @Test("is never more than a few packs: a put that finds no room for another says why")
  func room() throws {
    var random = SplitMix64.announced()
    let engine = try place.engine("one", packByteCount: 10_000, inline: true)
    _ = try engine.put("published", Array("text".utf8), PutOptions())
    place.objects.setDown(true)
    var refused: BlobStorageError?
    var count = 0
    while count < 10, refused == nil {
      refused = failure { _ = try engine.put("k\(count)", random.bytes(20_000), .relaxed) }
      if refused == nil { count += 1 }
    }
    #expect(refused?.code == .io)
    #expect((2..<6).contains(count))
    #expect(try FileManager.default.contentsOfDirectory(atPath: spool).count < 6)
    place.objects.setDown(false)
    _ = try engine.put("after", random.bytes(20_000), .relaxed)
    try engine.synchronize()
    #expect(try place.engine("two").keys("", after: nil, limit: 20).count == count + 2)
    try engine.close()
  }

  private func cut(_ name: String, to byteCount: (FilePath, Int64) throws -> Int64) throws {
    let file = try SystemFiles().open(FilePath(spool).appending(name), .readWrite)
    defer { file.close() }
    try file.truncate(to: byteCount(file.path, file.status().byteCount))
  }

  /// Where the footer of a sealed pack begins.
  private func footerOffset(_ name: String) throws -> Int64 {
    let file = try SystemFiles().open(FilePath(spool).appending(name), .read)
    defer { file.close() }
    let pack = try #require(PackName(fileName: name))
    let scanner = try PackScanner(file: file, name: pack, codecs: CodecPool())
    return try #require(try scanner.trailer()).footerOffset
  }

  private func keys(_ machine: String) throws -> [String] {
    let engine = try place.engine(machine)
    #expect(try engine.verify().damaged == [])
    return try engine.keys("", after: nil, limit: 10).map(\.key)
  }

  @Test(
    "is published up to a pack that a power cut has torn, and nothing behind it",
    arguments: ["second", ""], [false, true])
  func powerCut(_ bootIdentity: String, _ isKilledAgain: Bool) throws {
    var random = SplitMix64.announced()
    let names = try die(&random)
    #expect(names.count == 3)
    try cut(names[0]) { _, byteCount in byteCount / 2 }
    if isKilledAgain {
      // It is sealed then, and looks like any other.
      place.objects.trouble(Array(repeating: .refused, count: 20))
      _ = try? place.engine("one", inline: true, bootIdentity: bootIdentity)
      place.objects.trouble([])
    }
    let next = try place.engine("one", inline: true, bootIdentity: bootIdentity)
    #expect(try next.keys("", after: nil, limit: 10).map(\.key) == ["published"])
    #expect(try keys("two") == ["published"])
    #expect(try next.verify().damaged == [])
  }

  @Test(
    "is published though another process that opens the folder sets aside what is torn at the same time",
    arguments: ["lock", "createDirectory"])
  func setAsideMeanwhile(_ moment: String) throws {
    var random = SplitMix64.announced()
    let names = try die(&random)
    try cut(names[0]) { _, byteCount in byteCount / 2 }
    let (spool, aside) = (FilePath(spool), FilePath(place.statePath("one")).appending("set-aside"))
    let isOther = Atomic<Bool>(true)
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == moment, [names[0], "set-aside"].contains(path.lastComponent?.string),
        isOther.exchange(false, ordering: .relaxed)
      else { return }
      // The other process has listed the same packs, and was faster.
      try SystemFiles().createDirectory(aside)
      for name in names.dropFirst() {
        try SystemFiles().rename(spool.appending(name), to: aside.appending(name))
      }
    }
    let next = try place.engine("one", inline: true, bootIdentity: "second", files: files)
    let isLeft = isOther.load(ordering: .relaxed)
    #expect(!isLeft)
    #expect(try next.keys("", after: nil, limit: 10).map(\.key) == ["published"])
    #expect(try keys("two") == ["published"])
    try next.close()
  }

  @Test(
    "hides nothing that was published before a power cut tore it, also while another process adopts it",
    arguments: [true, false])
  func tornBesideAdoption(_ isRecorded: Bool) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    var dying: Engine? = try place.engine("one", inline: true, bootIdentity: "first")
    _ = try dying?.put("published", bytes, .relaxed)
    let name = try #require(try FileManager.default.contentsOfDirectory(atPath: spool).first)
    let url = URL(filePath: "\(spool)/\(name)")
    let spooled = try Data(contentsOf: url)
    try dying?.synchronize()
    #expect(place.packNames.count == 1)
    let members = place.statePath("one") + "/members"
    let member = try #require(try FileManager.default.contentsOfDirectory(atPath: members).first)
    dying = nil
    // The power cut brings back the file that had left the spool.
    try spooled.prefix(spooled.count / 2).write(to: url)
    if !isRecorded {
      try FileManager.default.removeItem(atPath: place.statePath("one") + "/catalog")
      try place.removeFooters("one")
    }
    let adopting = try SystemFiles().open(FilePath("\(members)/\(member)"), .readWrite)
    #expect(try adopting.lock(.exclusive, wait: false))
    let engine = try place.engine("one", inline: true, bootIdentity: "second")
    #expect(try engine.keys("", after: nil, limit: 10).map(\.key) == ["published"])
    #expect(try engine.data("published", nil) == Data(bytes))
    adopting.close()
    try engine.close()
    #expect(try keys("one") == ["published"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: spool) == [])
  }

  @Test("and is stored already, as a change says, is adopted without a rebuild of the catalog")
  func storedBefore() throws {
    var dying: Engine? = try place.engine("one", inline: true)
    _ = try dying?.put("first", Array("text".utf8), PutOptions())
    try dying?.extend()
    _ = try dying?.put("second", Array("more".utf8), .relaxed)
    // Pack and change arrive, and the process never learns that of the change.
    place.objects.trouble([.doubled, .answerLost, .refused])
    let refusal = failure { try dying?.synchronize() }
    #expect(refusal?.code == .io)
    #expect(place.packNames.count == 2)
    let generation = dying?.catalog.generation
    dying = nil
    let engine = try place.engine("one", inline: true)
    #expect(engine.catalog.generation == generation)
    #expect(try engine.data("second", nil) == Data("more".utf8))
    #expect(try FileManager.default.contentsOfDirectory(atPath: spool) == [])
    try engine.close()
    #expect(try keys("two") == ["first", "second"])
  }

  @Test("is published whole where the machine went on, though a pack has no footer yet")
  func kill() throws {
    var random = SplitMix64.announced()
    let names = try die(&random)
    let end = try footerOffset(names[0])
    try cut(names[0]) { _, _ in end }
    // Its catalog would know more than one that was killed before the footer.
    try FileManager.default.removeItem(atPath: place.statePath("one") + "/catalog")
    _ = try place.engine("one", inline: true, bootIdentity: "first")
    #expect(try keys("two") == ["a", "b", "c", "d", "published"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: spool) == [])
    // No machine waits for the dead one.
    let members = place.statePath("one") + "/members"
    #expect(try FileManager.default.contentsOfDirectory(atPath: members) == [])
    #expect(place.objects.names.filter { $0.hasPrefix("writers/") } == [])
  }

  @Test("is published though what was published before it has been collected since")
  func behindRemoved() throws {
    var dying: Engine? = try place.engine("one", inline: true, bootIdentity: "first")
    _ = try dying?.put("gone", Array("text".utf8), PutOptions())
    _ = try dying?.put("left", Array("more".utf8), .relaxed)
    dying = nil
    try RemoteCopy.remove(place.packNames[0], in: place)
    _ = try place.engine("one", inline: true, bootIdentity: "first")
    #expect(place.packNames.count == 1)
    #expect(try keys("two") == ["left"])
  }

  @Test("is published though the object of what was published before it was deleted since")
  func behindLost() throws {
    var dying: Engine? = try place.engine("one", inline: true, bootIdentity: "first")
    _ = try dying?.put("lost", Array("text".utf8), PutOptions())
    _ = try dying?.put("left", Array("more".utf8), .relaxed)
    dying = nil
    place.objects.objects[place.packNames[0]] = nil
    _ = try place.engine("one", inline: true, bootIdentity: "first")
    #expect(place.packNames.count == 1)
    let other = try place.engine("two", inline: true)
    #expect(try other.data("left", nil) == Data("more".utf8))
    #expect(try other.losses().lostPacks.count == 1)
  }

  @Test("and could not be published when the folder was opened is published later, by itself")
  func laterBeat() throws {
    var random = SplitMix64.announced()
    #expect(try die(&random).count == 3)
    place.objects.trouble(Array(repeating: .refused, count: 20))
    let engine = try place.engine("one", inline: true, bootIdentity: "first")
    #expect(place.packNames.count == 1)
    place.objects.trouble([])
    engine.runPeriodicWork()
    #expect(place.packNames.count == 4)
    try engine.close()
  }

  @Test("and is locked when the folder is opened is published later, by itself")
  func lockedPack() throws {
    var random = SplitMix64.announced()
    let names = try die(&random)
    let file = try SystemFiles().open(FilePath(spool).appending(names[0]), .readWrite)
    #expect(try file.lock(.exclusive, wait: false))
    let engine = try place.engine("one", inline: true, bootIdentity: "first")
    #expect(place.packNames.count == 1)
    file.close()
    engine.runPeriodicWork()
    #expect(place.packNames.count == 4)
    try engine.close()
  }

  @Test("is published though the registration of its writer is damaged")
  func damagedRegistration() throws {
    var random = SplitMix64.announced()
    #expect(try die(&random).count == 3)
    let registered = try #require(place.objects.names.first { $0.hasPrefix(SharedNames.writers) })
    place.objects.objects[registered] = [1, 2, 3]
    _ = try place.engine("one", inline: true, bootIdentity: "first")
    #expect(try keys("two") == ["a", "b", "c", "d", "published"])
    #expect(place.objects.names.filter { $0.hasPrefix(SharedNames.writers) } == [])
  }

  @Test("and was published leaves it without a request")
  func publishedBefore() throws {
    let machines = try SharedMachines()
    var dying: Engine? = try machines.engine("one")
    _ = try dying?.put("a", Array("text".utf8), PutOptions())
    dying = nil
    let pack = try #require(machines.names("packs/").first)
    let path = machines.temporary.path.appending("one").appending(pack).string
    try Data(try #require(machines.store.peek(pack))).write(to: URL(filePath: path))
    let client = machines.store.client { (call) throws(BlobStorageError) in
      guard call.name.hasPrefix(SharedNames.writers) else { return }
      throw BlobStorageError(.io, "The object store does not answer.")
    }
    let engine = try machines.engine("one", client)
    #expect(!FileManager.default.fileExists(atPath: path))
    #expect(try engine.data("a", nil) == Data("text".utf8))
  }

  @Test(
    "half made is removed by the next opening",
    arguments: ["incoming/a", "packs/b", "members/0000000000000009"])
  func halfMade(_ name: String) throws {
    try place.engine("one").close()
    let path = place.statePath("one") + "/\(name).new"
    try Data([1]).write(to: URL(filePath: path))
    let engine = try place.engine("one")
    #expect(!FileManager.default.fileExists(atPath: path))
    try engine.close()
  }

  @Test("and waits to be published keeps the catalog from being called clean")
  func waiting() throws {
    var random = SplitMix64.announced()
    _ = try die(&random)
    func state() throws -> String {
      try String(contentsOfFile: place.statePath("one") + "/catalog/state", encoding: .utf8)
    }
    place.objects.trouble(Array(repeating: .refused, count: 50))
    let engine = try place.engine("one", inline: true, bootIdentity: "first")
    do { try engine.close() } catch {}
    // Nothing of it is on the medium: a power cut may take it, and the catalog would know of it still.
    #expect(try !state().contains(" clean"))
    place.objects.trouble([])
    try place.engine("one", inline: true, bootIdentity: "first").close()
    #expect(try state().contains(" clean"))
  }

  @Test("and cannot be published now does not prevent opening the store, and synchronizing reports it")
  func fullEngine() throws {
    var random = SplitMix64.announced()
    #expect(try die(&random).count == 3)
    place.objects.trouble(Array(repeating: .refused, count: 20))
    let log = LogRecorder()
    let engine = try place.engine("one", inline: true, bootIdentity: "first", log: log)
    #expect(log.count(of: "The object store does not answer.") > 0)
    #expect(try engine.keys("", after: nil, limit: 10).count == 5)
    #expect(try engine.data("a", nil)?.count == 60_000)
    let error = #expect(throws: BlobStorageError.self) { try engine.synchronize() }
    #expect(error?.message == "The object store does not answer.")
    #expect(place.packNames.count == 1)
    place.objects.trouble([])
    try engine.synchronize()
    #expect(place.packNames.count == 4)
    #expect(try keys("two") == ["a", "b", "c", "d", "published"])
    try engine.close()
    #expect(place.objects.names.filter { $0.hasPrefix("writers/") } == [])
  }
}

import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What a repair must not lose of a pack that it cannot leave as it is.
@Suite("A repair of a damaged pack", .serialized)
struct RepairTests {
  /// Flips a bit of the payload that begins with these bytes.
  private static func damage(_ lab: Lab, _ name: String, _ payload: Data) throws {
    let path = LostPackTests.packs.appending(name)
    let bytes = try DamageTests.bytes(lab, path)
    let place = try #require(Data(bytes).range(of: payload)).lowerBound
    try DamageTests.change(lab, path) { $0[place + 5] ^= 1 }
  }

  /// Repairs copies of a store, each cut before another change of the disk; the last repair is whole.
  ///
  /// - Parameters:
  ///   - cuts: the power cuts to try.
  ///   - whole: is called with what that one reports.
  ///   - after: is called after each, once as after a kill and once as after a power cut, without a catalog.
  /// - Returns: how many there were.
  private static func cutEverywhere(
    _ store: Lab, _ cuts: [Cut] = [.dropAll], whole: (RepairReport) throws -> Void,
    after: (Engine, String) throws -> Void
  ) throws -> Int {
    var isDone = false
    var number = 0
    while !isDone {
      number += 1
      let lab = try store.copy()
      let engine = try lab.open()
      lab.disk.stop(beforeMutation: lab.disk.mutationCount + number)
      do {
        let report = try engine.repair()
        isDone = true
        try whole(report)
      } catch {
        guard number < 500 else { throw error }
      }
      lab.disk.heal()
      for next in [lab] + (try cuts.map { cut in try lab.afterPowerCut { cut.apply($0) } }) {
        next.restart(with: try CatalogFolder())
        try next.session { try after($0, "cut before call \(number)") }
      }
    }
    return number
  }

  /// Fails if a repair writes down a change that another process makes meanwhile before that change is on the medium.
  @Test(
    "takes no version away by a relaxed change that another process makes meanwhile and a power cut undoes")
  func changedMeanwhile() throws {
    let lab = try Lab()
    let other = try lab.open()
    _ = try other.put("k", .data(noise(1, 300)), PutOptions())
    try other.catalog.settle()
    let pack = try #require(try other.catalog.packRows().first).row.name.fileName
    let process = lab.disk.process()
    let engine = try lab.open(process)
    let openCount = Mutex(0)
    let isChanged = Mutex(false)
    lab.disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.process == process.number, call.detail.contains(pack) else { return }
      if call.kind == .open { openCount.withLock { $0 += 1 } }
      // First it looks for the pack's own name, and then it reads the packs to compare them with the catalog.
      guard call.kind == .read, openCount.withLock({ $0 }) == 2, !isChanged.withLock({ $0.exchange(true) })
      else { return }
      _ = try other.put("k", .data(noise(2, 300)), PutOptions(durability: .relaxed))
      try other.catalog.settle()
    }
    _ = try engine.repair()
    lab.disk.beforeCalls(nil)
    #expect(isChanged.withLock { $0 })
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == noise(1, 300) || data == noise(2, 300))
      let damaged = try engine.verify().damaged
      #expect(damaged == [])
    }
  }

  @Test("can be cut at every call, by a kill and by a power cut, and loses nothing that was whole")
  func cut() throws {
    let whole = try Lab()
    try whole.session { try whole.put($0, [("old", noise(5, 200))]) }
    let first = try #require(try LostPackTests.names(whole).first)
    try whole.session { engine in
      try whole.put(engine, [("lost", noise(1, 200)), ("a", noise(2, 200)), ("b", noise(3, 5_000))])
      try whole.delete(engine, ["old"])
    }
    let second = try #require(try LostPackTests.names(whole).first { $0 != first })
    try Self.damage(whole, second, noise(1, 200))
    let count = try Self.cutEverywhere(whole) { report in
      #expect(report.setAside.count == 1 && report.damaged.count == 1 && report.keyCount == 3)
    } after: { engine, moment in
      for (key, data) in [("a", noise(2, 200)), ("b", noise(3, 5_000))] {
        let read = try engine.data(key, nil)
        #expect(read == data, "\(key), \(moment)")
      }
      let old = try engine.version("old", nil)
      #expect(old == nil, "\(moment)")
    }
    #expect(count > 5)
  }

  @Test(
    "gives packs whose files were exchanged or renamed their names back, cut at every call, and loses nothing",
    arguments: [false, true])
  func misnamed(isExchanged: Bool) throws {
    let whole = try Lab()
    let values = [("a", noise(1, 200)), ("b", noise(2, 5_000)), ("c", noise(3, 9_000))]
    for value in values { try whole.session { try whole.put($0, [value]) } }
    let paths = try LostPackTests.names(whole).sorted().map { LostPackTests.packs.appending($0) }
    let other = LostPackTests.packs.appending("0123456789abcdef-00000007.pack")
    try whole.disk.rename(paths[0], to: other)
    if isExchanged {
      try whole.disk.rename(paths[1], to: paths[0])
      try whole.disk.rename(other, to: paths[1])
    }
    let count = try Self.cutEverywhere(whole, [.dropAll, .newest(1)]) { report in
      #expect(report.setAside == [] && report.damaged == [])
      #expect(report.unreadable == [] && report.keyCount == 3)
    } after: { engine, moment in
      let report = try engine.repair()
      #expect(report.setAside == [] && report.unreadable == [], "\(moment)")
      // A rebuilt catalog takes the wrong name for a pack that is lost, and says so until that is accepted.
      if !isExchanged { _ = try engine.repair(acceptsLosses: true) }
      let verified = try engine.verify()
      #expect(verified.damaged == [], "\(moment)")
      for (key, data) in values {
        let read = try engine.data(key, nil)
        #expect(read == data, "\(key), \(moment)")
      }
    }
    #expect(count > 3)
  }

  @Test("that accepts a loss keeps a version whose bytes another process puts again before it is dropped")
  func healedMeanwhile() throws {
    let whole = try Lab()
    let (short, long) = (noise(1, 600), noise(2, 20_000))
    try whole.session { try whole.put($0, [("first", short), ("second", long)]) }
    let lost = try #require(try LostPackTests.names(whole).first)
    // What is new of them is in another pack: two refs, and the manifest of the longer one.
    try whole.session { try whole.put($0, [("a", short), ("b", long + noise(3, 2_000))]) }
    try whole.disk.remove(LostPackTests.packs.appending(lost))
    try whole.forgetCatalog()
    var keptCount = 0
    var moment = 0
    while true {
      moment += 1
      let lab = try whole.copy()
      let process = lab.disk.process()
      let (engine, other) = (try lab.open(process), try lab.open())
      // "a" is looked through before "b", whose manifest is read for that.
      let heals = try Self.atRead(moment, of: process, lab) {
        let isThere = try other.version("a", nil) != nil
        _ = try other.put("again", .data(short), PutOptions())
        return isThere
      }
      let report = try engine.repair(acceptsLosses: true)
      lab.disk.beforeCalls(nil)
      let wasThere = heals.outcome
      let isKept = wasThere == true
      if isKept { keptCount += 1 }
      #expect(report.unreadable == [])
      #expect(report.dropped.map(\.key) == (isKept ? ["b"] : ["a", "b"]), "put before read \(moment)")
      try engine.close()
      try other.close()
      for forgets in [false, true] {
        if forgets { try lab.forgetCatalog() }
        try lab.session { engine in
          let versions = (try engine.versions("a"), try engine.versions("b"))
          #expect(versions.0.count == (isKept ? 1 : 0) && versions.1 == [])
          if isKept {
            let data = try engine.data("a", nil)
            #expect(data == short, "put before read \(moment)")
          }
          let damaged = try engine.verify().damaged
          #expect(damaged == [])
        }
      }
      if wasThere == nil { break }
      guard moment < 100 else { throw Broken("a repair reads \(moment) times") }
    }
    // Once while it looks for what cannot be read, and once more before it drops that.
    #expect(keptCount >= 2)
  }

  /// What came of something that is done before a read.
  private final class Interruption: Sendable {
    let count = Mutex(0)
    private let value = Mutex<Bool?>(nil)
    /// Nil if there was no such read.
    var outcome: Bool? {
      get { value.withLock { $0 } }
      set { value.withLock { $0 = newValue } }
    }
  }

  /// Calls `body` before that read of a pack by a process that accepts a loss, of those during which others can write.
  private static func atRead(
    _ number: Int, of process: SimulatedProcess, _ lab: Lab, _ body: @escaping @Sendable () throws -> Bool
  ) throws -> Interruption {
    let interruption = Interruption()
    let isAccepted = Mutex(false)
    let lock = try SystemFiles().open(
      try #require(try CopiedCatalog.lock(in: lab.catalog.path)), .readWrite)
    lab.disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.process == process.number else { return }
      if call.kind == .write, call.detail.contains("/census") { isAccepted.withLock { $0 = true } }
      guard call.kind == .read, call.detail.contains("/packs/"), isAccepted.withLock({ $0 }),
        try lock.lock(.exclusive, wait: false)
      else { return }
      try lock.unlock()
      let count = interruption.count.withLock { count in
        count += 1
        return count
      }
      guard count == number else { return }
      do { interruption.outcome = try body() } catch { throw BlobStorageError(.io, "\(error)") }
    }
    return interruption
  }

  @Test("names holds whose blobs need something of a lost pack")
  func heldOfLostPack() throws {
    let lab = try Lab()
    let long = noise(2, 20_000)
    try lab.session { try lab.put($0, [("first", long)]) }
    let lost = try #require(try LostPackTests.names(lab).first)
    try lab.session { engine in
      // Its manifest is in another pack.
      let version = try engine.put("b", .data(long + noise(3, 2_000)), PutOptions()).version
      #expect(try BlobHolds(engine).hold(version.digest, as: "h") != nil)
      _ = try engine.delete(["first", "b"], .durable)
    }
    try lab.disk.remove(LostPackTests.packs.appending(lost))
    try lab.forgetCatalog()
    try lab.session { engine in
      let report = try engine.repair(acceptsLosses: true)
      #expect(report.unreadableHolds == ["h"])
    }
  }

  @Test("and verify report nothing that is dropped and collected while they look", arguments: [false, true])
  func droppedMeanwhile(isInternal: Bool) throws {
    let whole = try Lab()
    let keys = ["1", "2"].map { name in
      isInternal ? InternalKey.Purpose.attributes.key(Array(name.utf8)) : Array(name.utf8)
    }
    try whole.session { engine in
      for (number, key) in keys.enumerated() {
        try engine.putInternal(key, .data(noise(UInt64(number), 6_000)))
      }
    }
    let count = Mutex(0)
    var moment = 0
    repeat {
      moment += 1
      let lab = try whole.copy()
      let process = lab.disk.process()
      let (engine, other, now) = (try lab.open(process), try lab.open(), moment)
      count.withLock { $0 = 0 }
      lab.disk.beforeCalls { (call) throws(BlobStorageError) in
        guard call.process == process.number, call.kind == .read, call.detail.contains("/packs/") else {
          return
        }
        let isNow = count.withLock { count in
          count += 1
          return count == now
        }
        guard isNow else { return }
        try other.dropInternal(keys)
        _ = try other.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      }
      let report = try engine.verify(.structure)
      lab.disk.beforeCalls(nil)
      #expect(report.damaged == [], "collected before read \(moment)")
      try engine.close()
      try other.close()
      guard moment < 100 else { throw Broken("verify reads \(moment) times") }
    } while count.withLock({ $0 }) >= moment
    #expect(moment > 2)
  }

  /// Fails if the pack is set aside under the hands of its writer.
  @Test("is refused while another process writes to it, and saves all that is whole once that has ended")
  func besideWriter() throws {
    let lab = try Lab()
    let (writer, other) = (try lab.open(), try lab.open())
    func put(_ number: Int) throws {
      _ = try writer.put("k\(number)", .data(noise(UInt64(number), 200)), PutOptions())
    }
    for number in 0..<5 { try put(number) }
    let name = try #require(try LostPackTests.names(lab).first)
    // Later records say that it had been synced.
    try Self.damage(lab, name, noise(0, 200))
    let error = #expect(throws: BlobStorageError.self) { _ = try other.repair() }
    #expect(error?.code == .busy && error?.pack == String(name.dropLast(5)), "\(String(describing: error))")
    #expect(try lab.disk.status(of: FilePath("\(Lab.storePath)/set-aside")) == nil)
    for number in 5..<8 { try put(number) }
    try writer.close()
    func check(_ engine: Engine, _ moment: String) throws {
      for number in 1..<8 {
        let data = try engine.data("k\(number)", nil)
        #expect(data == noise(UInt64(number), 200), "k\(number), \(moment)")
      }
    }
    let report = try other.repair()
    #expect(report.setAside.count == 1 && report.unreadable.map(\.key) == ["k0"])
    #expect(try other.losses().isEmpty, "the keys of all records are known")
    try check(other, "repaired")
    try other.close()
    try lab.forgetCatalog()
    try lab.session { try check($0, "without the catalog") }
  }

  /// A pack with a chunk that `k` needs and a record of a later build, which may be skipped.
  private static func laterStore(_ data: Data) throws -> (lab: Lab, name: String) {
    let lab = try Lab()
    let folder = StoreFolder(FilePath(Lab.storePath), files: lab.disk)
    let name = PackName(writer: 0xbad, sequence: 1)
    let header = PackHeader(
      name: name, storeID: try folder.readHeader().storeID, digestAlgorithm: .blake3, created: 1 << 40)
    let start = Int64(PackHeader.byteCount)
    let empty = try PackWriter(
      header: header,
      backend: FolderBackend(folder: folder.packs, asideFolder: folder.aside, files: lab.disk),
      codecs: CodecPool())
    var later = RecordHeader(type: .chunk, metaByteCount: 0, payloadByteCount: 0)
    later.typeNumber = 129
    let bytes = later.encoded(meta: [], pack: name, offset: start)
    try bytes.withUnsafeBytes { try empty.file.write($0, at: start) }
    let writer = PackWriter(
      adopting: empty.file, header: header, byteCount: start + Int64(bytes.count), codecs: CodecPool())
    try writer.list(later, RawSpan())
    let digest = BlobDigest.of(Array(data))
    let records: [(content: PackRecord.Content, payload: [UInt8])] = [
      (.chunk(ChunkRecord(digest: digest, plainByteCount: data.count, codecNumber: 0)), Array(data)),
      HostileTests.ref("k", digest, byteCount: Int64(data.count)),
    ]
    for (content, payload) in records {
      _ = try writer.append(content, payload: payload.span.bytes)
    }
    try writer.seal()
    writer.file.close()
    return (lab, name.fileName)
  }

  @Test("accepts no loss while there are records that only a later build can read")
  func laterRecordsElsewhere() throws {
    let (lab, name) = try Self.laterStore(noise(1, 200))
    try lab.session { try lab.put($0, [("x", noise(2, 300))]) }
    let other = try #require(try LostPackTests.names(lab).first { $0 != name })
    try Self.damage(lab, name, noise(1, 200))
    try Self.damage(lab, other, noise(2, 300))
    try lab.session { engine in
      let report = try engine.repair(acceptsLosses: true)
      #expect(report.hasLaterRecords && report.setAside.count == 1)
      #expect(report.unreadable.map(\.key) == ["x"] && report.dropped == [])
      let versions = try engine.versions("x")
      #expect(versions.count == 1)
    }
  }

  @Test("that has records of a later build leaves it where it is and says so, and gc does not touch it")
  func laterRecords() throws {
    let data = noise(1, 200)
    let (lab, name) = try Self.laterStore(data)
    try lab.session { engine in
      let read = try engine.data("k", nil)
      #expect(read == data)
      let error = #expect(throws: BlobStorageError.self) {
        try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      }
      #expect(error?.code == .unsupportedFormat)
      let whole = try engine.repair()
      #expect(!whole.hasLaterRecords && whole.damaged == [])
    }
    try Self.damage(lab, name, data)
    for acceptsLosses in [false, true] {
      try lab.session { engine in
        let report = try engine.repair(acceptsLosses: acceptsLosses)
        #expect(report.hasLaterRecords && report.setAside == [] && report.dropped == [])
        #expect(report.damaged.count == 1 && report.keyCount == 1)
        let names = try LostPackTests.names(lab)
        #expect(names.contains(name))
      }
    }
    // A later build, or a medium that can be read again, finds it all.
    let path = LostPackTests.packs.appending(name)
    let bytes = try DamageTests.bytes(lab, path)
    let place = try #require(Data(bytes).range(of: data.dropFirst(6))).lowerBound
    try DamageTests.change(lab, path) { $0[place - 1] ^= 1 }
    try lab.forgetCatalog()
    try lab.session { engine in
      let read = try engine.data("k", nil)
      #expect(read == data)
    }
  }
}

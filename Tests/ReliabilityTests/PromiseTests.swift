import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What others have written and not forced to the medium, and what is said of packs before it is true.
@Suite("A promise")
struct PromiseTests {
  /// Text of hexadecimal digits: it compresses, and no two parts of it are alike.
  private static func digits(_ seed: UInt64, _ count: Int) -> Data {
    Data(noise(seed, count / 2).map { Hex.text([$0]) }.joined().utf8)
  }

  private static func stream(_ data: Data) -> BlobContent {
    let rest = Mutex(data)
    return .stream({
      let part = rest.withLock { rest in
        defer { rest = Data() }
        return rest
      }
      return part.isEmpty ? nil : part
    })
  }

  @Test(
    "that is kept by forcing to the medium what a new chunk is encoded against", arguments: [false, true])
  func base(isStreamed: Bool) throws {
    let lab = try Lab(StoreOptions())
    let (relaxed, durable) = (try lab.open(), try lab.open())
    let text = Self.digits(1, 9_000)
    var changed = text
    changed[4_500] = UInt8(ascii: "x")
    _ = try relaxed.put("k", .data(text), .relaxed)
    let content = isStreamed ? Self.stream(changed) : .data(changed)
    _ = try durable.put("k", content, PutOptions(replacement: .archiveCurrent))
    #expect(try BlobInformation.find(durable, "k", nil)?.basedChunkCount == 1)
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      let read = try engine.data("k", nil)
      #expect(read == changed)
    }
    try durable.close()
    try relaxed.close()
  }

  @Test(
    "that a hold makes, while a retention or a deletion waits that has found no hold",
    arguments: [false, true])
  func heldMeanwhile(isDeletion: Bool) throws {
    let lab = try Lab()
    try lab.session { engine in
      for number in 0..<3 { try lab.put(engine, [("k", noise(UInt64(number), 200))], archives: true) }
    }
    let process = lab.disk.process()
    let (engine, other) = (try lab.open(process), try lab.open())
    let hold = KeyHold(name: "h", prefix: Array("k".utf8))
    let hasHeld = Mutex(false)
    lab.disk.beforeCalls { (call) throws(BlobStorageError) in
      // It begins a pack for the commit.
      guard call.process == process.number, call.kind.isMutating, call.detail.contains("/packs/") else {
        return
      }
      let isFirst = hasHeld.withLock { hasHeld in
        defer { hasHeld = true }
        return !hasHeld
      }
      if isFirst { try other.putInternal(hold.key, .data(Data()), metadata: hold.metadata) }
    }
    if isDeletion {
      let error = #expect(throws: BlobStorageError.self) { _ = try engine.delete(["k"], .durable) }
      #expect(error?.code == .held)
    } else {
      let result = try engine.keep(upTo: 0, prefix: "", .durable)
      #expect(result.droppedVersionCount == 0)
    }
    lab.disk.beforeCalls(nil)
    #expect(hasHeld.withLock { $0 })
    #expect(try engine.versions("k").count == 3)
    try engine.close()
    try other.close()
  }

  /// Fails if only the callers look for holds: a hold may be made while their commit waits.
  @Test("that a hold on a state makes, where a commit drops the state or renames it")
  func heldState() throws {
    let lab = try Lab()
    try lab.session { engine in
      let text = Array(Hex.text(UInt64(5)).utf8)
      let (key, link) = (InternalKey.Purpose.state.key(text), InternalKey.Purpose.link.key(text))
      try engine.putInternal(key, .data(Data()))
      let hold = KeyHold(name: "h", prefix: [], state: 5)
      try engine.putInternal(hold.key, .data(Data()), metadata: hold.metadata)
      let dropping = #expect(throws: BlobStorageError.self) {
        try engine.dropInternal([key], held: .refused)
      }
      #expect(dropping?.code == .held)
      let renaming = #expect(throws: BlobStorageError.self) {
        try VersionChanges(engine).rename(key, to: link, .durable)
      }
      #expect(renaming?.code == .held)
      // It may build on another.
      try engine.putInternal(InternalKey.Purpose.link.key([6]), .data(Data()))
      _ = try engine.delete(prefix: "", .durable)
      #expect(try engine.internalVersions(key).count == 1)
      #expect(try engine.internalVersions(InternalKey.Purpose.link.prefix).count == 1)
      try engine.dropInternal([hold.key])
      try engine.dropInternal([key])
      #expect(try engine.internalVersions(key).isEmpty)
    }
  }

  @Test("that is kept by storing a manifest anew which another process has not forced to the medium")
  func manifest() throws {
    let data = noise(1, 6_000)
    var entries: [ChunkEntry] = []
    try Lab(seed: 5).session { engine in
      let digest = try engine.put("k", .data(data), PutOptions()).version.digest
      let layout = try #require(try engine.blobs.layout(digest))
      try layout.forEachChunk(in: 0..<6_000, from: engine.chunks) { placed in
        entries.append(placed.entry)
        return true
      }
    }
    #expect(entries.count > 1)
    // All chunks are on the medium, and no manifest names them.
    let lab = try Lab()
    try lab.session { engine in
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        var start = 0
        for entry in entries {
          let part = data.dropFirst(start).prefix(entry.plainByteCount)
          try commit.append(
            .chunk(ChunkRecord(digest: entry.digest, plainByteCount: entry.plainByteCount, codecNumber: 0)),
            payload: part.bytes)
          start += entry.plainByteCount
        }
      }
    }
    let (relaxed, durable) = (try lab.open(), try lab.open())
    for (engine, options) in [(relaxed, PutOptions.relaxed), (durable, PutOptions())] {
      let result = try engine.put("k", .data(data), options)
      #expect(result.newByteCount == 0)
    }
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      let read = try engine.data("k", nil)
      #expect(read == data)
    }
    try durable.close()
    try relaxed.close()
  }

  // MARK: The census

  private final class Found: Sendable {
    private let lines = Mutex<[String]>([])
    func add(_ line: String) { lines.withLock { $0.append(line) } }
    var all: [String] { lines.withLock { $0 } }
  }

  /// Notes each pack that is not on the medium as it stands when the census is about to get a line.
  private static func watch(_ lab: Lab, _ found: Found) {
    lab.disk.beforeMutations { [disk = lab.disk] (call) throws(BlobStorageError) in
      guard call.kind == .write, call.detail.contains("/census") else { return }
      let packs = FilePath("\(Lab.storePath)/packs")
      let after = disk.powerCut()
      for name in try disk.list(packs) {
        let path = packs.appending(name)
        let (here, there) = (try disk.status(of: path), try after.status(of: path))
        if here?.byteCount != there?.byteCount { found.add("\(name), \(call)") }
      }
      found.add("line")
    }
  }

  @Test("about a pack is made to the census once the pack and its name are on the medium")
  func census() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 4_000
    let found = Found()
    var lineCount = 0
    func check(_ moment: String) {
      let lines = found.all
      #expect(lines.filter { $0 != "line" } == [], "\(moment)")
      #expect(lines.count > lineCount, "\(moment): nothing was said")
      lineCount = lines.count
    }
    Self.watch(lab, found)
    let engine = try lab.open()
    try lab.put(engine, [("a", noise(1, 300))])
    check("synced")
    try lab.put(engine, [("b", noise(2, 5_000))], durability: .relaxed)
    check("full")
    // A process is killed between writing a footer and forcing it to the medium.
    let writeCount = Mutex(0)
    lab.disk.afterMutations { (call) throws(BlobStorageError) in
      guard call.kind == .write, call.detail.contains("/packs/") else { return }
      let count = writeCount.withLock { count in
        count += 1
        return count
      }
      if count == 3 { throw .simulatedStop }
    }
    do { try lab.put(engine, [("c", noise(3, 5_000))], durability: .relaxed) } catch is BlobStorageError {}
    #expect(writeCount.withLock { $0 } == 3)
    lab.restart(with: try CatalogFolder())
    withExtendedLifetime(engine) {}
    Self.watch(lab, found)
    try lab.session { engine in
      let data = try engine.data("c", nil)
      #expect(data == noise(3, 5_000))
    }
    check("a footer that was not forced")
    // Another is killed with a pack that it has not forced to the medium at all.
    let killed = try lab.open()
    try lab.put(killed, [("d", noise(4, 300))], durability: .relaxed)
    lab.restart(with: try CatalogFolder(copyOf: lab.catalog))
    withExtendedLifetime(killed) {}
    Self.watch(lab, found)
    try lab.session { _ in }
    check("a pack without a footer")
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      let losses = try engine.losses()
      #expect(losses.isEmpty)
    }
  }

  // MARK: What is shorter than it was

  enum Way: CaseIterable {
    case memory, several, stream, changes, deletion
  }

  @Test(
    "that a pack of a killed writer has lost is told, unless only the lost table of open packs knew of it",
    arguments: Way.allCases, [(Durability.durable, true), (.relaxed, true), (.relaxed, false)])
  func cut(_ way: Way, _ kind: (durability: Durability, hasTable: Bool)) throws {
    let durability = kind.durability
    let lab = try Lab()
    let engine = try lab.open()
    try lab.put(engine, [("first", noise(1, 300))])
    let options = PutOptions(durability: durability)
    let items = ["a", "b"].map { PutItem(key: $0, data: noise(2, 400)) }
    switch way {
    case .memory: _ = try engine.put("a", .data(noise(2, 400)), options)
    case .several: _ = try engine.put(items, options)
    case .stream: _ = try engine.put("a", Self.stream(noise(2, 4_000)), options)
    case .changes: _ = try engine.change(items.map { BlobChange.put($0) }, durability)
    case .deletion: _ = try engine.delete(["first"], durability)
    }
    lab.restart(with: try CatalogFolder(copyOf: lab.catalog))
    withExtendedLifetime(engine) {}
    // The table of open packs says how much was published.
    if !kind.hasTable { try SystemFiles().remove(lab.catalog.path.appending("live")) }
    let path = try #require(try DamageTests.paths(lab).first)
    let last = try #require(try DamagedRecordTests.records(lab, path).last)
    try DamageTests.change(lab, path) { $0.removeLast($0.count - last.lowerBound) }
    try lab.session { _ in }
    try lab.forgetCatalog()
    try lab.session { engine in
      let (losses, data) = (try engine.losses(), try engine.data("first", nil))
      #expect(losses.damagedPacks.count == (kind.hasTable ? 1 : 0))
      #expect(data == noise(1, 300))
    }
  }
}

import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// The file that says whether a catalog may be believed after a power cut.
@Suite("The state of a catalog")
struct CatalogStateTests {
  private static func state(_ place: StorePlace) throws -> String {
    try String(contentsOf: place.catalogFolder.appending(path: "state"), encoding: .utf8)
  }

  private static func generations(_ place: StorePlace) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: place.catalogFolder.path).filter { $0.hasPrefix("g") }
  }

  @Test(
    "is clean while it is only read, and not from before the first change on",
    arguments: ["put", "maintain"])
  func marked(_ change: String) throws {
    let place = try StorePlace()
    try place.engine().close()
    let engine = try place.engine()
    #expect(try engine.data("a", nil) == nil)
    #expect(try Self.state(place).hasSuffix(" clean\n"))
    if change == "put" {
      _ = try engine.put("a", [1])
    } else {
      try engine.catalog.maintain { _ in }
    }
    #expect(try !Self.state(place).contains("clean"))
    try engine.close()
    #expect(try Self.state(place).hasSuffix(" clean\n"))
  }

  @Test("begins with the word that Format.md says")
  func page() throws {
    let text = try String(contentsOf: WorkedExampleTests.document, encoding: .utf8)
    let section = try #require(text.range(of: "## The catalog's state")).upperBound
    let row = try #require(text[section...].firstMatch(of: /\n\| 1 \| `([^`]+)`, the layout/))
    #expect(row.1 == CatalogState.layout)
  }

  @Test("is written over whatever a killed process has left of a new one")
  func leftover() throws {
    let place = try StorePlace()
    let first = try place.engine()
    _ = try first.put("a", [1])
    let generation = first.catalog.generation
    try first.close()
    for _ in 0..<2 {
      let new = place.catalogFolder.appending(path: "state.new")
      try Data(repeating: UInt8(ascii: "x"), count: 5_000).write(to: new)
      let engine = try place.engine()
      #expect(engine.catalog.generation == generation, "nothing was rebuilt")
      _ = try engine.put("a", [2])
      try engine.close()
    }
  }

  @Test("is on the medium before it takes its name, and its name before anything else is done")
  func order() throws {
    let place = try StorePlace()
    let files = RecordedFiles(root: place.temporary.path)
    let calls = Mutex<[String]>([])
    files.beforeMutations { (kind, path) throws(BlobStorageError) in
      let name = path.lastComponent?.string ?? ""
      guard name == "state.new" || (kind == .syncDirectory && name == "catalog") else { return }
      calls.withLock { $0.append(kind.rawValue) }
    }
    var environment = Engine.Environment()
    environment.catalogFiles = files
    // Rebuilt, marked as written to, and left clean, twice.
    for _ in 0..<2 {
      let engine = try place.engine(environment)
      _ = try engine.put("a", [1])
      try engine.close()
    }
    let parts = calls.withLock { $0 }.split(separator: "create").map { Array($0) }
    #expect(parts.count == 4)
    for part in parts { #expect(part == ["truncate", "write", "synchronize", "rename", "syncDirectory"]) }
  }

  @Test("is clean only once the database is on the medium")
  func databaseFirst() throws {
    let place = try StorePlace()
    let files = RecordedFiles(root: place.temporary.path)
    let calls = Mutex<[String]>([])
    files.beforeMutations { (kind, path) throws(BlobStorageError) in
      switch (kind, path.lastComponent?.string) {
      case (.synchronize, "data.mdb"): calls.withLock { $0.append("database") }
      case (.rename, "state.new"): calls.withLock { $0.append("state") }
      default: break
      }
    }
    var environment = Engine.Environment()
    environment.catalogFiles = files
    for _ in 0..<2 {
      let engine = try place.engine(environment)
      _ = try engine.put("a", [1])
      calls.withLock { $0 = [] }
      try engine.close()
      #expect(calls.withLock { $0 } == ["database", "state"])
    }
  }

  @Test(
    "is gone if the database cannot be synced, whatever the reason", arguments: [Errno.ioError, .noSpace])
  func unsynced(errno: Errno) throws {
    let place = try StorePlace()
    var environment = Engine.Environment()
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "synchronize", path.lastComponent?.string == "data.mdb" else { return }
      throw .systemCall("sync", path: path, errno: errno.rawValue)
    }
    let engine = try place.engine(environment)
    _ = try engine.put("a", [1])
    try engine.close()
    let state = place.catalogFolder.appending(path: "state").path
    #expect(!FileManager.default.fileExists(atPath: state))
    let next = try place.engine()
    #expect(try next.data("a", nil) == Data([1]))
    try next.close()
  }

  @Test("stays if the process has no descriptor left to read the database's checksum")
  func noDescriptor() throws {
    let place = try StorePlace()
    var environment = Engine.Environment()
    let isFull = Atomic<Bool>(false)
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard isFull.load(ordering: .relaxed), call == "open" else { return }
      guard path.lastComponent?.string == "data.mdb" else { return }
      throw .systemCall("open", path: path, errno: Errno.tooManyOpenFiles.rawValue)
    }
    let engine = try place.engine(environment)
    _ = try engine.put("a", [1])
    let generation = engine.catalog.generation
    isFull.store(true, ordering: .relaxed)
    try engine.close()
    let next = try place.engine()
    #expect(next.catalog.generation == generation)
    #expect(try next.data("a", nil) == Data([1]))
    try next.close()
  }

  @Test(
    "is not clean while a byte of an open pack is known that may not be on the medium", arguments: [0, 1])
  func openPack(missingByteCount: Int64) throws {
    let place = try CatalogPlace()
    var pack = SamplePack(PackPlace.header())
    pack.append(.chunk([1, 2, 3]))
    try place.apply(pack, 0..<1)
    _ = try place.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.updatePack(pack.header.name) { row in
        row.durableByteCount = row.appliedByteCount - missingByteCount
      }
    }
    place.catalog.close()
    let state = try String(
      contentsOfFile: place.temporary.path.appending("catalog/state").string, encoding: .utf8)
    #expect(state.contains(" clean") == (missingByteCount == 0))
  }

  // MARK: Which catalogs are trusted

  /// Puts a key in one boot, and ends as the test says; the store was closed, or its process was killed.
  private static func filled(_ place: StorePlace, isKilled: Bool) throws {
    let engine = try place.engine(boot("one"))
    _ = try engine.put("a", [1], PutOptions())
    // The pack is sealed: the catalog may be called clean.
    try engine.writer.rollOver()
    try engine.catalog.settle()
    let killed = try state(place)
    try engine.close()
    #expect(try state(place).hasSuffix(" clean\n"))
    if isKilled { try Data(killed.utf8).write(to: place.catalogFolder.appending(path: "state")) }
  }

  private static func boot(_ name: String) -> Engine.Environment {
    var environment = Engine.Environment()
    environment.bootIdentity = name
    return environment
  }

  /// Opens the store and reads it. Returns whether the catalog was kept.
  private static func isKept(_ place: StorePlace, in boot: String) throws -> Bool {
    let generations = try generations(place)
    let engine = try place.engine(Self.boot(boot))
    #expect(try engine.data("a", nil) == Data([1]))
    try engine.close()
    return try Self.generations(place) == generations
  }

  @Test(
    "has the catalog kept within a boot, and after another one if it was closed",
    arguments: [false, true], ["one", "two"])
  func kept(isKilled: Bool, boot: String) throws {
    let place = try StorePlace()
    try Self.filled(place, isKilled: isKilled)
    #expect(try Self.isKept(place, in: boot) == (!isKilled || boot == "one"))
    // And so it is the next time, whether or not the first opening had to read the whole file.
    #expect(try Self.isKept(place, in: boot))
  }

  /// Otherwise a store on a full disk could not be opened after a power cut, and no collection could free space.
  @Test("has a catalog that cannot be used removed before its successor takes room")
  func roomFirst() throws {
    let place = try StorePlace()
    try Self.filled(place, isKilled: true)
    let folder = place.catalogFolder.path
    let left = Mutex<[[String]]>([])
    var environment = Self.boot("two")
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "createDirectory", path.lastComponent?.string.hasPrefix("g") == true else { return }
      let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? ["unknown"]
      left.withLock { $0.append(names.filter { name in name.hasPrefix("g") || name == "unknown" }) }
    }
    let engine = try place.engine(environment)
    #expect(left.withLock { $0 } == [[]])
    #expect(try engine.data("a", nil) == Data([1]))
    try engine.close()
  }

  @Test("has a closed catalog made anew that has a changed bit", arguments: ["one", "two"])
  func flipped(boot: String) throws {
    let place = try StorePlace()
    try Self.filled(place, isKilled: false)
    for round in 0..<40 {
      // What a round before has rebuilt may be shorter.
      let offset = round * 1_021 % (try Data(contentsOf: place.databaseFile()).count)
      let handle = try FileHandle(forUpdating: try place.databaseFile())
      try handle.seek(toOffset: UInt64(offset))
      let byte = try #require(try handle.read(upToCount: 1)?.first)
      try handle.seek(toOffset: UInt64(offset))
      try handle.write(contentsOf: Data([byte ^ 1 << UInt8(offset % 8)]))
      try handle.close()
      #expect(try !Self.isKept(place, in: boot == "one" ? boot : "\(boot)-\(round)"), "byte \(offset)")
      #expect(try Self.state(place).hasSuffix(" clean\n"))
    }
  }

  @Test("has a copy of the folder trusted if it is of a closed catalog", arguments: [false, true])
  func copied(isKilled: Bool) throws {
    let place = try StorePlace()
    try Self.filled(place, isKilled: isKilled)
    let old = place.catalogFolder.deletingLastPathComponent().appending(path: "old")
    try FileManager.default.moveItem(at: place.catalogFolder, to: old)
    try FileManager.default.copyItem(at: old, to: place.catalogFolder)
    #expect(try Self.isKept(place, in: "one") == !isKilled)
  }

  @Test("names the file anew once its checksum was found right, so that it is not read whole again")
  func renewed() throws {
    let place = try StorePlace()
    try Self.filled(place, isKilled: false)
    let before = try #require(CatalogState(try Self.state(place)))
    #expect(before.mark.boot == "one")
    #expect(try Self.isKept(place, in: "two"))
    let after = try #require(CatalogState(try Self.state(place)))
    #expect(after.mark.boot == "two")
    #expect(after.clean == before.clean && after.inode == before.inode)
  }

  @Test("of a long file is as right as of a short one: a page far down counts", .timeLimit(.minutes(5)))
  func deepPage() throws {
    let place = try CatalogPlace(mapByteCount: 1 << 26)
    var pack = SamplePack(PackPlace.header())
    for number in 0..<60_000 { pack.append(.chunk(Array("chunk \(number)".utf8))) }
    try place.apply(pack, 0..<pack.records.count, seals: true)
    place.catalog.close()
    // Closing rewrote it.
    let folder = place.temporary.path.appending("catalog")
    let generation = try #require(try SystemFiles().list(folder).first { $0.hasPrefix("g") })
    let path = folder.appending("\(generation)/data.mdb").string
    let handle = try FileHandle(forUpdating: URL(filePath: path))
    let byteCount = try handle.seekToEnd()
    #expect(byteCount > 3 << 20)
    // The header of a page.
    try handle.seek(toOffset: byteCount / 4_096 / 2 * 4_096 + 12)
    try handle.write(contentsOf: Data([0xff, 0xff]))
    try handle.close()
    let again = try CatalogPlace.open(in: place.temporary)
    #expect(again.generation != generation)
    again.close()
  }

  /// In containers, two processes may have one ID.
  @Test("has a process refused with the remedy that has the ID of another")
  func sameProcess() throws {
    let place = try StorePlace()
    try place.engine().close()
    let database = FilePath(try place.databaseFile().path)
    let readers = try SystemFiles().open(database.removingLastComponent().appending("lock.mdb"), .readWrite)
    defer { readers.close() }
    let byte = Int64(ProcessInfo.processInfo.processIdentifier)
    #expect(try readers.lock(bytes: byte..<byte + 1, wait: false))
    let error = failure { _ = try place.engine() }
    #expect(error?.code == .busy && error?.message.contains("same process ID") == true)
    try readers.unlock(bytes: byte..<byte + 1)
    try place.engine().close()
  }

  @Test("is read as it was written, and refused if no process can have written it")
  func text() throws {
    let written = CatalogState(
      generation: "g1", mark: MediumIdentity.Mark(boot: "b", mounts: ["m", "n"]), folder: 5, inode: 7)
    var clean = written
    clean.clean = CleanFile(
      byteCount: 8_192, changed: FileTime(seconds: -1, nanoseconds: 999_999_999), checksum: .max)
    #expect(written.text == "10 g1 b/m/n 5/7\n")
    #expect(clean.text == "10 g1 b/m/n 5/7 8192 -1 999999999 4294967295 clean\n")
    for state in [written, clean] { #expect(CatalogState(state.text) == state) }
    for text in [
      "", "6 g1 clean\n", "4 g1 b/m 5/7\n", "10 g1 b/m\n", "10 g1 b/m x/7\n", "10 g1 b/m 7\n",
      "10 g1 b/m 5/7/9\n", "9 h1 b/m 5/7\n", "10 g../1 b/m 5/7\n",
      "10 g1 b/m 5/7 8192 0 0 1 dirty\n", "10 g1 b/m 5/7 8192 0 0 4294967296 clean\n",
      "10 g1 b/m 5/7 8192 0 0 clean\n",
      "10 g\(String(repeating: "1", count: 300)) b/m 5/7\n",
    ] { #expect(CatalogState(text) == nil, "\(text)") }
  }

  @Test("names the only generation, also after rebuilds that failed or were killed")
  func failedRebuild() throws {
    let place = try StorePlace()
    let isFull = Mutex(false)
    var environment = Engine.Environment()
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "rename", path.lastComponent?.string == "state.new", isFull.withLock({ $0 }) else {
        return
      }
      throw .systemCall("rename", path: path, errno: Errno.noSpace.rawValue)
    }
    let engine = try place.engine(environment)
    _ = try engine.put("a", [1])
    let before = try Self.generations(place)
    isFull.withLock { $0 = true }
    #expect(failure { try engine.catalog.rebuild(because: nil) }?.code == .noSpace)
    #expect(try Self.generations(place) == before)
    isFull.withLock { $0 = false }
    let killed = place.catalogFolder.appending(path: "g0")
    try FileManager.default.createDirectory(at: killed, withIntermediateDirectories: false)
    try Data([1]).write(to: killed.appending(path: "data.mdb"))
    try engine.catalog.rebuild(because: nil)
    let generation = try #require(engine.catalog.generation)
    #expect(try Self.generations(place) == [generation])
    #expect(try engine.data("a", nil) == Data([1]))
    try engine.close()
  }

  @Test("leads to one generation after a rebuild, in which no pack has its number of before")
  func rebuilt() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    for number in 0..<3 {
      _ = try engine.put("k\(number)", [1])
      try engine.writer.rollOver()
    }
    func numbers() throws -> Set<UInt32> {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        Set(try transaction.packRows().map(\.number))
      }
    }
    let before = try numbers()
    try engine.catalog.rebuild(because: nil)
    let after = try numbers()
    #expect(before.count == 3 && after.count == 3)
    #expect(before.isDisjoint(with: after), "an old number finds no pack")
    let generation = try #require(engine.catalog.generation)
    #expect(try Self.generations(place) == [generation])
    try engine.close()
  }
}

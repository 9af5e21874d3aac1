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
    // Made anew, marked as written to, and left clean, twice.
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
    "is not clean while a byte of an open pack is known that may not be on the medium", arguments: [0, 1])
  func openPack(missingByteCount: Int64) throws {
    let place = try CatalogPlace()
    var pack = SamplePack(PackPlace.header())
    pack.append(.chunk([1, 2, 3]))
    try place.apply(pack, 0..<1)
    try place.catalog.write { (transaction) throws(BlobStorageError) in
      guard let number = try transaction.packNumber(pack.header.name),
        var row = try transaction.packRow(number)
      else { return }
      row.durableByteCount = row.appliedByteCount - missingByteCount
      try transaction.setPackRow(number, row)
    }
    place.catalog.close()
    let state = try String(
      contentsOfFile: place.temporary.path.appending("catalog/state").string, encoding: .utf8)
    #expect(state.contains(" clean") == (missingByteCount == 0))
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
    #expect(before.isDisjoint(with: after), "who still has one of before finds no pack")
    let generation = try #require(engine.catalog.generation)
    #expect(try Self.generations(place) == [generation])
    try engine.close()
  }
}

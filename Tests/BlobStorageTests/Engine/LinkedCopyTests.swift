import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// A copy of a store by hard links, made while a program has the store open.
@Suite("A copy by hard links")
struct LinkedCopyTests {
  private static func bytes(_ count: Int, _ seed: UInt64) -> Data {
    var random = SplitMix64(seed: seed)
    return Data(random.bytes(count))
  }

  /// Gives every file of a store a second name in a copy of its folders.
  private static func link(_ place: StorePlace, _ name: String = "copy") throws -> String {
    let copy = place.temporary.path.appending(name).string
    let files = FileManager.default
    try files.createDirectory(atPath: copy, withIntermediateDirectories: false)
    for path in try files.subpathsOfDirectory(atPath: place.path).sorted() {
      var isFolder: ObjCBool = false
      _ = files.fileExists(atPath: place.path + "/" + path, isDirectory: &isFolder)
      if isFolder.boolValue {
        try files.createDirectory(atPath: copy + "/" + path, withIntermediateDirectories: false)
      } else {
        try files.linkItem(atPath: place.path + "/" + path, toPath: copy + "/" + path)
      }
    }
    return copy
  }

  /// The bytes of the files by which a store tells what it holds.
  private static func truth(_ store: String) throws -> [String: Data] {
    var found: [String: Data] = [:]
    for path in try FileManager.default.subpathsOfDirectory(atPath: store)
    where path.hasSuffix(".pack") || path == "census" || path == "holds" || path == "store" {
      found[path] = try Data(contentsOf: URL(filePath: store + "/" + path))
    }
    return found
  }

  private static func open(_ path: String) throws -> Engine {
    try Engine(path: path, configuration: StoreConfiguration(threadCount: 2))
  }

  @Test(
    "keeps what it had while the program goes on, and the program what it puts", arguments: [false, true])
  func besideProgram(_ isCopyFirst: Bool) throws {
    let place = try StorePlace()
    let program = try place.engine()
    for key in ["a", "b"] { _ = try program.put(key, .data(Self.bytes(9_000, 1)), PutOptions()) }
    let copy = try Self.link(place)
    let before = try Self.truth(copy)
    _ = try program.put("new", .data(Self.bytes(9_000, 2)), PutOptions())
    _ = try program.delete(["a"], .durable)
    #expect(try Self.truth(copy) == before)
    if !isCopyFirst {
      try program.close()
      #expect(try Self.truth(copy) == before)
    }
    let other = try Self.open(copy)
    #expect(try other.keys("", after: nil, limit: 9).map(\.key) == ["a", "b"])
    #expect(try other.data("a", nil) == Self.bytes(9_000, 1))
    #expect(try other.losses().isEmpty)
    let own = try Self.truth(place.path)
    _ = try other.put("other", .data(Self.bytes(9_000, 3)), PutOptions())
    _ = try other.delete(["b"], .durable)
    #expect(try other.collectGarbage().obstacles == [])
    #expect(try other.repair(acceptsLosses: true).damaged == [])
    try other.close()
    #expect(try Self.truth(place.path) == own)
    if isCopyFirst {
      #expect(try program.keys("", after: nil, limit: 9).map(\.key) == ["b", "new"])
      try program.close()
    }
    for (path, keys) in [(place.path, ["b", "new"]), (copy, ["a", "other"])] {
      let engine = try Self.open(path)
      #expect(try engine.keys("", after: nil, limit: 9).map(\.key) == keys)
      let report = try engine.verify(.blobs)
      #expect(report.damaged == [] && report.losses.isEmpty)
      #expect(try engine.repair().damaged == [])
      #expect(try engine.keys("", after: nil, limit: 9).map(\.key) == keys)
      // Each open pack was ended in a file of its own.
      #expect(try engine.catalog.packRows().allSatisfy { $0.row.isSealed })
      try engine.close()
    }
  }

  @Test("and its original both take in the pack of a writer that died")
  func deadWriter() throws {
    let place = try StorePlace()
    do {
      let dead = try place.engine()
      _ = try dead.put("a", .data(Self.bytes(9_000, 1)), PutOptions())
    }
    let copies = [try Self.link(place, "one"), try Self.link(place, "two")]
    let before = try Self.truth(place.path)
    for path in copies {
      let engine = try Self.open(path)
      #expect(try engine.data("a", nil) == Self.bytes(9_000, 1))
      _ = try engine.put("b", .data(Self.bytes(9_000, 2)), PutOptions())
      try engine.close()
      #expect(try Self.truth(place.path) == before)
    }
    let engine = try place.engine()
    #expect(try engine.keys("", after: nil, limit: 9).map(\.key) == ["a"])
    #expect(try engine.verify().losses.isEmpty)
    try engine.close()
  }

  @Test("of a store with links of its own catalog takes a catalog of its own, however it is read first")
  func catalogs() throws {
    let place = try StorePlace()
    let program = try place.engine()
    _ = try program.put("a", [1], PutOptions())
    let copy = try Self.link(place)
    func files(_ store: String) throws -> Set<UInt64> {
      let folder = FilePath(store).appending("catalog")
      return Set(
        try FileManager.default.subpathsOfDirectory(atPath: folder.string).compactMap { name in
          let status = try SystemFiles().status(of: folder.pushing(FilePath(name)))
          return status?.kind == .regular ? status?.inode : nil
        })
    }
    #expect(try !files(copy).isDisjoint(with: files(place.path)))
    let reader = try Self.open(copy)
    #expect(try reader.data("a", nil) == Data([1]))
    #expect(try files(copy).isDisjoint(with: files(place.path)))
    _ = try program.put("b", [2], PutOptions())
    try program.catalog.settle()
    #expect(try reader.data("b", nil) == nil)
    #expect(try program.data("b", nil) == Data([2]))
    try reader.close()
    try program.close()
  }

  @Test("does not share the reserve, nor what was verified")
  func otherFiles() throws {
    let place = try StorePlace()
    let program = try place.engine()
    _ = try program.put("a", [1], PutOptions())
    _ = try program.verify()
    let copy = FilePath(try Self.link(place))
    let verified = try Data(contentsOf: URL(filePath: copy.appending("verified").string))
    _ = try program.put("b", [2], PutOptions())
    _ = try program.verify()
    #expect(try Data(contentsOf: URL(filePath: copy.appending("verified").string)) == verified)
    program.keepReserve()
    let status = try #require(try SystemFiles().status(of: FilePath(place.path).appending("reserve")))
    #expect(status.linkCount == 1 && status.allocatedByteCount >= 512 << 10)
    try program.close()
  }
}

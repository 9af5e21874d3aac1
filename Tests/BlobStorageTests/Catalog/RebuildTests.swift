import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A catalog")
struct RebuildTests {
  enum Harm: String, CaseIterable {
    case noFolder, noState, garbageState, noDatabase, emptyDatabase, garbage, truncated, foreign, otherBoot
  }

  /// A store with some history, closed; a damaged catalog loses nothing of it.
  private static func filled() throws -> (StorePlace, [String]) {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024))
    let engine = try place.engine()
    var random = SplitMix64(seed: 11)
    for index in 0..<300 {
      let options = PutOptions(
        durability: .relaxed, replacement: index % 3 == 0 ? .replaceCurrent : .archiveCurrent,
        metadata: [UInt8(index % 250)])
      _ = try engine.put("key-\(index % 40)", random.bytes(index * 7), options)
    }
    _ = try engine.delete(["key-3", "key-5"], .relaxed)
    let before = try contents(of: engine)
    try engine.close()
    return (place, before)
  }

  @Test("that is harmed is rebuilt from the packs", arguments: Harm.allCases)
  func harm(_ harm: Harm) throws {
    let (place, before) = try Self.filled()
    let database = try place.databaseFile()
    let state = place.catalogFolder.appending(path: "state")
    var environment = Engine.Environment()
    switch harm {
    case .noFolder: try place.removeCatalog()
    case .noState: try FileManager.default.removeItem(at: state)
    case .garbageState: try Data("1 ../.. clean\n".utf8).write(to: state)
    case .noDatabase: try FileManager.default.removeItem(at: database)
    case .emptyDatabase: try Data().write(to: database)
    case .garbage:
      var random = SplitMix64(seed: 4)
      try Data(random.bytes(try Data(contentsOf: database).count)).write(to: database)
    case .truncated:
      let bytes = try Data(contentsOf: database)
      try bytes.prefix(bytes.count / 2).write(to: database)
    case .foreign:
      let (other, _) = try Self.filled()
      try Data(contentsOf: try other.databaseFile()).write(to: database)
    case .otherBoot:
      // As a power cut leaves it: written to in a boot that is over.
      var written = try #require(CatalogState(try String(contentsOf: state, encoding: .utf8)))
      written.clean = nil
      written.mark.boot = "another-boot"
      try Data(written.text.utf8).write(to: state)
      environment.bootIdentity = "this-boot"
    }
    let engine = try place.engine(environment)
    #expect(try contents(of: engine) == before)
    #expect(try Data(contentsOf: place.databaseFile()).count > 4_096)
    _ = try engine.put("new", [1])
    try engine.close()
    let again = try place.engine(environment)
    #expect(try contents(of: again).count == before.count + 1)
    try again.close()
  }

  @Test("that is closed is opened again as it is, and one value that changed under it is noticed")
  func guards() throws {
    let (place, before) = try Self.filled()
    let database = try place.databaseFile()
    let unharmed = try place.engine()
    #expect(try place.databaseFile() == database, "nothing was rebuilt")
    let version = try #require(try unharmed.version("key-7", nil))
    try unharmed.close()
    // The digest in the version's row, wherever a page has it.
    var bytes = [UInt8](try Data(contentsOf: database))
    let digest = version.digest.withUnsafeBytes { Array($0) }
    var hits = 0
    for start in 0..<bytes.count - 32
    where bytes[start] == digest[0] && Array(bytes[start..<start + 32]) == digest {
      bytes[start + 31] ^= 1
      hits += 1
    }
    #expect(hits > 0)
    try Data(bytes).write(to: database)
    let engine = try place.engine()
    #expect(try contents(of: engine) == before)
    #expect(try place.databaseFile() != database, "it was rebuilt")
    try engine.close()
  }

  @Test("is opened while the last one that has it open in the process closes it")
  func closedMeanwhile() throws {
    let temporary = try TemporaryFolder()
    let first = Mutex<Catalog?>(nil)
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "status", path.lastComponent?.string == "data.mdb" else { return }
      // The opening below looks at the database of the first.
      let last = first.withLock { $0.take() }
      last?.close()
    }
    let catalog = try CatalogPlace.open(in: temporary, files: files)
    first.withLock { $0 = catalog }
    let second = try ending { try CatalogPlace.open(in: temporary) }
    #expect(first.withLock { $0 == nil })
    let opened = try #require(second, "it would wait for ever")
    #expect(try opened.packRows().isEmpty)
    opened.close()
  }

  @Test("is not rebuilt again by a writer that found it damaged, once another has rebuilt it")
  func rebuiltMeanwhile() throws {
    let temporary = try TemporaryFolder()
    let one = try CatalogPlace.open(in: temporary)
    let two = try CatalogPlace.open(in: temporary) { () throws(BlobStorageError) in
      try one.rebuild(because: nil)
    }
    var isFirst = true
    try two.write { (_) throws(BlobStorageError) in
      defer { isFirst = false }
      if isFirst { throw BlobStorageError(.catalogDamaged, "A row is damaged.") }
    }
    #expect(two.generation == one.generation)
    one.close()
    two.close()
  }

  @Test("can be changed while a process has it open that may not make it anew")
  func refused() throws {
    let temporary = try TemporaryFolder()
    try CatalogPlace.open(in: temporary).close()
    try SystemFiles().remove(temporary.path.appending("catalog/state"))
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "rename" || call == "createDirectory",
        path.lastComponent?.string.hasPrefix("g") == true
      else { return }
      throw .systemCall(call, path: path, errno: Errno.permissionDenied.rawValue)
    }
    let reader = try CatalogPlace.open(in: temporary, files: files)
    let isChanged = try ending {
      let catalog = try CatalogPlace.open(in: temporary)
      defer { catalog.close() }
      try catalog.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
      return true
    }
    #expect(isChanged == true, "it would wait for ever")
    reader.close()
  }

  @Test("has each chunk walked over and marked once, also if it is rebuilt in the middle")
  func rebuiltInTheMiddle() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    for byte in [1, 2, 3] as [UInt8] { _ = try engine.put("\(byte)", [byte]) }
    let digests = ([1, 2, 3] as [UInt8]).map { BlobDigest.of([$0]) }.sorted()
    var found: [BlobDigest] = []
    var isFirst = true
    try engine.catalog.forEachChunk { (digest, _, _) throws(BlobStorageError) in
      defer { isFirst = false }
      if isFirst { throw BlobStorageError(.catalogDamaged, "A row is damaged.") }
      found.append(digest)
      return true
    }
    #expect(found == digests)
    let generation = engine.catalog.generation
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      // The distance to a frame before the pack's beginning.
      var row = [UInt8](repeating: 0, count: 21)
      row[20] = 1
      try transaction.put(.chunks, digests[2].withUnsafeBytes { Array($0) }, row)
    }
    var marker = Marker(engine.blobs, engine.folder)
    try marker.markVersions()
    #expect(engine.catalog.generation != generation)
    #expect(marker.blobCount == 3)
    try engine.close()
  }

  @Test("is shared by all that have the store open in one process")
  func shared() throws {
    let place = try StorePlace()
    let one = try place.engine()
    let two = try place.engine()
    _ = try one.put("a", [1])
    #expect(try two.data("a", nil) == Data([1]))
    _ = try two.put("a", [2])
    #expect(try one.data("a", nil) == Data([2]))
    try one.catalog.rebuild(because: nil)
    #expect(try two.data("a", nil) == Data([2]))
    _ = try two.put("b", [3])
    #expect(try one.data("b", nil) == Data([3]))
    try one.close()
    _ = try two.put("c", [4])
    try two.close()
    let three = try place.engine()
    #expect(try three.keys("", after: nil, limit: 9).map(\.key) == ["a", "b", "c"])
    try three.close()
  }
}

import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("A stray object in a store that machines share")
struct RemoteStrayTests {
  private let machines: SharedMachines

  init() throws { machines = try SharedMachines() }

  /// A fresh machine reads, writes and collects, and a collection reports these obstacles.
  private func use(_ key: String, _ expected: inout [String: [UInt8]], obstacleCount: Int = 0) throws {
    var random = SplitMix64(seed: UInt64(expected.count))
    let engine = try machines.engine("machine \(key)")
    for (key, bytes) in expected { #expect(try engine.data(key, nil) == Data(bytes)) }
    expected[key] = random.bytes(20_000)
    _ = try engine.put(key, expected[key] ?? [], PutOptions())
    _ = try engine.put("gone", random.bytes(20_000), PutOptions())
    _ = try engine.delete(["gone"], .durable)
    let report = try engine.collectGarbage(SharedMachines.everything)
    #expect(report.obstacles.count == obstacleCount, "\(report.obstacles)")
    #expect((report.deletedPackCount > 0) == (obstacleCount == 0))
    try engine.close()
  }

  private static let names = [
    "collections/", "collections/readme", "collections/0000ffff", "packs/", "packs/readme", "packs/1-1.pack",
    "changes/", "changes/00000004", "changes/ffffffff", "writers/", "writers/readme",
    "writers/00000000000000aa", "acks/", "acks/readme", "acks/00000001/readme",
    "acks/00000001/00000000000000aa", "readme", "unknown/readme",
  ]

  @Test("stops no machine, whatever it is called, empty or not", arguments: [0, 4, 1_000])
  func stray(_ byteCount: Int) throws {
    let bytes = byteCount == 4 ? Array("text".utf8) : [UInt8](repeating: 7, count: byteCount)
    var expected: [String: [UInt8]] = [:]
    try use("before", &expected)
    for name in Self.names { machines.store.set(name, bytes) }
    try use("beside", &expected)
    try machines.check(expected, "beside them")
    for name in Self.names {
      // Only what may be a registration or an ack is taken for one, and goes with the collection.
      let goes = name == "writers/00000000000000aa" || name == "acks/00000001/00000000000000aa"
      #expect(machines.store.peek(name) == (goes ? nil : bytes), "\(name)")
    }
  }

  private func packHeader(_ name: PackName, storeID: [UInt8], version: UInt16) -> [UInt8] {
    var bytes = PackHeader(name: name, storeID: storeID, digestAlgorithm: .blake3, created: 1).encoded()
    withUnsafeBytes(of: version.littleEndian) { bytes.replaceSubrange(8..<10, with: $0) }
    var writer = ByteWriter(capacity: bytes.count)
    writer.raw(Array(bytes.dropLast(4)))
    writer.checksum()
    return writer.bytes
  }

  @Test(
    "that is a pack of another store is left alone, whatever its version", arguments: [2, 99] as [UInt16])
  func otherStore(_ version: UInt16) throws {
    var expected: [String: [UInt8]] = [:]
    try use("before", &expected)
    // Its predecessors are not missed.
    let name = PackName(writer: 0xaa, sequence: 5)
    let bytes = packHeader(name, storeID: [UInt8](repeating: 9, count: 16), version: version) + [1, 2, 3]
    machines.store.set(SharedNames.pack(name), bytes)
    try use("beside", &expected)
    try machines.check(expected, "beside a pack of another store")
    #expect(machines.store.peek(SharedNames.pack(name)) == bytes)
  }

  @Test("that is a pack of a later build stops collections, and nothing else")
  func laterBuild() throws {
    var expected: [String: [UInt8]] = [:]
    try use("before", &expected)
    let name = PackName(writer: 0xaa, sequence: 1)
    let storeID = Array(machines.store.peek(SharedNames.store)?.dropFirst(32).prefix(16) ?? [])
    machines.store.set(
      SharedNames.pack(name),
      packHeader(name, storeID: storeID, version: 99) + [UInt8](repeating: 1, count: 99))
    try use("beside", &expected, obstacleCount: 1)
    let engine = try machines.engine("other")
    #expect(try engine.verify().damaged.map(\.pack).allSatisfy { $0 == "\(name)" })
    // This build cannot tell what is in it, so it accepts no loss.
    #expect(try engine.repair(acceptsLosses: true).hasLaterRecords)
    #expect(try engine.collectGarbage(SharedMachines.everything).obstacles.count == 1)
    for (key, bytes) in expected { #expect(try engine.data(key, nil) == Data(bytes)) }
    #expect(machines.store.peek(SharedNames.pack(name)) != nil)
  }

  /// Fails if names that a living writer has yet to use are removed from the store for ever.
  @Test(
    "under a later name of a living writer is named, and the loss of what seems to lie before it not accepted"
  )
  func laterName() throws {
    var random = SplitMix64.announced()
    let living = try machines.engine("one")
    _ = try living.put("a", Array("first".utf8), PutOptions())
    let writer = living.writer.writerID
    let object = SharedNames.pack(PackName(writer: writer, sequence: 5))
    machines.store.set(object, random.bytes(500))
    let repairing = try machines.engine("two")
    let error = failure { _ = try repairing.repair(acceptsLosses: true) }
    #expect(error?.code == .corrupted && error?.message.contains(object) == true, "\(error as Any)")
    try repairing.close()
    #expect(machines.names("collections/") == [])
    machines.store.set(object, nil)
    for key in ["b", "c"] { _ = try living.put(key, Array(key.utf8), PutOptions()) }
    #expect(living.writer.writerID == writer)
    try living.close()
    let expected = ["a": Array("first".utf8), "b": Array("b".utf8), "c": Array("c".utf8)]
    try machines.check(expected, "when the stray object is gone")
  }

  /// Fails if a store waits for ever for a dead writer, because its registration says less than it has published.
  @Test(
    "in the place of a dead writer's last pack ends as a loss: at once if it has the pack's header, else after a fence",
    arguments: [true, false])
  func lastOfDead(_ hasHeader: Bool) throws {
    var random = SplitMix64.announced()
    let kept = random.bytes(20_000)
    let other = try machines.engine("other")
    _ = try other.put("kept", kept, PutOptions())
    try other.close()
    var dying: Engine? = try machines.engine("one")
    _ = try dying?.put("lost", random.bytes(20_000), PutOptions())
    let writer = try #require(dying?.writer.writerID)
    dying = nil
    let object = SharedNames.pack(PackName(writer: writer, sequence: 1))
    var bytes = random.bytes(500)
    if hasHeader {
      // Damaged from the first record up to the trailer, so that neither records nor footer can be read.
      bytes = try #require(machines.store.peek(object))
      let end = bytes.count - PackFooter.Trailer.byteCount
      bytes.replaceSubrange(
        PackHeader.byteCount..<end, with: random.bytes(end - PackHeader.byteCount))
    }
    machines.store.set(object, bytes)
    let repairing = try machines.engine("two")
    if !hasHeader {
      let error = failure { _ = try repairing.repair(acceptsLosses: true) }
      #expect(
        error?.code == .corrupted && error?.message.contains("--fence \(Hex.text(writer))") == true,
        "\(error as Any)")
      var options = SharedMachines.everything
      options.fencedWriters = [Hex.text(writer)]
      #expect(try repairing.collectGarbage(options).obstacles.count == 1)
    }
    _ = try repairing.repair(acceptsLosses: true)
    #expect(try repairing.collectGarbage(SharedMachines.everything).obstacles == [])
    try repairing.close()
    try machines.check(["kept": kept], "when the loss is accepted")
  }
}

import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("A damaged base", .serialized)
struct DamagedBaseTests {
  /// Flips a bit in the payload of a chunk, or where the payload of its frame begins.
  static func damage(_ digest: BlobDigest, in place: StorePlace) throws {
    let engine = try place.engine()
    let (row, name) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      let row = try transaction.chunkRow(digest)
      return (
        row, try row.flatMap { row throws(BlobStorageError) in try transaction.packRow(row.place.pack) }?.name
      )
    }
    try engine.close()
    let chunk = try #require(row)
    let url = URL(filePath: place.path).appending(path: "packs/\(try #require(name)).pack")
    var data = try Data(contentsOf: url)
    if let offset = chunk.frameOffset {
      let header = try bridge(Array(data.dropFirst(Int(offset)).prefix(RecordHeader.byteCountMax))) {
        (raw) throws(BlobStorageError) in try RecordHeader(raw)
      }
      data[Int(offset) + header.byteCount + header.metaByteCount] ^= 4
    } else {
      data[Int(chunk.payloadOffset) + chunk.storedByteCount / 2] ^= 4
    }
    try data.write(to: url)
  }

  /// Two versions of a key, the second encoded against the first, and another key that needs neither.
  private static func versions() throws -> (place: StorePlace, bytes: [[UInt8]], digests: [BlobDigest]) {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 1)
    var bytes = [seed.text(9_000)]
    bytes.append(bytes[0])
    bytes[1].replaceSubrange(4_000..<4_010, with: Array("0123456789".utf8))
    bytes.append(seed.bytes(5_000))
    var digests: [BlobDigest] = []
    for (key, content) in zip(["a", "a", "b"], bytes) {
      let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
      digests.append(try engine.put(key, content, options).version.digest)
    }
    #expect(try BlobInformation.find(engine, "a", nil)?.basedChunkCount == 1)
    try engine.close()
    return (place, bytes, digests)
  }

  private static func read(_ engine: Engine, _ digest: BlobDigest) throws -> [UInt8]? {
    do { return try engine.data(digest).map { [UInt8]($0) } } catch {
      #expect(error.code == .corrupted)
      return nil
    }
  }

  @Test(
    "is reported with what depends on it, and healed by a put of its bytes",
    arguments: [false, true], [false, true])
  func base(repairs: Bool, rebuilds: Bool) throws {
    let (place, bytes, digests) = try Self.versions()
    try Self.damage(digests[0], in: place)
    if rebuilds { try place.removeCatalog() }
    let engine = try place.engine()
    let found = try engine.verify().damaged
    #expect(Set(found.compactMap(\.digest)) == Set(digests[0...1]))
    #expect(found.allSatisfy { $0.keys == ["a"] })
    let dependant = try #require(found.first { $0.digest == digests[1] })
    #expect(dependant.reason.contains("its base is damaged") && dependant.reason.contains("\(digests[0])"))
    #expect(try Self.read(engine, digests[0]) == nil)
    #expect(try Self.read(engine, digests[1]) == nil)
    #expect(try Self.read(engine, digests[2]) == bytes[2])
    if repairs {
      let report = try engine.repair()
      #expect(report.setAside.count == 1)
      #expect(Set(report.damaged.compactMap(\.digest)) == Set(digests[0...1]))
      #expect(Set(report.unreadable.map(\.digest)) == Set(digests[0...1]))
      // Lost for good: what needs it is missing, and told.
      #expect(try engine.verify().damaged.contains { $0.keys == ["a"] })
      #expect(try Self.read(engine, digests[1]) == nil)
      #expect(try Self.read(engine, digests[2]) == bytes[2])
    }
    // Something similar is there by now: a base must come back without a base.
    var similar = bytes[0]
    similar.replaceSubrange(7_000..<7_010, with: Array("0123456789".utf8))
    _ = try engine.put("similar", similar)
    _ = try engine.put("again", bytes[0])
    for number in 0...2 { #expect(try Self.read(engine, digests[number]) == bytes[number], "\(number)") }
    try engine.close()
    let again = try place.engine()
    if repairs { #expect(try again.verify().damaged.isEmpty) }
    try again.close()
    try place.removeCatalog()
    let rebuilt = try place.engine()
    for number in 0...2 { #expect(try Self.read(rebuilt, digests[number]) == bytes[number], "\(number)") }
    try rebuilt.close()
  }

  @Test(
    "in a frame is reported with the frame's members and what depends on it, and healed by a put of its bytes",
    arguments: [false, true])
  func member(rebuilds: Bool) throws {
    let place = try StorePlace()
    var environment = Engine.Environment()
    environment.joinsItems = true
    let writer = try place.engine(environment)
    var seed = SplitMix64(seed: 2)
    var bytes = (0..<4).map { _ in seed.text(6_000) }
    _ = try writer.put((0..<3).map { PutItem(key: "\($0)", data: Data(bytes[$0])) }, .relaxed)
    // The next version of the first key is encoded against a member; the other key needs neither.
    bytes.append(bytes[0])
    bytes[4].replaceSubrange(3_000..<3_010, with: Array("0123456789".utf8))
    _ = try writer.put("0", bytes[4], PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    _ = try writer.put("3", bytes[3])
    #expect(try BlobInformation.find(writer, "0", nil)?.basedChunkCount == 1)
    let digests = bytes.map { BlobDigest.of($0) }
    let rows = try writer.catalog.read { (transaction) throws(BlobStorageError) in
      try digests.map { (digest) throws(BlobStorageError) in try transaction.chunkRow(digest) }
    }
    #expect(rows.map { $0?.frameOffset != nil } == [true, true, true, false, false])
    try writer.close()
    try Self.damage(digests[0], in: place)
    if rebuilds { try place.removeCatalog() }
    let engine = try place.engine()
    let found = try engine.verify().damaged
    #expect(Set(found.compactMap(\.digest)) == Set(digests[0...2] + [digests[4]]))
    #expect(found.first { $0.digest == digests[1] }?.keys == ["1"])
    let dependant = try #require(found.first { $0.digest == digests[4] })
    #expect(dependant.keys == ["0"] && dependant.reason.contains("its base is damaged"))
    #expect(dependant.reason.contains("\(digests[0])"))
    #expect(try Self.read(engine, digests[4]) == nil)
    #expect(try Self.read(engine, digests[3]) == bytes[3])
    _ = try engine.put("again", bytes[0])
    #expect(try Self.read(engine, digests[0]) == bytes[0])
    #expect(try Self.read(engine, digests[4]) == bytes[4])
    #expect(Set(try engine.verify().damaged.compactMap(\.digest)) == Set(digests[1...2]))
    try engine.close()
    try place.removeCatalog()
    let rebuilt = try place.engine()
    for number in [0, 3, 4] { #expect(try Self.read(rebuilt, digests[number]) == bytes[number], "\(number)") }
    try rebuilt.close()
  }

  @Test("that a read has found does not prevent a put from healing what needs it")
  func dependantAlone() throws {
    let (place, bytes, digests) = try Self.versions()
    try Self.damage(digests[0], in: place)
    let engine = try place.engine()
    #expect(try Self.read(engine, digests[1]) == nil)
    #expect(try engine.put("again", bytes[1]).newByteCount > 0)
    #expect(try Self.read(engine, digests[1]) == bytes[1])
    try engine.close()
  }
}

import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// What a get compares bytes with, on a blob of noise, whose chunk is stored as it is.
@Suite("The verification of a get")
struct VerificationTests {
  private static let both = [Verification.digest, .checksum]

  private let place: StorePlace
  private let engine: Engine
  private let noise: [UInt8]

  init() throws {
    place = try StorePlace()
    engine = try place.engine()
    var random = SplitMix64.announced()
    noise = random.bytes(10_000)
    _ = try engine.put("a", noise)
  }

  /// Where the chunk lies.
  private func row() throws -> (row: ChunkRow, pack: PackName) {
    let digest = BlobDigest.of(noise)
    return try #require(
      try engine.catalog.read { (view) throws(BlobStorageError) in
        guard let row = try view.chunkRow(digest), let pack = try view.packRow(row.place.pack) else {
          return nil
        }
        return (row, pack.name)
      })
  }

  /// Changes the chunk's record as it lies in the pack.
  private func changeRecord(_ change: (inout [UInt8], ChunkRow, PackName) -> Void) throws {
    let (row, pack) = try row()
    let path = FilePath(place.path).appending("packs").appending(pack.fileName)
    let file = try SystemFiles().open(path, .readWrite)
    defer { file.close() }
    var bytes = try file.bytesThere(at: row.place.offset, row.recordByteCount)
    change(&bytes, row, pack)
    try file.put(bytes, at: row.place.offset)
  }

  private func expectDamage(_ verification: Verification, _ comment: Comment? = nil) {
    let error = #expect(throws: BlobStorageError.self, comment) {
      try engine.data("a", nil, verification)
    }
    #expect(error?.code == .corrupted, comment)
  }

  @Test("of a chunk that was damaged and is whole again ends its being doubtful", arguments: [false, true])
  func restored(_ isVerified: Bool) throws {
    let flip = { (bytes: inout [UInt8], row: ChunkRow, _: PackName) in
      bytes[Int(row.payloadOffset - row.place.offset) + 5_000] ^= 1
    }
    try changeRecord(flip)
    expectDamage(.digest)
    #expect(try row().row.isSuspect)
    // It is damaged still.
    #expect(try !engine.verify().damaged.isEmpty)
    #expect(try row().row.isSuspect)
    #expect(try engine.collectGarbage().obstacles.isEmpty == false)
    try changeRecord(flip)
    if isVerified {
      #expect(try engine.verify().damaged.isEmpty)
    } else {
      #expect(try engine.data("a", nil) == Data(noise))
    }
    #expect(try !row().row.isSuspect)
    #expect(try engine.collectGarbage().obstacles == [])
  }

  @Test("does not change what comes back", arguments: both, [CodecKind.zstd, .none])
  func sameBytes(_ verification: Verification, _ codec: CodecKind) throws {
    var random = SplitMix64.announced()
    for count in [0, 1, 9_999, 70_000, 600_000] {
      for bytes in [random.bytes(count), Array(repeating: 7, count: count)] {
        let options = PutOptions(durability: .relaxed, codec: codec)
        let digest = try engine.put("k", .data(Data(bytes)), options).version.digest
        #expect(try engine.data("k", nil, verification) == Data(bytes), "\(count) bytes")
        #expect(try engine.data(digest, verification) == Data(bytes), "\(count) bytes")
      }
    }
  }

  @Test("detects each flipped bit of the bytes", arguments: both)
  func flippedBit(_ verification: Verification) throws {
    for index in stride(from: 0, to: noise.count, by: 997) {
      let flip = { (bytes: inout [UInt8], row: ChunkRow, _: PackName) in
        bytes[Int(row.payloadOffset - row.place.offset) + index] ^= 1 << (index % 8)
      }
      try changeRecord(flip)
      expectDamage(verification, "byte \(index)")
      try changeRecord(flip)
      #expect(try engine.data("a", nil, verification) == Data(noise))
    }
  }

  @Test("accepts right bytes whose record is damaged elsewhere", arguments: both)
  func flippedHeader(_ verification: Verification) throws {
    for index in [0, 12, 20, 60, -1] {
      let flip = { (bytes: inout [UInt8], _: ChunkRow, _: PackName) in
        bytes[index < 0 ? bytes.count + index : index] ^= 1
      }
      let payload = try row().row.payloadOffset - row().row.place.offset
      guard index < payload else { continue }
      try changeRecord(flip)
      #expect(try engine.data("a", nil, verification) == Data(noise), "byte \(index)")
      try changeRecord(flip)
    }
  }

  private static func checksum(of record: [UInt8], payloadAt start: Int) -> UInt32 {
    let raw = record.span.bytes
    let header = record.withUnsafeBytes { bytes in (try? RecordHeader(bytes))?.writtenChecksum(bytes) ?? 0 }
    return RecordHeader.payloadChecksum(
      raw.extracting(start..<raw.byteCount - 4), continuing: header)
  }

  @Test("is by digest unless asked for otherwise: a checksum can be made to match other bytes")
  func forged() async throws {
    let store = try await place.opened()
    try changeRecord { bytes, row, pack in
      let start = Int(row.payloadOffset - row.place.offset)
      bytes[start] ^= 1
      let checksum = Self.checksum(of: bytes, payloadAt: start)
      bytes.removeLast(4)
      withUnsafeBytes(of: checksum.littleEndian) { bytes.append(contentsOf: $0) }
    }
    var other = Data(noise)
    other[0] ^= 1
    // Also without a hop: the first read has opened the pack.
    for _ in 0..<2 { #expect(try await store.data(forKey: "a", verification: .checksum) == other) }
    #expect(try await store.data(for: BlobDigest.of(noise), verification: .checksum) == other)
    #expect(try store.blocking.data(forKey: "a", verification: .checksum) == other)
    let byKey = await #expect(throws: BlobStorageError.self) { try await store.data(forKey: "a") }
    #expect(byKey?.code == .corrupted)
    let byDigest = await #expect(throws: BlobStorageError.self) {
      try await store.data(for: BlobDigest.of(noise))
    }
    #expect(byDigest?.code == .corrupted)
    expectDamage(.digest)
    try await store.close()
  }

  @Test("by checksum rejects the whole record of another chunk in its place")
  func exchanged() throws {
    let other = Array(noise.reversed())
    _ = try engine.put("b", other)
    let digest = BlobDigest.of(other)
    let found = try engine.catalog.read { (view) throws(BlobStorageError) in
      try view.chunkRow(digest)?.place.offset
    }
    let offset = try #require(found)
    let path = FilePath(place.path).appending("packs").appending(try row().pack.fileName)
    let file = try SystemFiles().open(path, .read)
    defer { file.close() }
    try changeRecord { bytes, row, _ in
      bytes = (try? file.bytesThere(at: offset, row.recordByteCount)) ?? []
    }
    expectDamage(.checksum)
  }
}

import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Content that streams in: chunks that follow each other share frames.
@Suite("Long content that compresses", .serialized)
struct LongFrameTests {
  private static let bytes: [UInt8] = {
    var seed = SplitMix64(seed: 5)
    return seed.text(5 << 20)
  }()

  /// The same in pieces of a chunk's usual length.
  private static var pieces: [[UInt8]] {
    stride(from: 0, to: bytes.count, by: 64 << 10).map { Array(bytes[$0..<min($0 + 64 << 10, bytes.count)]) }
  }

  private static func put(_ engine: Engine, _ key: String, _ bytes: [UInt8] = bytes) throws -> PutResult {
    let rest = Mutex(bytes[...])
    let content = BlobContent.stream {
      rest.withLock { rest in
        defer { rest = rest.dropFirst(300_000) }
        return rest.isEmpty ? nil : Data(rest.prefix(300_000))
      }
    }
    return try engine.put(key, content, .relaxed)
  }

  /// The packs' chunks, by the places of their records.
  private static func chunks(_ place: StorePlace) throws -> [(path: FilePath, record: PackRecord)] {
    let packs = FilePath(place.path).appending("packs")
    let backend = FolderBackend(folder: packs, asideFolder: packs, files: SystemFiles())
    return try backend.packNames().live.flatMap { name in
      let file = try #require(try backend.openPack(name))
      defer { file.close() }
      var records: [PackRecord] = []
      _ = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { record in
        if case .chunk = record.content { records.append(record) }
      }
      return records.map { (packs.appending(name.fileName), $0) }
    }
  }

  @Test(
    "lies in frames of up to 2 MiB, takes fewer bytes than chunk by chunk, and is read whole and in ranges")
  func stored() throws {
    let place = try StorePlace()
    var engine = try place.engine()
    let result = try Self.put(engine, "long")
    #expect(result.newByteCount == Int64(Self.bytes.count))
    let again = try Self.put(engine, "again")
    #expect(again.newByteCount == 0 && again.version.digest == result.version.digest)
    try engine.close()
    let records = try Self.chunks(place).map(\.record)
    let members = records.filter { $0.member != nil }
    #expect(records.count > 40 && members.count >= records.count - 4)
    let lengths = Set(members.map(\.recordRange)).map { range in
      members.first { $0.recordRange == range }?.member?.frameByteCount ?? 0
    }
    #expect(lengths.allSatisfy { $0 <= FrameBuilder.longPlainByteCountMax })
    #expect((lengths.max() ?? 0) > FrameBuilder.longPlainByteCountMax / 2)
    let alone = try Self.pieces.reduce(0) { sum, piece in
      try sum
        + CodecPool().withEncoder { (encoder) throws(BlobStorageError) in
          try encoder.withEncoded(piece.span.bytes, by: .zstd) { $1.count }
        }
    }
    #expect(members.reduce(0) { $0 + $1.byteCount } < alone)

    engine = try place.engine()
    #expect(try engine.data("long", nil) == Data(Self.bytes))
    #expect(try engine.verify(.blobs).damaged == [])
    try engine.close()
    var random = SplitMix64(seed: 1)
    // A fresh store each time: frames are decoded as far as a range needs, then further, then from the cache.
    for _ in 0..<6 {
      engine = try place.engine()
      let blob = try #require(try engine.openBlob("long", nil))
      for _ in 0..<12 {
        let start = Int64.random(in: 0..<Int64(Self.bytes.count), using: &random)
        let end = min(start + Int64.random(in: 1...900_000, using: &random), Int64(Self.bytes.count))
        #expect(
          Data(try blob.read(start..<end)) == Data(Self.bytes[Int(start)..<Int(end)]), "\(start)..<\(end)")
      }
      blob.close()
      try engine.close()
    }
  }

  @Test(
    "is read up to the damage of a frame, and healed by the same bytes", arguments: [100, 30_000, 400_000])
  func damaged(_ offset: Int) throws {
    let place = try StorePlace()
    var engine = try place.engine()
    _ = try Self.put(engine, "long")
    try engine.close()
    let members = try Self.chunks(place).filter { $0.record.member != nil }
    let (path, frame) = try #require(
      members.map { ($0.path, $0.record.recordRange) }.max { $0.1.count < $1.1.count })
    var file = try SystemFiles().bytes(of: path)
    file[Int(frame.upperBound) - offset] ^= 1
    try SystemFiles().write(file, to: path)

    engine = try place.engine()
    let named = Set(try engine.verify().damaged.compactMap(\.digest))
    #expect(!named.isEmpty)
    var digests: Set<BlobDigest> = []
    for case .chunk(let chunk) in members.map(\.record).filter({ $0.recordRange == frame }).map(\.content) {
      digests.insert(chunk.digest)
    }
    #expect(named.isSubset(of: digests))
    try engine.close()
    engine = try place.engine()
    let blob = try #require(try engine.openBlob("long", nil))
    for piece in 0..<Self.pieces.count {
      let start = Int64(piece * 64 << 10)
      let range = start..<min(start + 64 << 10, Int64(Self.bytes.count))
      do throws(BlobStorageError) {
        #expect(Data(try blob.read(range)) == Data(Self.pieces[piece]), "piece \(piece)")
      } catch {
        #expect(
          error.code == .corrupted && error.digest.map(named.contains) == true, "piece \(piece): \(error)")
      }
    }
    blob.close()
    #expect(failure { _ = try engine.data("long", nil) }?.code == .corrupted)
    #expect(try Self.put(engine, "long").newByteCount > 0)
    #expect(try engine.data("long", nil) == Data(Self.bytes))
    #expect(try engine.repair().unreadable.isEmpty)
    #expect(try engine.verify(.blobs).damaged == [])
    try engine.close()
  }
}

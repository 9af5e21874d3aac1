import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("Frames")
struct FrameFormatTests {
  static let digests = (0..<8).map { BlobDigest.of([UInt8($0)] as [UInt8]) }

  static let frame = FrameRecord(
    codecNumber: 1,
    members: [
      .init(digest: digests[0], plainByteCount: 3), .init(digest: digests[1], plainByteCount: 5_000),
      .init(digest: digests[2], plainByteCount: 1, features: SIMD3(1, 2, 0xffff_ffff)),
    ])

  private static func read(_ meta: [UInt8], _ payloadByteCount: Int = 100) throws -> FrameRecord {
    try decoding(meta) { (raw) throws(BlobStorageError) in
      try FrameRecord(meta: raw, payloadByteCount: payloadByteCount, algorithm: .blake3)
    }
  }

  private static func code(_ meta: [UInt8], _ payloadByteCount: Int = 100) -> BlobStorageError.Code? {
    failure { _ = try read(meta, payloadByteCount) }?.code
  }

  @Test("come back as they were written")
  func roundTrip() throws {
    let meta = Self.frame.encodedMeta()
    #expect(meta.count == Self.frame.metaByteCount && meta.count == 1 + 1 + 96 + 1 + 2 + 1 + 12)
    #expect(try Self.read(meta) == Self.frame)
    var other = Self.frame
    other.codecNumber = 9
    #expect(try Self.read(other.encodedMeta()) == other, "an unknown codec")
  }

  @Test("are refused one step beyond what is accepted")
  func bounds() throws {
    let meta = Self.frame.encodedMeta()
    #expect(Self.code(meta.dropLast()) == .corrupted)
    #expect(Self.code(meta + [0]) == .corrupted)
    #expect(Self.code([0] + meta.dropFirst()) == .corrupted, "plain bytes")
    // 5,004 plain bytes.
    #expect(Self.code(meta, 5_003) == nil)
    for count in [0, 5_004] { #expect(Self.code(meta, count) == .corrupted, "a payload of \(count)") }
    func frame(_ lengths: [Int]) -> [UInt8] {
      FrameRecord(
        codecNumber: 1, members: lengths.map { .init(digest: Self.digests[0], plainByteCount: $0) }
      ).encodedMeta()
    }
    #expect(Self.code(frame([60, 60])) == nil)
    #expect(Self.code(frame([120])) == .corrupted, "one member")
    #expect(Self.code(frame([])) == .corrupted, "no member")
    #expect(Self.code(frame([120, 0])) == .corrupted, "an empty member")
    #expect(Self.code(frame([1, (2 << 20) - 1])) == nil)
    #expect(Self.code(frame([1, 2 << 20])) == .corrupted, "more than 2 MiB")
    #expect(Self.code(frame([2 << 20, 2 << 20])) == .corrupted, "more than 2 MiB each")
    let most = frame(Array(repeating: 9, count: FrameRecord.memberCountMax))
    #expect(most.count <= BlobLimits.recordMetaByteCountMax && Self.code(most) == nil)
    #expect(most.count + 33 > BlobLimits.recordMetaByteCountMax)
    #expect(Self.code([1, 0xf9, 1] + most.dropFirst(3)) == .corrupted, "a member too many")
  }

  @Test("have members that cover the record, each with a place of its own")
  func places() throws {
    var random = SplitMix64(seed: 5)
    for _ in 0..<200 {
      let members = (0..<Int.random(in: 2...200, using: &random)).map { _ in
        FrameRecord.Member(
          digest: Self.digests[0],
          plainByteCount: Bool.random(using: &random) ? 1 : Int.random(in: 1...5_000, using: &random))
      }
      let frame = FrameRecord(codecNumber: 1, members: members)
      let payloadByteCount = max(1, Int.random(in: 0..<frame.plainByteCount, using: &random))
      let records = frame.records(at: 1_000, payloadByteCount: payloadByteCount)
      let byteCount = frame.header(payloadByteCount: payloadByteCount).recordByteCount
      var end: Int64 = 1_000
      var start = 0
      for (record, member) in zip(records, members) {
        #expect(record.offset == end && record.byteCount >= 32)
        #expect(record.recordRange == 1_000..<1_000 + Int64(byteCount))
        #expect(record.member?.start == start && record.frameOffset == 1_000)
        #expect(record.type == .frame && record.beginsRecord == (end == 1_000))
        end += Int64(record.byteCount)
        start += member.plainByteCount
      }
      #expect(end == 1_000 + Int64(byteCount))
    }
  }

  /// A pack with a chunk, a frame, and refs of its members.
  private static func write(_ place: PackPlace, seals: Bool) throws -> (PackHeader, [[UInt8]]) {
    let header = PackPlace.header()
    let plain = (0..<5).map { number in Array("member \(number) ".utf8) + Array(repeating: 120, count: 90) }
    let writer = try PackWriter(header: header, backend: place.backend, codecs: place.codecs)
    let first = SampleRecord.chunk([1, 2, 3])
    _ = try writer.append(first.content, payload: first.payload.span.bytes)
    let joined = Array(plain.joined())
    let stored = try place.codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(joined.span.bytes, by: .zstd) { _, stored in Array(stored) }
    }
    let frame = FrameRecord(
      codecNumber: 1, members: plain.map { .init(digest: BlobDigest.of($0), plainByteCount: $0.count) })
    let members = try writer.append(frame, payload: stored.span.bytes)
    #expect(members.count == 5)
    let refs = plain.enumerated().map { index, bytes in
      CommitRecord.Entry.ref(
        RefRecord(
          key: Array("key\(index)".utf8),
          version: Stamp(time: UInt64(1_000 + index) << 16, writer: header.name.writer),
          replaced: .none, digest: BlobDigest.of(bytes), byteCount: Int64(bytes.count), created: 1_000,
          metadata: []))
    }
    try writer.append(commit: refs) { _ in }
    try writer.flush()
    if seals { try writer.seal() }
    writer.file.close()
    return (header, plain)
  }

  @Test("are found again with their members, which refs name by their places", arguments: [true, false])
  func scanned(seals: Bool) throws {
    let place = try PackPlace()
    let (header, plain) = try Self.write(place, seals: seals)
    for verifies in [false, true] {
      let (records, outcome) = try place.scan(header.name, verifiesPayloads: verifies)
      #expect(outcome.gaps.isEmpty && outcome.isSealed == seals && outcome.recordCount == 11)
      var members: [BlobDigest] = []
      var refs: [BlobDigest] = []
      for record in records {
        switch record.content {
        case .chunk(let chunk) where record.member != nil: members.append(chunk.digest)
        case .ref(let ref): refs.append(ref.digest)
        default: break
        }
      }
      #expect(members == plain.map { BlobDigest.of($0) })
      #expect(refs == members)
      #expect(zip(records, records.dropFirst()).allSatisfy { $0.offset + Int64($0.byteCount) == $1.offset })
      #expect(records.last.map { $0.offset + Int64($0.byteCount) } == outcome.endOffset)
    }
  }

  @Test("that are torn belong to the torn tail, whole members included")
  func torn() throws {
    let place = try PackPlace()
    let (header, _) = try Self.write(place, seals: false)
    let bytes = try place.bytes(header.name)
    let (records, _) = try place.scan(header.name)
    let frame = try #require(records.first { $0.member != nil }).recordRange
    for end in frame.lowerBound..<frame.upperBound where end % 5 == 0 {
      try place.replace(header.name, with: Array(bytes[..<Int(end)]))
      let (found, outcome) = try place.scan(header.name)
      #expect(found.count == 1 && outcome.endOffset == frame.lowerBound && outcome.gaps.isEmpty)
    }
    try place.replace(header.name, with: Array(bytes[..<Int(frame.upperBound)]))
    #expect(try place.scan(header.name).records.count == 6)
  }

  @Test("of dead writers are listed by the footer that recovery writes")
  func recovered() throws {
    let place = try PackPlace()
    let (header, _) = try Self.write(place, seals: false)
    let before = try place.scan(header.name).records.map(\.summary)
    let file = try #require(try place.backend.adoptPack(header.name))
    let outcome = try PackScanner(file: file, name: header.name, codecs: place.codecs).scan { _ in }
    _ = try PackRecovery.seal(file, outcome, codecs: place.codecs)
    file.close()
    let (records, sealed) = try place.scan(header.name)
    #expect(sealed.isSealed && sealed.recordCount == 11)
    #expect(records.map(\.summary) == before)
  }
}

import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A pack")
struct PackScanTests {
  static let header = PackPlace.header()
  static let name = header.name

  /// A few records of every kind.
  static func records() -> [SampleRecord] {
    let plain = Array("some bytes of a chunk".utf8)
    let second = [UInt8](repeating: 9, count: 300)
    let first = Stamp(time: header.created + 1, writer: 5)
    let next = Stamp(time: header.created + 2, writer: 5)
    let entries = [plain, second].map { ChunkEntry(digest: BlobDigest.of($0), plainByteCount: $0.count) }
    return [
      .chunk(plain), .chunk(second), .chunk([]), .manifest(BlobDigest.of(plain + second), entries),
      .ref("a", first, digest: BlobDigest.of(plain), byteCount: 21), .ref("a", next, replaces: first),
      .drop("a", [next], at: Stamp(time: header.created + 3, writer: 5)), .chunk(Array("the last".utf8)),
    ]
  }

  @Test("gives back what was written, by its footer and record by record", arguments: [true, false])
  func roundTrip(isSealed: Bool) throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, Self.records(), seals: isSealed)
    for verifies in [false, true] {
      let (records, outcome) = try place.scan(Self.name, verifiesPayloads: verifies)
      #expect(records.map(\.summary) == written.map(\.summary))
      #expect(outcome.isSealed == isSealed)
      #expect(outcome.recordCount == written.count)
      #expect(outcome.gaps.isEmpty)
    }
  }

  @Test("cut off at any byte gives the whole records before it")
  func tornTail() throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, Self.records())
    let bytes = try place.bytes(Self.name)
    let ends = written.map { $0.offset + Int64($0.byteCount) }
    let footerOffset = try #require(ends.last)
    for count in 0..<bytes.count {
      try place.replace(Self.name, with: Array(bytes.prefix(count)))
      guard count >= PackHeader.byteCount else {
        #expect(failure { _ = try place.scan(Self.name) }?.code == .corrupted, "\(count) bytes")
        continue
      }
      let (records, outcome) = try place.scan(Self.name)
      let expected = written.filter { $0.offset + Int64($0.byteCount) <= Int64(count) }
      #expect(records.map(\.summary) == expected.map(\.summary), "\(count) bytes")
      #expect(!outcome.isSealed)
      #expect(outcome.gaps.isEmpty)
      #expect(
        outcome.endOffset == min(expected.last.map { $0.offset + Int64($0.byteCount) } ?? 64, footerOffset))
    }
  }

  @Test("that a dead writer left is cut, sealed, and then as good as any", arguments: [0, 1, 17, 64, 100])
  func recovery(torn: Int) throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, Self.records(), seals: false)
    let bytes = try place.bytes(Self.name)
    try place.replace(Self.name, with: bytes + [UInt8](repeating: 0x42, count: torn))
    let file = try #require(try place.backend.adoptPack(Self.name))
    let outcome = try PackScanner(file: file, name: Self.name, codecs: place.codecs).scan { _ in }
    let byteCount = try PackRecovery.seal(file, outcome, codecs: place.codecs)
    file.close()
    let sealed = try place.bytes(Self.name)
    #expect(sealed.count == Int(byteCount))
    #expect(sealed.starts(with: bytes))
    let (records, after) = try place.scan(Self.name)
    #expect(after.isSealed)
    #expect(records.map(\.summary) == written.map(\.summary))
  }

  @Test("that is filled ahead is read, recovered and sealed like any other", arguments: [true, false])
  func filledAhead(isSealed: Bool) throws {
    let place = try PackPlace()
    let plain = try PackPlace().write(Self.header, Self.records(), seals: false)
    let written = try place.write(Self.header, Self.records(), seals: isSealed, fillByteCount: 300)
    let end = try #require(plain.last.map { $0.offset + Int64($0.byteCount) })
    if !isSealed {
      let bytes = try place.bytes(Self.name)
      #expect(bytes.count > Int(end) && bytes[Int(end)...].allSatisfy { $0 == 0 })
    }
    let (records, outcome) = try place.scan(Self.name)
    #expect(records.map(\.summary) == written.map(\.summary))
    #expect(outcome.isSealed == isSealed)
    #expect(outcome.endOffset == end)
    #expect(outcome.gaps.isEmpty)
    guard !isSealed else { return }
    let file = try #require(try place.backend.adoptPack(Self.name))
    let byteCount = try PackRecovery.seal(file, outcome, codecs: place.codecs)
    file.close()
    #expect(try place.bytes(Self.name).count == Int(byteCount))
    #expect(try place.scan(Self.name).1.isSealed)
  }

  @Test("with a flipped bit in its footer is read record by record")
  func damagedFooter() throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, Self.records())
    let bytes = try place.bytes(Self.name)
    let footerOffset = try #require(written.last.map { Int($0.offset) + $0.byteCount })
    for offset in footerOffset..<bytes.count {
      // The trailer's reserved bytes are guarded by its checksum like all the others.
      var damaged = bytes
      damaged[offset] ^= 0x20
      try place.replace(Self.name, with: damaged)
      let (records, outcome) = try place.scan(Self.name)
      #expect(records.map(\.summary) == written.map(\.summary), "byte \(offset)")
      #expect(!outcome.isSealed)
      #expect(outcome.endOffset == Int64(footerOffset))
    }
  }

  @Test("damaged where it had been synced gives what is whole around the gap", arguments: [true, false])
  func gap(isSealed: Bool) throws {
    let place = try PackPlace()
    let synced = try PackPlace().write(Self.header, Self.records()).last.map {
      $0.offset + Int64($0.byteCount)
    }
    let last = SampleRecord.ref("last", Stamp(time: 1, writer: 1), synced: isSealed ? 0 : synced ?? 0)
    let written = try place.write(Self.header, Self.records() + [last], seals: isSealed)
    let bytes = try place.bytes(Self.name)
    let plain = Array("some bytes of a chunk".utf8)
    for (index, victim) in written.enumerated().dropLast() {
      for offset in stride(from: Int(victim.offset), to: Int(victim.offset) + victim.byteCount, by: 5) {
        var damaged = bytes
        damaged[offset] ^= 0x01
        try place.replace(Self.name, with: damaged)
        let (records, outcome) = try place.scan(Self.name, verifiesPayloads: true)
        var expected = written.map(\.summary)
        if index == 0, offset < Int(victim.offset) + victim.byteCount - 4 - plain.count {
          // Only a footer says what the ref's chunk was, and here it is not read.
          expected[4] = expected[4].replacing(
            "\(String(reflecting: BlobDigest.of(plain))), byteCount: 21",
            with: "\(String(reflecting: BlobDigest.unknown(.blake3))), byteCount: 1")
          #expect(expected[4] != written[4].summary)
        }
        expected.remove(at: index)
        #expect(records.map(\.summary) == expected, "byte \(offset)")
        #expect(outcome.gaps == [victim.offset..<written[index + 1].offset], "byte \(offset)")
      }
    }
  }

  @Test("with a hole where nothing says that it had been synced ends before it: a power cut leaves that")
  func hole() throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, Self.records(), seals: false)
    let bytes = try place.bytes(Self.name)
    for (index, victim) in written.enumerated() {
      var damaged = bytes
      for offset in Int(victim.offset)..<Int(victim.offset) + victim.byteCount { damaged[offset] = 0 }
      try place.replace(Self.name, with: damaged)
      let (records, outcome) = try place.scan(Self.name)
      #expect(records.map(\.summary) == written[..<index].map(\.summary))
      #expect(outcome.endOffset == victim.offset)
      #expect(outcome.gaps.isEmpty)
    }
  }

  @Test("under another pack's name is refused")
  func renamed() throws {
    let place = try PackPlace()
    try place.write(Self.header, Self.records())
    let other = PackName(writer: Self.name.writer, sequence: 2)
    try place.replace(other, with: try place.bytes(Self.name))
    let error = try #require(failure { _ = try place.scan(other) })
    #expect(error.code == .corrupted)
    #expect(error.pack == other.description)
  }

  @Test("with the footer of another pack is read record by record")
  func foreignFooter() throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, Self.records())
    let bytes = try place.bytes(Self.name)
    let footerOffset = try #require(written.last.map { Int($0.offset) + $0.byteCount })
    let foreign = PackPlace.header(sequence: 2)
    try place.write(foreign, Self.records())
    let foreignBytes = try place.bytes(foreign.name)
    try place.replace(Self.name, with: Array(bytes[..<footerOffset] + foreignBytes[footerOffset...]))
    let (records, outcome) = try place.scan(Self.name)
    #expect(records.map(\.summary) == written.map(\.summary))
    #expect(!outcome.isSealed)
  }

  @Test("takes no record that belongs to another pack, or to another place in it")
  func foreignRecords() throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, Self.records(), seals: false)
    let bytes = try place.bytes(Self.name)
    let foreign = PackPlace.header(sequence: 2)
    try place.write(foreign, Self.records(), seals: false)
    let foreignBytes = try place.bytes(foreign.name)
    try place.replace(Self.name, with: Array(bytes[..<64] + foreignBytes[64...]))
    #expect(try place.scan(Self.name).records.isEmpty)
    // A chunk whose bytes are a pack's records, as in a store that keeps stores: its payload is no record.
    try place.replace(Self.name, with: bytes + [0] + Array(bytes[64...]))
    let (records, outcome) = try place.scan(Self.name)
    #expect(records.map(\.summary) == written.map(\.summary))
    #expect(outcome.endOffset == Int64(bytes.count))
  }

  @Test("takes no payload that stands behind another record's header")
  func foreignPayload() throws {
    let place = try PackPlace()
    let plain = [UInt8](repeating: 1, count: 50)
    let other = [UInt8](repeating: 2, count: 50)
    let written = try place.write(Self.header, [.chunk(plain), .chunk(other)])
    var bytes = try place.bytes(Self.name)
    // Payload and checksum of the second chunk in place of the first's.
    let count = 54
    let first = Int(written[0].offset) + written[0].byteCount - count
    let second = Int(written[1].offset) + written[1].byteCount - count
    bytes.replaceSubrange(first..<first + count, with: bytes[second..<second + count])
    try place.replace(Self.name, with: bytes)
    let (records, outcome) = try place.scan(Self.name, verifiesPayloads: true)
    #expect(records.map(\.summary) == [written[1].summary])
    #expect(outcome.gaps == [written[0].offset..<written[1].offset])
  }

  @Test("with a commit that goes on is taken without it until the commit's last record is there")
  func unfinishedCommit() throws {
    let place = try PackPlace()
    func stamp(_ number: UInt64) -> Stamp { Stamp(time: number, writer: 5) }
    let records: [SampleRecord] = [
      .chunk([1]), .ref("before", stamp(1)), .ref("a", stamp(2), continues: true),
      .ref("b", stamp(3), continues: true), .drop("c", [stamp(1)], at: stamp(4)), .ref("after", stamp(5)),
    ]
    let written = try place.write(Self.header, records, seals: false)
    let bytes = try place.bytes(Self.name)
    func found(_ count: Int64) throws -> (Int, Int64) {
      try place.replace(Self.name, with: Array(bytes.prefix(Int(count))))
      let (records, outcome) = try place.scan(Self.name)
      #expect(outcome.recordCount == records.count)
      return (records.count, outcome.endOffset)
    }
    #expect(try found(written[2].offset) == (2, written[2].offset))
    #expect(try found(written[3].offset) == (2, written[2].offset))
    #expect(try found(written[4].offset) == (2, written[2].offset))
    #expect(try found(written[5].offset - 1) == (2, written[2].offset))
    #expect(try found(written[5].offset) == (5, written[5].offset))
    #expect(try found(Int64(bytes.count)) == (6, Int64(bytes.count)))
  }

  @Test("is taken without a commit that takes more memory than it may, which is damage where it was synced")
  func hugeCommit() throws {
    func stamp(_ number: UInt64) -> Stamp { Stamp(time: number, writer: 5) }
    let commit: [SampleRecord] = [
      .ref("x", stamp(1)), .ref("a", stamp(2), continues: true), .ref("b", stamp(3), continues: true),
      .ref("c", stamp(4)),
    ]
    // 129 bytes each, by their own account.
    let memoryByteCount = 3 * 129
    let last = try #require(try PackPlace().write(Self.header, commit, seals: false).last)
    for isSynced in [false, true] {
      let place = try PackPlace()
      let synced = isSynced ? last.offset + Int64(last.byteCount) : 0
      let written = try place.write(
        Self.header, commit + [.ref("y", stamp(5), synced: synced)], seals: false)
      let bytes = try place.bytes(Self.name)
      for (byteCountMax, isWhole) in [(memoryByteCount, true), (memoryByteCount - 1, false)] {
        let file = try #require(try place.backend.openPack(Self.name))
        defer { file.close() }
        let scanner = try PackScanner(
          file: file, name: Self.name, codecs: place.codecs, commitMemoryByteCountMax: byteCountMax)
        var records: [PackRecord] = []
        let outcome = try scanner.scan { records.append($0) }
        let end = try scanner.scanTail(Self.header, from: 64) { _ in }
        #expect(end == (isWhole ? Int64(bytes.count) : written[1].offset))
        let rest = isSynced ? Array(written[0...2]) + [written[4]] : [written[0]]
        #expect(records.map(\.summary) == (isWhole ? written : rest).map(\.summary))
        #expect(outcome.gaps == (isWhole || !isSynced ? [] : [written[3].offset..<written[4].offset]))
        #expect(outcome.endOffset == (isWhole || isSynced ? Int64(bytes.count) : written[1].offset))
      }
    }
  }

  @Test("with a record of a later build is refused if that must not be skipped, and read round it if it may")
  func laterRecords() throws {
    func pack(type: UInt8, flags: UInt8) throws -> PackPlace {
      let place = try PackPlace()
      try place.write(Self.header, [.chunk([1])], seals: false)
      let bytes = try place.bytes(Self.name)
      var header = RecordHeader(type: .chunk, flags: flags, metaByteCount: 0, payloadByteCount: 0)
      header.typeNumber = type
      let later = header.encoded(meta: [], pack: Self.name, offset: Int64(bytes.count))
      try place.replace(Self.name, with: bytes + later)
      return place
    }
    #expect(try pack(type: 129, flags: 0).scan(Self.name).records.count == 2)
    #expect(try pack(type: 159, flags: 0x60).scan(Self.name).records.count == 2)
    #expect(failure { _ = try pack(type: 5, flags: 0).scan(Self.name) }?.code == .unsupportedFormat)
    #expect(failure { _ = try pack(type: 31, flags: 0).scan(Self.name) }?.code == .unsupportedFormat)
    // A chunk with a flag, whatever else is in it.
    #expect(failure { _ = try pack(type: 1, flags: 0x20).scan(Self.name) }?.code == .unsupportedFormat)
    #expect(failure { _ = try pack(type: 3, flags: 0x40).scan(Self.name) }?.code == .unsupportedFormat)
  }

  @Test("longer than any can be is refused")
  func tooLong() throws {
    let place = try PackPlace()
    try place.write(Self.header, [.chunk([1])], seals: false)
    let file = try SystemFiles().open(place.path(Self.name), .readWrite)
    defer { file.close() }
    try file.truncate(to: BlobLimits.packByteCountMax + 1)
    #expect(failure { _ = try place.scan(Self.name) }?.code == .corrupted)
  }
}

import BlobStorage
import BlobStorageTestSupport
import Synchronization
import SystemPackage
import Testing

@Suite("The writer of a pack")
struct PackWriterTests {
  private static let header = PackScanTests.header
  private static let path: FilePath = "/packs/0102030405060708-00000001.pack"

  private let disk: SimulatedDisk
  private let backend: FolderBackend
  private let codecs = CodecPool()

  init() throws {
    let disk = SimulatedDisk()
    try disk.createDirectory("/packs")
    try disk.syncDirectory("/")
    self.disk = disk
    backend = FolderBackend(folder: "/packs", asideFolder: "/aside", files: disk)
  }

  @discardableResult
  private static func append(_ records: [SampleRecord], _ writer: PackWriter) throws -> [String] {
    var written: [String] = []
    for record in records {
      written.append(
        try writer.append(
          record.content, payload: record.payload.span.bytes, continues: record.continues
        ).summary)
    }
    return written
  }

  private func scan(_ disk: SimulatedDisk) throws -> (records: [String], outcome: PackScanner.Outcome) {
    let file = try disk.open(Self.path, .read)
    defer { file.close() }
    var records: [String] = []
    let outcome = try PackScanner(file: file, name: Self.header.name, codecs: codecs)
      .scan { records.append($0.summary) }
    return (records, outcome)
  }

  @Test(
    "writes nothing more once a call has failed",
    arguments: [
      (CallKind.write, 1), (.synchronize, 1), (.truncate, 1), (.write, 3), (.synchronize, 2),
    ])
  func stops(at kind: CallKind, count: Int) throws {
    let writer = try PackWriter(header: Self.header, backend: backend, codecs: codecs)
    // The second write is of zeros ahead, which sealing cuts off.
    writer.fillByteCount = 4_096
    try Self.append(PackScanTests.records(), writer)
    disk.plan(Fault(kind, count: count, errno: .ioError))
    let expected: BlobStorageError.Code = kind == .synchronize ? .poisoned : .io
    #expect(failure { _ = try writer.seal() }?.code == expected)
    #expect(writer.failure?.code == expected)
    let mutationCount = disk.mutationCount
    #expect(failure { _ = try Self.append([.chunk([2])], writer) }?.code == expected)
    #expect(failure { try writer.flush() }?.code == expected)
    #expect(failure { _ = try writer.seal() }?.code == expected)
    #expect(disk.mutationCount == mutationCount)
  }

  /// Some file systems keep what they have reserved before they found no room.
  @Test("gives back what a reservation without room has taken")
  func noRoomToReserve() throws {
    let writer = try PackWriter(header: Self.header, backend: backend, codecs: codecs)
    try writer.reserve(byteCount: 4_096)
    disk.plan(Fault(.allocate, errno: .noSpace))
    #expect(failure { try writer.reserve(byteCount: 1 << 20) }?.code == .noSpace)
    #expect(disk.calls.last?.kind == .truncate)
    #expect(writer.reservedByteCount == 0)
    #expect(try disk.status(of: Self.path)?.byteCount == writer.writtenByteCount)
  }

  @Test("goes on where there is no room for zeros ahead, and what landed of them goes with the seal")
  func noRoomAhead() throws {
    let writer = try PackWriter(header: Self.header, backend: backend, codecs: codecs)
    writer.fillByteCount = 8_192
    var written = try Self.append(PackScanTests.records(), writer)
    disk.plan(Fault(.write, count: 2, errno: .noSpace, landingByteCount: 5_000))
    try writer.flush()
    #expect(writer.failure?.code == nil)
    #expect(try disk.status(of: Self.path)?.byteCount == writer.writtenByteCount)
    written += try Self.append([.chunk(Array("behind".utf8))], writer)
    let byteCount = try writer.seal()
    let (records, outcome) = try scan(disk)
    #expect(records == written && outcome.isSealed)
    #expect(try disk.status(of: Self.path)?.byteCount == byteCount)
  }

  @Test("seals a pack with zeros far beyond its footer as short as it is")
  func farAhead() throws {
    let writer = try PackWriter(header: Self.header, backend: backend, codecs: codecs)
    writer.fillByteCount = 100_000
    let written = try Self.append(PackScanTests.records(), writer)
    try writer.flush()
    #expect(try disk.status(of: Self.path).map { $0.byteCount > 100_000 } == true)
    let byteCount = try writer.seal()
    #expect(byteCount < 10_000)
    try backend.synchronizeNames()
    let (records, outcome) = try scan(disk.powerCut())
    #expect(records == written && outcome.isSealed)
  }

  @Test("writes no zeros behind more bytes than these would be, nor where there is hardly any room")
  func noZeros() throws {
    for byteCountMax in [nil, 60 << 20] {
      let disk = SimulatedDisk()
      try disk.createDirectory("/packs")
      disk.limit(byteCount: byteCountMax)
      let backend = FolderBackend(folder: "/packs", asideFolder: "/aside", files: disk)
      let writer = try PackWriter(header: Self.header, backend: backend, codecs: codecs)
      writer.fillByteCount = 4_096
      for (number, byteCount) in [100, 10_000].enumerated() {
        let payload = [UInt8](repeating: UInt8(number), count: byteCount)
        let digest = BlobDigest.of(payload.span.bytes, by: .blake3)
        _ = try writer.append(
          .chunk(ChunkRecord(digest: digest, plainByteCount: byteCount, codecNumber: 0)),
          payload: payload.span.bytes)
        try writer.flush()
        let zeroCount = try #require(try disk.status(of: Self.path)).byteCount - writer.writtenByteCount
        #expect(zeroCount == (byteCountMax == nil && number == 0 ? 4_096 : 0))
      }
    }
  }

  @Test("cuts zeros off before it reserves room, so that sealing leaves that room to the footer")
  func reservesBehindZeros() throws {
    let place = try PackPlace()
    let writer = try PackWriter(header: Self.header, backend: place.backend, codecs: place.codecs)
    writer.fillByteCount = 100_000
    let written = try Self.append(PackScanTests.records(), writer)
    try writer.flush()
    #expect(try writer.file.status().byteCount > 100_000)
    try writer.reserve(byteCount: 1 << 20)
    #expect(try writer.file.status().byteCount == writer.writtenByteCount)
    let byteCount = try writer.seal()
    #expect(try writer.file.status().byteCount == byteCount)
    let (records, outcome) = try place.scan(Self.header.name)
    #expect(records.map(\.summary) == written && outcome.isSealed)
  }

  @Test("is flushed often once several short flushes follow each other")
  func oftenFlushed() throws {
    let writer = try PackWriter(header: Self.header, backend: backend, codecs: codecs)
    func flush(_ count: Int, byteCount: Int) throws {
      for _ in 0..<count {
        let payload = [UInt8](repeating: 1, count: byteCount)
        let digest = BlobDigest.of(payload.span.bytes, by: .blake3)
        _ = try writer.append(
          .chunk(ChunkRecord(digest: digest, plainByteCount: byteCount, codecNumber: 0)),
          payload: payload.span.bytes)
        try writer.flush()
      }
    }
    try flush(7, byteCount: 10_000)
    #expect(!writer.isOftenFlushed)
    try flush(1, byteCount: 10_000)
    #expect(writer.isOftenFlushed)
    try flush(1, byteCount: 100_000)
    #expect(!writer.isOftenFlushed)
    try flush(7, byteCount: 10_000)
    #expect(!writer.isOftenFlushed)
  }

  @Test("gives back the room that it reserved and did not use, and fills none of it with zeros")
  func reservedRoom() throws {
    let place = try PackPlace()
    let writer = try PackWriter(header: Self.header, backend: place.backend, codecs: place.codecs)
    try writer.reserve(byteCount: 8 << 20)
    #expect(writer.reservedByteCount == 8 << 20)
    writer.fillByteCount = 4_096
    let written = try Self.append(PackScanTests.records(), writer)
    try writer.flush()
    #expect(try writer.file.status().byteCount == writer.byteCount)
    let byteCount = try writer.seal()
    let status = try writer.file.status()
    #expect(status.byteCount == byteCount)
    #expect(status.allocatedByteCount < 1 << 20)
    let (records, outcome) = try place.scan(Self.header.name)
    #expect(records.map(\.summary) == written && outcome.isSealed)
  }

  @Test("that is dead has its bytes written anew, because a sync of them may have failed, before the footer")
  func recovered() throws {
    let writer = try PackWriter(header: Self.header, backend: backend, codecs: codecs)
    try backend.synchronizeNames()
    let written = try Self.append(PackScanTests.records(), writer)
    try writer.flush()
    disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try writer.file.synchronize() }
    disk.crash()
    let unforced = Mutex<[Int]>([])
    disk.beforeMutations { [disk = self.disk] (call) throws(BlobStorageError) in
      guard call.kind == .write else { return }
      let count = disk.pendingChanges.count { $0.byteCount > 0 }
      unforced.withLock { $0.append(count) }
    }
    let file = try #require(try backend.adoptPack(Self.header.name))
    let outcome = try PackScanner(file: file, name: Self.header.name, codecs: codecs).scan { _ in }
    let byteCount = try PackRecovery.seal(file, outcome, codecs: codecs)
    file.close()
    // The records, then the footer.
    #expect(unforced.withLock { $0 } == [0, 0])
    let after = disk.powerCut()
    let (records, sealed) = try scan(after)
    #expect(records == written && sealed.isSealed)
    #expect(try after.status(of: Self.path)?.byteCount == byteCount)
  }
}

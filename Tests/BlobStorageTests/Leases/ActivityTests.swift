import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// What processes report of their work, and what dead ones leave.
@Suite("Activities")
struct ActivityTests {
  static let record = ActivityRecord(
    operation: "import", processID: 17, started: 1_000, updated: 2_000, phase: "importing", doneByteCount: 5,
    totalByteCount: 50, doneCount: 1, totalCount: 10, bytesPerSecond: -1, millisecondsLeft: 3_500,
    subject: "/home/ä")

  @Test("a slot comes back as it was, and nothing else is taken for one")
  func record() throws {
    let bytes = Self.record.encoded()
    #expect(bytes.count == ActivityRecord.byteCount)
    #expect(bytes.withUnsafeBytes { ActivityRecord($0) } == Self.record)
    var long = Self.record
    long.subject = String(repeating: "é", count: 900)
    let cut = try #require(long.encoded().withUnsafeBytes { ActivityRecord($0) })
    #expect(cut.subject.hasSuffix("é…"))
    for index in bytes.indices {
      var damaged = bytes
      damaged[index] ^= 0x40
      #expect(damaged.withUnsafeBytes { ActivityRecord($0) } == nil, "byte \(index)")
    }
    #expect(bytes.dropLast().withUnsafeBytes { ActivityRecord($0) } == nil)
    // Lengths that point outside are no reason to trap, also with a checksum that is right.
    var random = SplitMix64.announced()
    for _ in 0..<2_000 {
      var hostile = bytes
      for _ in 0..<4 {
        hostile[Int.random(in: 8..<512, using: &random)] = UInt8(truncatingIfNeeded: random.next())
      }
      let checksum = CRC32C.checksum(hostile.span.bytes.extracting(8...))
      withUnsafeBytes(of: checksum.littleEndian) { hostile.replaceSubrange(4..<8, with: $0) }
      _ = hostile.withUnsafeBytes { ActivityRecord($0) }
    }
  }

  @Test("work is seen while it goes on, and leaves nothing behind")
  func seen() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let path = place.path
    let folder = URL(filePath: path).appending(path: "activities")
    let seen = Seen()
    _ = try await store.put(
      .stream {
        if seen.count == 24 { return nil }
        seen.count += 1
        return Data(repeating: UInt8(seen.count), count: 1 << 20)
      }, forKey: "k",
      progress: { _ in
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        if names.contains(where: { $0.hasSuffix(".activity") }) { seen.fileCount += 1 }
      })
    #expect(seen.fileCount > 0)
    (seen.count, seen.fileCount) = (0, 0)
    try store.blocking.put(
      .stream {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        if names.contains(where: { $0.hasSuffix(".activity") }) { seen.fileCount += 1 }
        if seen.count == 200 || seen.fileCount > 0 { return nil }
        seen.count += 1
        return Data(repeating: UInt8(seen.count), count: 1 << 20)
      }, forKey: "k")
    #expect(seen.fileCount > 0)
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).isEmpty)
    #expect(try await BlobStore.activities(at: path).isEmpty)
    try await store.close()
  }

  /// Counted on one thread at a time.
  private final class Seen: @unchecked Sendable {
    var count = 0
    var fileCount = 0
  }

  @Test("what a dead process left is not shown, and removed")
  func dead() async throws {
    let place = try StorePlace()
    let folder = FilePath(place.path).appending("activities")
    let files = SystemFiles()
    try files.createDirectory(folder)
    func write(_ name: String) throws -> any File {
      let file = try files.open(folder.appending(name), .create)
      try Self.record.encoded().withUnsafeBytes { try file.write($0, at: 0) }
      return file
    }
    let living = try write("1.activity")
    #expect(try living.lock(.exclusive, wait: false))
    try write("2.activity").close()
    try write("3.new").close()
    let found = try await BlobStore.activities(at: place.path)
    #expect(found.map(\.subject) == ["/home/ä"])
    #expect(found.first?.processID == 17)
    #expect(found.first?.bytesPerSecond == nil)
    #expect(found.first?.timeLeft == .milliseconds(3_500))
    #expect(try files.list(folder) == ["1.activity"])
    living.close()
    #expect(try await BlobStore.activities(at: place.path).isEmpty)
  }

  @Test("work continues where it cannot be reported", arguments: ["a file", "a link"])
  func unwritable(_ kind: String) async throws {
    let place = try StorePlace()
    let path = FilePath(place.path).appending("activities").string
    if kind == "a file" {
      try Data("x".utf8).write(to: URL(filePath: path))
    } else {
      try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "/tmp")
    }
    let store = try await place.opened()
    try await store.set("k", to: Data("v".utf8))
    _ = try await store.collectGarbage()
    #expect(try await store.verify().damaged.isEmpty)
    #expect(try await BlobStore.activities(at: place.path).isEmpty)
    try await store.close()
  }

  @Test("live work is listed by its beginning, and new work removes the files of dead processes")
  func order() async throws {
    let place = try StorePlace()
    let folder = FilePath(place.path).appending("activities")
    let files = SystemFiles()
    try files.createDirectory(folder)
    var living: [any File] = []
    for (name, started) in [("1", 3_000), ("2", 1_000), ("3", 2_000)] as [(String, UInt64)] {
      var record = Self.record
      record.started = started
      record.subject = name
      let file = try files.open(folder.appending("\(name).activity"), .create)
      try record.encoded().withUnsafeBytes { try file.write($0, at: 0) }
      #expect(try file.lock(.exclusive, wait: false))
      living.append(file)
    }
    #expect(try await BlobStore.activities(at: place.path).map(\.subject) == ["2", "3", "1"])
    try files.write([1], to: folder.appending("4.activity"))
    let store = try await place.opened()
    try await store.set("k", to: Data("v".utf8))
    _ = try await store.collectGarbage()
    _ = try await store.verify()
    try await store.close()
    #expect(try files.list(folder) == ["1.activity", "2.activity", "3.activity"])
    for file in living { file.close() }
  }

  @Test("a path without a store is told apart")
  func noStore() async throws {
    let temporary = try TemporaryFolder()
    await #expect { try await BlobStore.activities(at: temporary.path.appending("none").string) } throws: {
      ($0 as? BlobStorageError)?.code == .noStore
    }
  }
}

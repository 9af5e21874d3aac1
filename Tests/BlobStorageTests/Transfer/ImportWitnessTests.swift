import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

/// Changes that leave no trace in a file's times.
@Suite("An import is not deceived by")
struct ImportWitnessTests {
  private let place: StorePlace
  private let engine: Engine
  private var tree: FilePath { place.temporary.path.appending("tree") }

  init() throws {
    place = try StorePlace()
    engine = try place.engine()
    try SystemFiles().createDirectory(tree)
  }

  private func importPath(
    _ path: FilePath, _ options: ImportOptions = ImportOptions(), clock: WallClock = .system
  ) throws -> ImportReport {
    try Importer(engine, options, nil, clock: clock).run([path.string])
  }

  /// A file of which a program has mapped the first page to write to it.
  private final class Mapping {
    private let memory: UnsafeMutableRawPointer

    init(_ file: FilePath) throws {
      let descriptor = try FileDescriptor.open(file, .readWrite)
      let memory = mmap(nil, 4_096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.rawValue, 0)
      try descriptor.close()
      self.memory = try #require(memory != MAP_FAILED ? memory : nil)
    }

    deinit { munmap(memory, 4_096) }

    func store(_ byte: UInt8) { memory.storeBytes(of: byte, as: UInt8.self) }
    func load() -> UInt8 { memory.load(as: UInt8.self) }
  }

  /// The page stays writable from the first store until it is written back: the second store then changes no time.
  @Test("a store to a page that was changed in memory before it was read", arguments: [5_000, 2_000_000])
  func mapping(_ byteCount: Int) throws {
    let file = tree.appending("f")
    try SystemFiles().write([UInt8](repeating: 1, count: byteCount), to: file)
    let mapping = try Mapping(file)
    for byte: UInt8 in 2...5 {
      mapping.store(byte)
      let before = try #require(try SystemFiles().status(of: file))
      let clock = Self.clock(millisecondsAfter: before.changed, 1_000)
      #expect(try importPath(tree, clock: clock).newFileCount == 1)
      #expect(try engine.data("f", nil)?.first == byte)
      #expect(try importPath(tree, clock: clock).unchangedFileCount == 1)
      mapping.store(byte | 0x80)
      #expect(try importPath(tree, clock: clock).newFileCount == 1)
      #expect(try engine.data("f", nil)?.first == byte | 0x80)
    }
  }

  /// A clock that stands still, so much later than a time.
  private static func clock(millisecondsAfter time: FileTime, _ milliseconds: UInt64) -> WallClock {
    let moment = UInt64(time.seconds) * 1_000 + UInt64(time.nanoseconds / 1_000_000) + milliseconds
    return WallClock(now: { moment })
  }

  /// On tmpfs, a page that was read through a mapping is writable, and stores change no time at all.
  @Test(
    "a file system whose change time shows nothing",
    .enabled(if: FileManager.default.isWritableFile(atPath: "/dev/shm")),
    arguments: [5_000, 2_000_000])
  func temporaryFiles(_ byteCount: Int) throws {
    let folder = FilePath("/dev/shm").appending("blob-storage-\(UUID().uuidString)")
    try SystemFiles().createDirectory(folder)
    defer { try? FileManager.default.removeItem(atPath: folder.string) }
    try SystemFiles().write([UInt8](repeating: 1, count: byteCount), to: folder.appending("f"))
    let mapping = try Mapping(folder.appending("f"))
    #expect(mapping.load() == 1)
    let before = try #require(try SystemFiles().status(of: folder.appending("f")))
    let clock = Self.clock(millisecondsAfter: before.changed, 1_000)
    #expect(try importPath(folder, clock: clock).newFileCount == 1)
    let first = try #require(try engine.versions("f").first)
    mapping.store(2)
    let after = try #require(try SystemFiles().status(of: folder.appending("f")))
    try #require(after.changed == before.changed, "this file system shows stores to mappings")
    #expect(try importPath(folder, clock: clock).newFileCount == 1)
    let second = try #require(try engine.versions("f").first)
    #expect(second.digest != first.digest)
    // It is read each time, and not stored again.
    let report = try importPath(folder, clock: clock)
    #expect(report.unchangedFileCount == 1 && report.newFileCount == 0)
    #expect(try engine.versions("f") == [second])
    let forced = try importPath(folder, ImportOptions(readsUnchanged: true), clock: clock)
    #expect(forced.unchangedFileCount == 0 && forced.newFileCount == 1)
    #expect(try engine.versions("f") == [second])
  }

  @Test("a modification time in the future, which a program can set", arguments: [5_000, 2_000_000])
  func modifiedInFuture(_ byteCount: Int) throws {
    let file = tree.appending("f")
    try SystemFiles().write([UInt8](repeating: 1, count: byteCount), to: file)
    let time = timespec(tv_sec: 4_000_000_000, tv_nsec: 5)
    #expect(utimensat(AT_FDCWD, file.string, [time, time], 0) == 0)
    #expect(try importPath(tree).newFileCount == 1)
    let version = try #require(try engine.versions("f").first)
    let mark = try #require(FileMark(metadata: version.metadata))
    #expect(mark.changed != nil)
    #expect(try importPath(tree).unchangedFileCount == 1)
  }

  /// The clock was set back since. Such a file is read each time, and not stored again.
  @Test("a change time in the future", arguments: [5_000, 2_000_000])
  func changedInFuture(_ byteCount: Int) throws {
    let file = tree.appending("f")
    try SystemFiles().write([UInt8](repeating: 1, count: byteCount), to: file)
    let changed = try #require(try SystemFiles().status(of: file)).changed
    let clock = WallClock(now: { UInt64(changed.seconds - 3_600) * 1_000 })
    #expect(try importPath(tree, clock: clock).newFileCount == 1)
    let versions = try engine.versions("f")
    let report = try importPath(tree, clock: clock)
    #expect(report.unchangedFileCount == 1 && report.storedByteCount == 0)
    #expect(try engine.versions("f") == versions)
    // What takes its place with the same length is noticed.
    try SystemFiles().write([UInt8](repeating: 2, count: byteCount), to: file)
    #expect(try importPath(tree, clock: clock).newFileCount == 1)
    #expect(try engine.data("f", nil)?.first == 2)
  }
}

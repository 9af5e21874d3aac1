import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What an import takes for unchanged, and what it follows.
@Suite("An import trusts")
struct ImportTrustTests {
  private let place: StorePlace
  private let engine: Engine
  private var tree: FilePath { place.temporary.path.appending("tree") }

  init() throws {
    place = try StorePlace()
    engine = try place.engine()
    try SystemFiles().createDirectory(tree)
  }

  private func write(_ text: String, _ path: FilePath) throws {
    // In place: the inode stays.
    try SystemFiles().write(Array(text.utf8), to: path)
  }

  private func status(_ path: FilePath) throws -> FileStatus {
    try #require(try SystemFiles().status(of: path))
  }

  private func setModified(_ path: FilePath, _ time: FileTime) {
    let time = timespec(tv_sec: Int(time.seconds), tv_nsec: Int(time.nanoseconds))
    #expect(utimensat(AT_FDCWD, path.string, [time, time], 0) == 0)
  }

  private func importTree(
    _ options: ImportOptions = ImportOptions(), clock: WallClock = .system
  ) throws -> ImportReport {
    try Importer(engine, options, nil, clock: clock).run([tree.string])
  }

  private func text(_ key: String) throws -> String? {
    try engine.data(key, nil).map { String(decoding: $0, as: UTF8.self) }
  }

  @Test("no modification time that a program has put back")
  func restoredTime() throws {
    let file = tree.appending("f")
    try write("old", file)
    let before = try status(file)
    #expect(try importTree().newFileCount == 1)
    #expect(try importTree().unchangedFileCount == 1)
    try write("new", file)
    setModified(file, before.modified)
    let after = try status(file)
    #expect(after.modified == before.modified && after.inode == before.inode)
    #expect(try importTree().newFileCount == 1)
    #expect(try text("f") == "new")
  }

  @Test("its own look at the bytes when it reads all, and puts no second version of the same")
  func forced() throws {
    try write("the file", tree.appending("f"))
    setModified(tree.appending("f"), FileTime(seconds: 1_000_000_000, nanoseconds: 0))
    var forced = ImportOptions(readsUnchanged: true)
    #expect(try importTree().newFileCount == 1)
    let first = try #require(try engine.versions("f").first)
    var report = try importTree(forced)
    #expect((report.newFileCount, report.duplicateByteCount, report.newByteCount) == (1, 8, 0))
    #expect(try engine.versions("f") == [first])
    // The same metadata, and other bytes.
    var options = PutOptions()
    options.metadata = first.metadata
    _ = try engine.put("f", Array("no file!".utf8), options)
    #expect(try importTree().unchangedFileCount == 1)
    report = try importTree(forced)
    #expect(report.newFileCount == 1)
    #expect(try text("f") == "the file")
    // Other attributes.
    #expect(chmod(tree.appending("f").string, 0o640) == 0)
    #expect(try importTree(forced).newFileCount == 1)
    let second = try #require(try engine.versions("f").first)
    #expect(second.digest == first.digest && second.metadata != first.metadata)
    // The bytes alone.
    var bare = forced
    bare.keepsAttributes = false
    #expect(try importTree(bare).newFileCount == 1)
    #expect(try engine.versions("f").first?.metadata != second.metadata)
    #expect(try importTree(forced).newFileCount == 1)
    #expect(try engine.versions("f").first?.metadata == second.metadata)
    // A chunk that cannot be read is stored again.
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      guard let row = try transaction.chunkRow(first.digest) else { return }
      try transaction.setSuspect(first.digest, row)
    }
    #expect(try importTree(forced).newByteCount == 8)
    #expect(try engine.versions("f").first != second)
    forced.replacement = .archiveCurrent
    _ = try importTree(forced)
    #expect(try engine.versions("f").count == 2)
  }

  @Test(
    "no length that a file of /proc or /sys says: it is read to its end",
    .enabled(if: FileManager.default.isReadableFile(atPath: "/sys/kernel/mm/transparent_hugepage/enabled")))
  func wrongLength() throws {
    let files = ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"]
    let report = try Importer(engine, ImportOptions(), nil, clock: .system).run(files)
    #expect(report.skipped == [] && report.uncertain == [] && report.newFileCount == 2)
    for file in files {
      let bytes = try engine.data(try #require(FilePath(file).lastComponent).string, nil)
      #expect(bytes == FileManager.default.contents(atPath: file))
      _ = try engine.put("put", .file(file), PutOptions())
      #expect(try engine.data("put", nil) == bytes)
    }
  }

  @Test(
    "no file whose bytes cannot be read, and stores those behind it",
    .enabled(if: FileManager.default.fileExists(atPath: "/proc/self/mem")))
  func unreadableFile() throws {
    try write("behind", tree.appending("f"))
    let report = try Importer(engine, ImportOptions(), nil, clock: .system).run([
      "/proc/self/mem", tree.appending("f").string,
    ])
    #expect(report.skipped.map(\.path) == ["/proc/self/mem"])
    #expect(report.newFileCount == 1)
    #expect(try text("f") == "behind")
  }

  @Test("no file that changes while it is read, however it is put", arguments: [5_000, 5_000_000])
  func changesMeanwhile(_ byteCount: Int) throws {
    let file = tree.appending("f")
    try write(String(repeating: "a", count: byteCount), file)
    setModified(file, FileTime(seconds: 1_000_000_000, nanoseconds: 0))
    _ = try engine.put("k", .data(Data("before".utf8)), PutOptions())
    let change: @Sendable (WorkProgress) -> Void = { progress in
      guard progress.doneByteCount > 0 else { return }
      let handle = FileHandle(forUpdatingAtPath: file.string)
      #expect(throws: Never.self) { try handle?.write(contentsOf: Data("b".utf8)) }
      #expect(throws: Never.self) { try handle?.close() }
    }
    #expect(throws: BlobStorageError.self) {
      _ = try engine.put("k", .file(file.string), PutOptions(), change)
    }
    #expect(try text("k") == "before")
  }

  @Test("no file that changed in the moment when it was read", arguments: [2, 2_000_000])
  func racy(_ byteCount: Int) throws {
    let file = tree.appending("f")
    try write(String(repeating: "x", count: byteCount), file)
    let changed = try status(file).changed
    let moment = UInt64(changed.seconds) * 1_000 + UInt64(changed.nanoseconds / 1_000_000)
    // As if the clock had stood still since the file was written.
    let clock = WallClock(now: { moment })
    #expect(try importTree(clock: clock).newFileCount == 1)
    #expect(try importTree().newFileCount == 1, "it may have changed in the same tick")
    #expect(try importTree().unchangedFileCount == 1)
  }

  @Test("no file of equal length and times that is another")
  func otherInode() throws {
    let (one, two) = (place.temporary.path.appending("one"), place.temporary.path.appending("two"))
    for folder in [one, two] { try SystemFiles().createDirectory(folder) }
    let (first, second) = (one.appending("f"), two.appending("f"))
    let time = FileTime(seconds: 1_600_000_000, nanoseconds: 5)
    // In one tick of the file system's clock, sooner or later.
    var attemptCount = 0
    repeat {
      for file in [first, second] where attemptCount > 0 { try SystemFiles().remove(file) }
      try write("one", first)
      try write("two", second)
      setModified(first, time)
      setModified(second, time)
      attemptCount += 1
    } while try status(first).changed != status(second).changed && attemptCount < 1_000
    try SystemFiles().rename(one, to: tree.appending("d"))
    #expect(try importTree().newFileCount == 1)
    #expect(try importTree().unchangedFileCount == 1)
    try SystemFiles().rename(tree.appending("d"), to: one)
    try SystemFiles().rename(two, to: tree.appending("d"))
    #expect(try importTree().newFileCount == 1)
    #expect(try text("d/f") == "two")
  }

  /// Imports the tree; once what follows 256 other files has been listed, and before it is read, calls `body`.
  private func importTree(whenListed body: @escaping @Sendable () -> Void) throws -> ImportReport {
    for index in 0..<256 { try write("0", tree.appending("0-\(index)")) }
    var environment = Engine.Environment()
    environment.worksInline = true
    let engine = try place.engine(environment)
    let isListed = Atomic<Bool>(false)
    let onFile: TransferHandler = { _ in
      if !isListed.exchange(true, ordering: .relaxed) { body() }
    }
    let report = try Importer(engine, ImportOptions(), nil, onFile: onFile).run([tree.string])
    try engine.close()
    return report
  }

  @Test("no folder that was replaced by a link during the walk", arguments: [10, 2_000_000])
  func swappedFolder(_ byteCount: Int) throws {
    let outside = place.temporary.path.appending("outside")
    for folder in [outside, tree.appending("a"), tree.appending("a/z")] {
      try SystemFiles().createDirectory(folder)
    }
    try write(String(repeating: "i", count: byteCount), tree.appending("a/z/f"))
    try write(String(repeating: "o", count: byteCount), outside.appending("f"))
    try write("b", tree.appending("b"))
    let (tree, place) = (tree, place)
    let report = try importTree {
      try? SystemFiles().rename(tree.appending("a/z"), to: place.temporary.path.appending("moved"))
      try? FileManager.default.createSymbolicLink(
        atPath: tree.appending("a/z").string, withDestinationPath: outside.string)
    }
    #expect(try text("a/z/f") == nil)
    #expect(try text("b") == "b")
    #expect(report.newFileCount == 257)
    #expect(report.skipped.map(\.isFailure) == [true])
    #expect(report.skipped.first?.path.hasSuffix("a/z/f") == true)
  }

  @Test("the folder that it began with, wherever that is moved")
  func movedRoot() throws {
    for name in ["f", "d"] { try write(name, tree.appending(name)) }
    let (tree, place) = (tree, place)
    let report = try importTree {
      try? SystemFiles().rename(tree, to: place.temporary.path.appending("moved"))
    }
    #expect(report.newFileCount == 258 && report.skipped == [])
    #expect(try text("f") == "f")
  }

  @Test(
    "not the store itself: its folder is left out where it lies in another, and refused where it is named")
  func ownFolder() throws {
    try write("x", place.temporary.path.appending("x"))
    let around = try Importer(engine, ImportOptions(), nil).run([place.temporary.path.string])
    #expect(around.newFileCount == 1)
    #expect(around.skipped.map(\.reason) == ["it is the store's own folder"])
    #expect(around.skipped.map(\.isFailure) == [false])
    let link = place.temporary.path.appending("link")
    try FileManager.default.createSymbolicLink(
      atPath: link.string, withDestinationPath: "\(place.path)/packs")
    for path in [
      place.path, "\(place.path)/packs", "\(place.path)/packs/..", "\(place.path)/store", link.string,
    ] {
      let named = try Importer(engine, ImportOptions(prefix: "named/"), nil).run([path])
      #expect(named.fileCount == 0)
      #expect(named.skipped.map(\.isFailure) == [true], "\(path)")
    }
  }

  @Test("what a link to a folder leads to that is named, any other link itself, and not what is no file")
  func named() throws {
    let root = place.temporary.path
    try write("f", tree.appending("f"))
    for (name, target) in [("folders", "tree"), ("file", "tree/f"), ("nowhere", "missing")] {
      try FileManager.default.createSymbolicLink(
        atPath: root.appending(name).string, withDestinationPath: target)
    }
    #expect(mkfifo(root.appending("pipe").string, 0o600) == 0)
    let names = ["folders", "file", "nowhere", "pipe", "missing"]
    let report = try Importer(engine, ImportOptions(), nil).run(names.map { root.appending($0).string })
    #expect(report.newFileCount == 1)
    #expect(try engine.keys("", after: nil, limit: 9).map(\.key) == ["f", "file", "nowhere"])
    #expect(report.skipped.map(\.path) == names.dropFirst(3).map { root.appending($0).string })
    #expect(report.skipped.map(\.isFailure) == [true, true])
  }

  @Test("no name that would make too long a key, be it below a folder or named itself")
  func longKeys() throws {
    let (short, long) = (tree.appending("a"), tree.appending("long"))
    for file in [short, long] { try write("x", file) }
    // With the slash behind it, one byte is left.
    let prefix = String(repeating: "p", count: BlobLimits.maximumKeyByteCount - 2)
    for paths in [[tree.string], [long.string, short.string]] {
      let report = try Importer(engine, ImportOptions(prefix: prefix), nil).run(paths)
      #expect(report.fileCount == 1)
      #expect(report.skipped.map(\.path) == [long.string])
      #expect(report.skipped.map(\.isFailure) == [true])
    }
    #expect(try engine.keys("", after: nil, limit: 9).map(\.key) == [prefix + "/a"])
  }

  // MARK: Keys that cannot be read

  /// What happens to the store, and whether its catalog is rebuilt afterwards.
  enum Loss: CaseIterable { case lostPack, foundDamage, repaired }

  @Test(
    "no key that is known to be unreadable: it is stored anew", arguments: Loss.allCases, [false, true])
  func unreadable(_ loss: Loss, comparesContent: Bool) throws {
    var random = SplitMix64(seed: 5)
    let contents: [String: Data] = ["small": random.noise(3_000), "large": random.noise(3_000_000)]
    for (name, data) in contents { try data.write(to: URL(filePath: tree.appending(name).string)) }
    #expect(try importTree().newFileCount == 2)
    try engine.close()
    let packs = "\(place.path)/packs"
    var engine = try place.engine()
    for name in try FileManager.default.contentsOfDirectory(atPath: packs) {
      let path = "\(packs)/\(name)"
      if loss == .lostPack {
        try FileManager.default.removeItem(atPath: path)
        continue
      }
      var bytes = try Data(contentsOf: URL(filePath: path))
      // In the payload of a chunk of the large one.
      bytes[bytes.count - 200_000] ^= 1
      try bytes.write(to: URL(filePath: path))
    }
    if loss == .foundDamage {
      for name in contents.keys { _ = try? engine.data(name, nil) }
    } else if loss == .repaired {
      _ = try? engine.repair()
    }
    try engine.close()
    engine = try place.engine()
    let unreadable = contents.filter { name, data in (try? engine.data(name, nil)) != data }
    #expect(!unreadable.isEmpty)
    var options = ImportOptions()
    options.comparesContent = comparesContent
    let report = try Importer(engine, options, nil).run([tree.string])
    #expect(report.newFileCount >= unreadable.count)
    for (name, data) in contents { #expect(try engine.data(name, nil) == data, "\(name)") }
    try engine.close()
  }
}

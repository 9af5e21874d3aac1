import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("An export")
struct ExportTests {
  private let place: StorePlace
  private let store: BlobStore
  private var root: String { place.temporary.path.string }
  private var target: String { "\(root)/out" }

  init() async throws {
    place = try StorePlace()
    store = try await place.opened()
  }

  private func put(_ keys: [String]) async throws {
    try await store.put(
      keys.map { PutItem(key: $0, data: Data($0.utf8)) }, options: PutOptions(durability: .relaxed))
  }

  /// Keys are listed 500 at a time.
  @Test("writes every key, however many there are", arguments: [500, 501, 1_001])
  func pages(_ count: Int) async throws {
    let keys = (0..<count).map { "k\(10_000 + $0)" }
    try await put(["a"] + keys + ["z"])
    let report = try await store.exportFiles(to: target, options: ExportOptions(prefix: .bytes("k")))
    #expect(report.fileCount == count)
    #expect(report.skipped == [] && report.damaged == [])
    #expect(try FileManager.default.contentsOfDirectory(atPath: target).sorted() == keys)
  }

  /// Up to 4 MiB are written as they are read, longer blobs one after the other.
  @Test("writes blobs of any length whole, and counts them", arguments: [[0, 4 << 20], [1, (4 << 20) + 1]])
  func lengths(_ byteCounts: [Int]) async throws {
    var random = SplitMix64(seed: 61)
    let contents = byteCounts.map { (key: "d/k\($0)", data: random.noise($0)) }
    for (key, data) in contents { try await store.set(key, to: data, durability: .relaxed) }
    let report = try await store.exportFiles(to: target)
    #expect(report.fileCount == byteCounts.count)
    #expect(report.byteCount == byteCounts.reduce(0) { $0 + Int64($1) })
    #expect(report.skipped == [] && report.damaged == [])
    for (key, data) in contents {
      #expect(try Data(contentsOf: URL(filePath: "\(target)/\(key)")) == data, "\(key)")
    }
  }

  @Test(
    "leaves out what a manifest makes of the chunks of other bytes, and tells it, however long it is",
    arguments: [1, 150])
  func wrongManifest(_ count: Int) async throws {
    // Each is one chunk.
    let parts = [UInt8(1), 2].map { Data(repeating: $0, count: 15_000) }
    for (index, part) in parts.enumerated() { try await store.set("\(index)", to: part) }
    let wrong = BlobDigest.of(Array("neither".utf8))
    let engine = try place.engine()
    let layout = try BlobLayout(
      digest: wrong,
      chunks: (0..<2 * count).map {
        ChunkEntry(digest: BlobDigest.of(parts[$0 % 2]), plainByteCount: 15_000)
      })
    _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
      _ = try commit.appendManifest(of: layout, unless: { _ in false })
      _ = try commit.append(
        .ref(
          RefRecord(
            key: Array("wrong".utf8), version: try commit.stamp(), replaced: .none, digest: wrong,
            byteCount: layout.byteCount, created: 0, metadata: [])))
    }
    try engine.close()
    let report = try await store.exportFiles(to: target)
    #expect(report.damaged.map(\.path) == ["wrong"] && report.skipped == [])
    #expect(report.fileCount == 2)
    #expect(try FileManager.default.contentsOfDirectory(atPath: target).sorted() == ["0", "1"])
  }

  @Test("replaces files also where keys of a forged store are not UTF-8 and read the same")
  func equalKeys() async throws {
    let bytes = Array("value".utf8)
    try await store.set("k", to: Data(bytes))
    let engine = try place.engine()
    _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
      for byte in [UInt8(0xfe), 0xff] {
        _ = try commit.append(
          .ref(
            RefRecord(
              key: [0x6b, byte], version: try commit.stamp(), replaced: .none, digest: BlobDigest.of(bytes),
              byteCount: Int64(bytes.count), created: 0, metadata: [])))
      }
    }
    try engine.close()
    let report = try await store.exportFiles(to: target, options: ExportOptions(overwrites: true))
    #expect(report.fileCount == 3 && report.skipped == [] && report.damaged == [])
    let names = try FileManager.default.contentsOfDirectory(atPath: target)
    #expect(names.sorted() == ["k", "k\u{FFFD}"])
  }

  @Test("writes what has taken a version's place since it was listed, and nothing for a key that is gone")
  func changesMeanwhile() async throws {
    let place = place
    try await put((0..<400).map { "k\(1_000 + $0)" })
    try await store.close()
    let exporting = try await place.opened()
    let isFirst = Mutex(true)
    let report = try await exporting.exportFiles(to: target) { _ in
      let changes = isFirst.withLock { isFirst in
        defer { isFirst = false }
        return isFirst
      }
      guard changes else { return }
      // The first file is written, and all keys are listed.
      do {
        let engine = try place.engine()
        _ = try engine.put("k1390", Array("new".utf8))
        _ = try engine.delete(["k1395"], .relaxed)
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        try engine.close()
      } catch { Issue.record(error) }
    }
    #expect(report.fileCount == 399)
    #expect(report.skipped == [] && report.damaged == [])
    #expect(try Data(contentsOf: URL(filePath: "\(target)/k1390")) == Data("new".utf8))
    #expect(!FileManager.default.fileExists(atPath: "\(target)/k1395"))
    try await exporting.close()
  }

  @Test("names a version of a state that is deleted meanwhile as missing, and not as damaged")
  func deletedMeanwhile() async throws {
    try FileManager.default.createDirectory(atPath: "\(root)/tree", withIntermediateDirectories: true)
    for number in 0..<400 {
      try Data("\(number)".utf8).write(to: URL(filePath: "\(root)/tree/k\(1_000 + number)"))
    }
    let state = try await store.importFiles(["\(root)/tree"]).state
    try await store.close()
    let exporting = try await place.opened()
    let isFirst = Mutex(true)
    let report = try await exporting.exportFiles(to: target, options: ExportOptions(state: state)) { _ in
      let changes = isFirst.withLock { isFirst in
        defer { isFirst = false }
        return isFirst
      }
      guard changes else { return }
      // The first file is written, and all keys are listed.
      do {
        let engine = try place.engine()
        _ = try engine.delete(["k1395"], .relaxed)
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        try engine.close()
      } catch { Issue.record(error) }
    }
    #expect(report.fileCount == 399)
    #expect(report.damaged == [])
    #expect(report.skipped.map(\.path) == ["k1395"])
    #expect(report.skipped.map(\.code) == [.missingVersion])
    try await exporting.close()
  }

  @Test("restores times, strips the prefix, and replaces files only if asked, and only by whole ones")
  func imported() async throws {
    let manager = FileManager.default
    let time = Date(timeIntervalSince1970: 1_234_567_890)
    try manager.createDirectory(atPath: "\(root)/tree/d", withIntermediateDirectories: true)
    for name in ["a", "d/b"] {
      try Data(name.utf8).write(to: URL(filePath: "\(root)/tree/\(name)"))
      try manager.setAttributes([.modificationDate: time], ofItemAtPath: "\(root)/tree/\(name)")
    }
    _ = try await store.importFiles(["\(root)/tree"], options: ImportOptions(prefix: "in/"))
    try await put(["other"])
    func text(_ name: String) throws -> String {
      String(decoding: try Data(contentsOf: URL(filePath: "\(target)/\(name)")), as: UTF8.self)
    }
    let first = try await store.exportFiles(to: target, options: ExportOptions(stripped: "in/"))
    #expect(first.fileCount == 3 && first.byteCount == 9)
    #expect(try manager.subpathsOfDirectory(atPath: target).sorted() == ["a", "d", "d/b", "other"])
    for name in ["a", "d/b"] {
      #expect(try text(name) == name)
      let modified = try manager.attributesOfItem(atPath: "\(target)/\(name)")[.modificationDate] as? Date
      #expect(modified == time, "\(name)")
    }

    for name in ["a", "d/b"] { try Data("mine".utf8).write(to: URL(filePath: "\(target)/\(name)")) }
    let second = try await store.exportFiles(to: target, options: ExportOptions(stripped: "in/"))
    #expect(second.fileCount == 0 && second.damaged == [])
    #expect(second.skipped.map(\.path).sorted() == ["in/a", "in/d/b"])
    #expect(second.skipped.map(\.isFailure) == [true, true])
    #expect(second.unchangedFileCount == 1 && second.unchangedByteCount == 5)
    for name in ["a", "d/b"] { #expect(try text(name) == "mine") }

    // One of the keys names a blob that is nowhere.
    let engine = try place.engine()
    _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
      try commit.append(
        .ref(
          RefRecord(
            key: Array("in/a".utf8), version: try commit.stamp(), replaced: .none,
            digest: BlobDigest.of(Array("nowhere".utf8)), byteCount: 7, created: 0, metadata: [])))
    }
    try engine.close()
    let third = try await store.exportFiles(
      to: target, options: ExportOptions(stripped: "in/", overwrites: true))
    #expect(third.fileCount == 1 && third.unchangedFileCount == 1 && third.skipped == [])
    #expect(third.damaged.map(\.path) == ["in/a"])
    #expect(try text("a") == "mine")
    #expect(try text("d/b") == "d/b")
    #expect(try manager.subpathsOfDirectory(atPath: target).sorted() == ["a", "d", "d/b", "other"])
  }

  @Test("does not wait for a pipe that is named like a file of an export that died", .timeLimit(.minutes(1)))
  func pipe() async throws {
    try await put(["a"])
    try FileManager.default.createDirectory(atPath: target, withIntermediateDirectories: false)
    #expect(mkfifo("\(target)/.blobstorage-x-1.partial", 0o600) == 0)
    #expect(try await store.exportFiles(to: target).fileCount == 1)
  }

  @Test("of no keys makes no folder")
  func nothing() async throws {
    try await put(["a"])
    #expect(
      try await store.exportFiles(to: target, options: ExportOptions(prefix: .bytes("b"))).fileCount == 0)
    #expect(!FileManager.default.fileExists(atPath: target))
  }

  @Test("reads no longer attributes into memory than an import keeps, whatever a version says")
  func forgedAttributes() async throws {
    var attributes = ByteWriter()
    attributes.varint(2)
    for name in ["user.a", "user.b"] {
      attributes.varint(6)
      attributes.raw(Array(name.utf8))
      attributes.varint(9 << 20)
      attributes.raw([UInt8](repeating: 0, count: 9 << 20))
    }
    let long = try await store.set("long", to: Data(attributes.bytes)).version
    var metadata = ByteWriter()
    metadata.raw(Array("FIL3".utf8))
    // One byte, inode 1, the first second of 1970.
    metadata.raw([2, 1, 0, 0, 0, 0, 0])
    // The attributes are in a blob.
    metadata.varint(64)
    metadata.varint(0o600)
    metadata.raw(long.digest.withUnsafeBytes { Array($0) })
    try await store.set("file", to: Data([1]), options: PutOptions(metadata: metadata.bytes))
    let report = try await store.exportFiles(to: target, options: ExportOptions(prefix: .bytes("file")))
    #expect(report.damaged.map(\.path) == ["file"])
    #expect(!FileManager.default.fileExists(atPath: "\(target)/file"))
  }

  @Test("leaves out what the next export would take for a file that an export has left")
  func ownNames() async throws {
    let own = [
      "d/.blobstorage-mode-755.partial/x", "d/.blobstorage-mode-777.partial", "d/.blobstorage-x-1.partial",
    ]
    try await put(own + ["d/z"])
    for _ in 0..<2 {
      let report = try await store.exportFiles(to: target)
      #expect(report.fileCount + report.unchangedFileCount == 1)
      #expect(report.skipped.map(\.path).sorted() == own)
    }
    #expect(try FileManager.default.subpathsOfDirectory(atPath: target).sorted() == ["d", "d/z"])
  }

  @Test("leaves out what would be another key's path, or none")
  func oddPaths() async throws {
    let odd = ["/d", "a/", "a//b", "c/", "e/../a", "e/./f"]
    try await put(["a/b"] + odd)
    let report = try await store.exportFiles(to: target, options: ExportOptions(overwrites: true))
    #expect(report.fileCount == 1)
    #expect(report.skipped.map(\.path).sorted() == odd)
    #expect(try FileManager.default.subpathsOfDirectory(atPath: target).sorted() == ["a", "a/b"])
    #expect(try Data(contentsOf: URL(filePath: "\(target)/a/b")) == Data("a/b".utf8))
  }

  @Test("makes a file run as its owner only with the owner that it had", arguments: [false, true])
  func setUserID(_ keepsOwners: Bool) async throws {
    let (file, folder) = ("\(root)/tree/f", "\(root)/tree/d")
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try Data("f".utf8).write(to: URL(filePath: file))
    #expect(chmod(file, 0o4755) == 0 && chmod(folder, 0o2755) == 0)
    _ = try await store.importFiles(
      ["\(root)/tree"], options: ImportOptions(prefix: "in/", keepsOwners: keepsOwners))
    for overwrites in [false, true] {
      let report = try await store.exportFiles(
        to: target,
        options: ExportOptions(
          prefix: "in/", stripped: "in/", overwrites: overwrites, restoresOwners: true))
      #expect(report.fileCount == (overwrites ? 0 : 1) && report.skipped == [])
      #expect(overwrites || keepsOwners || report.incompleteCount == 1)
      let modes = try ["f", "d"].map {
        try SystemFiles().status(of: FilePath("\(target)/\($0)"))?.permissions
      }
      #expect(modes == [keepsOwners ? 0o4755 : 0o755, 0o2755])
    }
  }

  @Test("does not replace what it has written, if keys get the same path by what is stripped")
  func samePaths() async throws {
    let keys = ["a", "d", "e/y", "in/a", "in/d/y", "in/e", "in/own", "in/x", "x"]
    try await put(keys)
    var options = ExportOptions(stripped: "in/", overwrites: true, isDryRun: true)
    let planned = try await store.exportFiles(to: target, options: options)
    #expect(planned.skipped.map(\.path).filter { ["in/a", "x"].contains($0) } == ["in/a", "x"])
    options.isDryRun = false
    for isAgain in [false, true] {
      let report = try await store.exportFiles(to: target, options: options)
      #expect(report.fileCount == (isAgain ? 0 : 5) && report.unchangedFileCount == (isAgain ? 5 : 0))
      #expect(report.skipped.map(\.path).sorted() == ["in/a", "in/d/y", "in/e", "x"])
      for (path, key) in [("a", "a"), ("d", "d"), ("e/y", "e/y"), ("own", "in/own"), ("x", "in/x")] {
        #expect(try Data(contentsOf: URL(filePath: "\(target)/\(path)")) == Data(key.utf8))
      }
    }
    // Where all keys begin with it, no two have the same path.
    options.prefix = "in/"
    #expect(try await store.exportFiles(to: "\(root)/other", options: options).fileCount == 5)
  }

  @Test("never writes into the store's own folder")
  func ownFolder() async throws {
    try await put(["a", "store/packs/b", "store/new/c"])
    func inStore() throws -> [String] {
      // Besides what says that an export is under way.
      try FileManager.default.subpathsOfDirectory(atPath: place.path).filter { !$0.hasPrefix("activities") }
        .sorted()
    }
    let before = try inStore()
    try FileManager.default.createSymbolicLink(atPath: "\(root)/link", withDestinationPath: "store/packs")
    for path in [place.path, "\(place.path)/packs", "\(place.path)/new", "\(root)/link"] {
      let error = await #expect(throws: BlobStorageError.self, "\(path)") {
        try await store.exportFiles(to: path)
      }
      #expect(error?.code == .invalidArgument)
    }
    let report = try await store.exportFiles(to: root)
    #expect(report.fileCount == 1)
    #expect(report.skipped.map(\.path) == ["store/new/c", "store/packs/b"])
    #expect(report.skipped.allSatisfy { $0.reason.contains("the store's own folder") })
    #expect(try inStore() == before)
  }
}

@Suite("What would mean every key")
struct EveryKeyTests {
  @Test("is said and not left empty")
  func explicit() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    for key in ["a", "b"] {
      for value in 0..<3 {
        try await store.set(key, to: Data([UInt8(value)]), archivingCurrent: true, durability: .relaxed)
      }
    }
    let refused: [(String, () async throws -> Void)] = [
      ("deleteAllKeys()", { try await store.delete(prefix: "") }),
      ("deleteAllKeys()", { try store.blocking.delete(prefix: "") }),
      ("trimHistory(of: .all, toArchived:)", { try await store.trimHistory(of: .prefix(""), toArchived: 0) }),
    ]
    for (name, body) in refused {
      let error = await #expect(throws: BlobStorageError.self) { try await body() }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains(name) == true)
    }
    #expect(try await store.versions(of: "a").count == 3)
    let kept = try await store.trimHistory(of: .all, toArchived: 1)
    #expect(kept.keyCount == 2 && kept.droppedVersionCount == 2)
    #expect(try await store.trimHistory(of: .prefix(.bytes("a")), toArchived: 0).droppedVersionCount == 1)
    #expect(try await store.delete(prefix: .bytes("a")) == 1)
    #expect(try await store.deleteAllKeys() == 1)
    try await store.set("c", to: Data())
    #expect(try store.blocking.deleteAllKeys() == 1)
  }
}

import BlobStorage
import Foundation
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
    let report = try await store.exportFiles(to: target, options: ExportOptions(prefix: "k"))
    #expect(report.fileCount == count)
    #expect(report.skipped == [] && report.damaged == [])
    #expect(try FileManager.default.contentsOfDirectory(atPath: target).sorted() == keys)
  }

  @Test("leaves out what a manifest makes of the chunks of other bytes, and tells it")
  func wrongManifest() async throws {
    let parts = ["one", "other"]
    try await put(parts)
    let wrong = Digest.of(Array("neither".utf8))
    let engine = try place.engine()
    let layout = try BlobLayout(
      digest: wrong,
      chunks: parts.map {
        ChunkEntry(digest: Digest.of(Array($0.utf8)), plainByteCount: $0.utf8.count)
      })
    _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
      _ = try engine.appendManifest(of: layout, unlessThere: false, &commit)
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
    #expect(try FileManager.default.contentsOfDirectory(atPath: target).sorted() == parts)
  }

  @Test("of no keys makes no folder")
  func nothing() async throws {
    try await put(["a"])
    #expect(try await store.exportFiles(to: target, options: ExportOptions(prefix: "b")).fileCount == 0)
    #expect(!FileManager.default.fileExists(atPath: target))
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
      for value in 0..<3 { try await store.archive(key, andSet: Data([UInt8(value)]), durability: .relaxed) }
    }
    let refused: [(String, () async throws -> Void)] = [
      ("deleteAllKeys()", { try await store.delete(prefix: "") }),
      ("deleteAllKeys()", { try store.blocking.delete(prefix: "") }),
      ("keepInAllKeys(upTo:)", { try await store.keep(upTo: 0, prefix: "") }),
    ]
    for (name, body) in refused {
      let error = await #expect(throws: BlobStorageError.self) { try await body() }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains(name) == true)
    }
    #expect(try await store.versions(of: "a").count == 3)
    let kept = try await store.keepInAllKeys(upTo: 1)
    #expect(kept.keyCount == 2 && kept.droppedVersionCount == 2)
    #expect(try await store.keep(upTo: 0, prefix: "a").droppedVersionCount == 1)
    #expect(try await store.delete(prefix: "a") == 1)
    #expect(try await store.deleteAllKeys() == 1)
    try await store.set("c", to: Data())
    #expect(try store.blocking.deleteAllKeys() == 1)
  }
}

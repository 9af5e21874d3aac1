import BlobStorage
import BlobStorageDropIn
import Foundation
import Testing

/// Keepers that look only when they are told something: nothing happens by itself after a while.
@Suite struct SpaceKeeperTests {
  let folder: Folder
  let store: BlockingBlobStore

  init() throws {
    folder = try Folder()
    store = try .create(at: folder.url.appendingPathComponent("store").path)
  }

  private func keeper() -> SpaceKeeper {
    let keeper = SpaceKeeper(idleSeconds: 1e9)
    keeper.begin(store)
    return keeper
  }

  private func put(_ key: String, seed: UInt64) throws -> BlobVersion {
    try store.put(.data(randomBytes(1 << 20, seed: seed)), forKey: key).version
  }

  /// What the packs take.
  private func packByteCount() throws -> Int {
    let packs = folder.url.appendingPathComponent("store/packs").path
    return try FileManager.default.contentsOfDirectory(atPath: packs).reduce(0) { sum, name in
      let attributes = try FileManager.default.attributesOfItem(atPath: packs + "/" + name)
      return sum + (attributes[.size] as? Int ?? 0)
    }
  }

  @Test("a collection that turns out not to be due does not keep a later one from running")
  func notDue() throws {
    let keeper = keeper()
    // Reported as much, while next to nothing is stored.
    keeper.put(100 << 20)
    keeper.waitForCollection()
    for seed in 1...8 { _ = try put("k", seed: UInt64(seed)) }
    #expect(try packByteCount() >= 8 << 20)
    keeper.put(8 << 20)
    keeper.waitForCollection()
    #expect(try store.data(forKey: "k") == randomBytes(1 << 20, seed: 8))
    try store.close()
    #expect(try packByteCount() < 2 << 20)
  }

  @Test("a collection that another process holds up is made later")
  func heldUp() throws {
    let keeper = keeper()
    for seed in 1...8 { _ = try put("k", seed: UInt64(seed)) }
    do {
      let other = try CollectionLock(store.store.engine, waitSeconds: 0)
      keeper.put(8 << 20)
      keeper.waitForCollection()
      #expect(try packByteCount() >= 8 << 20)
      withExtendedLifetime(other) {}
    }
    // Nothing more is stored: the garbage is what it was.
    keeper.put(0)
    keeper.waitForCollection()
    try store.close()
    #expect(try packByteCount() < 2 << 20)
  }

  @Test("no number of removals is too large, and neither is what the file says")
  func numbers() throws {
    for _ in 0..<4 { _ = try put("k", seed: 1) }
    let note = folder.url.appendingPathComponent("store/drop-in-live")
    try Data("\(Int64.max)".utf8).write(to: note)
    let keeper = keeper()
    for _ in 0..<9_000 { keeper.droppedAll() }
    #expect(try String(contentsOf: note, encoding: .utf8) == "0")
    let version = try put("k", seed: 1)
    let forged = BlobVersion(
      key: "k", id: version.id, digest: version.digest, byteCount: .max, created: version.created)
    for _ in 0..<3 { keeper.dropped([forged, forged]) }
    #expect(try String(contentsOf: note, encoding: .utf8) == "0")
  }

  @Test("what was dropped before a process died is given back at the end of the next")
  func recordOfDroppedBytes() throws {
    let first = keeper()
    let versions = [try put("k1", seed: 1), try put("k2", seed: 2)]
    first.put(2 << 20)
    first.end()
    let note = folder.url.appendingPathComponent("store/drop-in-live")
    let live = try #require(Int(String(contentsOf: note, encoding: .utf8)))
    #expect(live >= 2 << 20 && live < 3 << 20)
    // It dies before it has collected anything.
    let second = keeper()
    #expect(try store.delete("k1"))
    #expect(try store.delete("k2"))
    second.dropped(versions)
    second.waitForCollection()
    #expect(try packByteCount() >= 2 << 20)
    let third = keeper()
    third.waitForCollection()
    #expect(try packByteCount() >= 2 << 20)
    third.end()
    try store.close()
    #expect(try packByteCount() < 1 << 20)
    withExtendedLifetime(second) {}
  }
}

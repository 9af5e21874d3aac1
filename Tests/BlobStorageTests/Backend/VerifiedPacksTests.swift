import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("What was verified before")
struct VerifiedPacksTests {
  private static func noise(_ seed: UInt64) -> Data {
    var random = SplitMix64(seed: seed)
    return Data(random.bytes(100_000))
  }

  private func verify(_ store: BlobStore, _ maximumAge: Duration = .seconds(3_600)) async throws
    -> VerificationReport
  {
    try await store.verify(maximumAge: maximumAge)
  }

  @Test("does not cover what a pack has got since")
  func growth() async throws {
    let place = try StorePlace()
    var store = try await place.opened()
    try await store.set("a", to: Self.noise(1))
    let first = try await verify(store)
    #expect(first.packCount == 1 && first.duePackCount == 1)
    // The same pack, which is open.
    try await store.set("b", to: Self.noise(2))
    let second = try await verify(store)
    #expect(second.packCount == 1 && second.duePackCount == 1 && second.byteCount == 200_000)
    try await store.close()
    store = try await place.opened()
    // It has its footer by now.
    #expect(try await verify(store).duePackCount == 1)
    let last = try await verify(store)
    #expect(last.duePackCount == 0 && last.byteCount == 0 && last.blobCount == 2 && last.damaged == [])
    #expect(try await store.verify().duePackCount == nil)
    #expect(try await store.verify(.structure).byteCount == 0)
    try await Task.sleep(for: .milliseconds(20))
    #expect(try await verify(store, .milliseconds(1)).duePackCount == 1)
    try await store.close()
  }

  @Test("counts for nothing in a pack that is missing, and that pack is reported each time")
  func missing() async throws {
    let place = try StorePlace()
    var store = try await place.opened()
    try await store.set("a", to: Self.noise(1))
    try await store.close()
    store = try await place.opened()
    _ = try await store.verify()
    let folder = URL(filePath: place.path).appending(path: "packs")
    for pack in try FileManager.default.contentsOfDirectory(atPath: folder.path) {
      try FileManager.default.removeItem(at: folder.appending(path: pack))
    }
    for _ in 0..<2 { #expect(try await !verify(store).damaged.isEmpty) }
    try await store.close()
  }
}

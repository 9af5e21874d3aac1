import BlobStorage
import BlobStorageObservation
import BlobStorageReports
import BlobStorageTesting
import Foundation
import Synchronization
import Testing

@Suite("Holds by name", .timeLimit(.minutes(1)))
struct NamedHoldTests {
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0)

  private static func bytes(_ byteCount: Int, _ seed: Int = 1) -> Data {
    Data((0..<byteCount).map { UInt8(truncatingIfNeeded: ($0 &* $0 &+ seed &* 7_919) >> 4) })
  }

  @Test(
    "keep bytes without a key, until a key has them or the hold is released", arguments: [0, 10, 3_000_000])
  func keyless(_ byteCount: Int) async throws {
    let test = try await TestStore.create()
    let (store, data) = (test.store, Self.bytes(byteCount))
    let changes = try await store.changes(prefix: "k")
    let hold = try await store.put(.data(data), holding: "upload")
    let streamed = Mutex(false)
    let other = try await store.put(
      .stream {
        streamed.withLock { done in
          done
            ? nil
            : ({
              done = true; return data + Data([1])
            })()
        }
      },
      holding: "other")
    #expect(hold.byteCount == Int64(byteCount) && hold.digest == BlobDigest.of(data))
    #expect(try await store.holds() == [other, hold])
    #expect(try await store.keys(limit: 9).isEmpty)
    #expect(try await store.collectGarbage(Self.everything).obstacles == [])
    try await store.reopen()
    #expect(try await store.data(for: hold.digest) == data)
    #expect(try await store.data(for: other.digest) == data + Data([1]))
    try await store.link("k", to: hold.digest)
    #expect(try await store.release("upload"))
    #expect(try await !store.release("upload"))
    #expect(try await store.release("other"))
    _ = try await store.collectGarbage(Self.everything)
    #expect(try await store.data(forKey: "k") == data)
    #expect(try await store.data(for: other.digest) == nil)
    // The key of a put without a key is nothing that anyone watches.
    var iterator = changes.makeAsyncIterator()
    let change = try #require(try await iterator.next())
    if case .set(let version) = change { #expect(version.key == "k") } else { #expect(change == .reload) }
    #expect(try await store.verify(.blobs).damaged == [])
    try await test.close()
  }

  @Test("keep a blob whatever happens to its keys, and are counted as live")
  func existing() async throws {
    let test = try await TestStore.create()
    let store = test.store
    let version = try await store.set("k", to: Self.bytes(500_000)).version
    #expect(try await store.hold(BlobDigest.of(Data([9])), as: "nothing") == nil)
    try await store.hold(version.digest, as: "a")
    try await store.hold(version.digest, as: "b")
    let second = await #expect(throws: BlobStorageError.self) {
      try await store.hold(version.digest, as: "a")
    }
    #expect(second?.code == .conditionFailed)
    try await store.delete("k")
    #expect(try await store.statistics().storedByteCount > 0)
    _ = try await store.collectGarbage(Self.everything)
    try await store.release("a")
    _ = try await store.collectGarbage(Self.everything)
    #expect(try await store.data(for: version.digest)?.count == 500_000)
    try await store.release("b")
    _ = try await store.collectGarbage(Self.everything)
    #expect(try await store.data(for: version.digest) == nil)
    #expect(try await store.statistics().storedByteCount == 0)
    for name in ["", String(repeating: "n", count: 256)] {
      let error = await #expect(throws: BlobStorageError.self) {
        try await store.put(.data(Data()), holding: name)
      }
      #expect(error?.code == .invalidArgument)
    }
    try await test.close()
  }

  @Test("that cannot be read keep gc from removing anything", arguments: 0..<3)
  func damaged(_ kind: Int) async throws {
    let test = try await TestStore.create()
    let store = test.store
    let hold = try await store.put(.data(Self.bytes(100_000)), holding: "n\u{e4}me\nwith a line")
    try await store.set("garbage", to: Self.bytes(100_000, 2))
    try await store.delete("garbage")
    let file = test.folder.appending(path: "holds")
    var bytes = try Data(contentsOf: file)
    switch kind {
    case 0: bytes[5] ^= 1
    case 1: bytes.removeLast(12)
    default: bytes = Data()
    }
    try bytes.write(to: file)
    let error = await #expect(throws: BlobStorageError.self) {
      try await store.collectGarbage(Self.everything)
    }
    #expect(error?.code == .corrupted && error?.message.contains("holds") == true)
    #expect(try await store.data(for: hold.digest) != nil)
    let listing = await #expect(throws: BlobStorageError.self) { try await store.holds() }
    #expect(listing?.code == .corrupted)
    try FileManager.default.removeItem(at: file)
    _ = try await store.collectGarbage(Self.everything)
    #expect(try await store.data(for: hold.digest) == nil)
    try await test.close()
  }

  @Test(
    "are safe beside gc: what was put without a key is there, however often garbage is collected meanwhile")
  func beside() async throws {
    let test = try await TestStore.create()
    let (store, path) = (test.store, test.folder)
    let isDone = Mutex(false)
    let collecting = Task {
      let other = try await BlobStore.open(at: path)
      while !isDone.withLock({ $0 }) {
        _ = try await other.collectGarbage(
          GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(60)))
      }
      try await other.close()
    }
    for round in 0..<24 {
      // The same bytes again and again: the put finds chunks that gc is about to remove.
      let data = Self.bytes(round % 3 == 0 ? 2_000_000 : 30_000, round % 3)
      let hold = try await store.put(.data(data), holding: "hold")
      #expect(try await store.data(for: hold.digest) == data)
      try await store.link("k", to: hold.digest)
      try await store.release("hold")
      #expect(try await store.data(forKey: "k") == data)
      try await store.delete("k")
    }
    isDone.withLock { $0 = true }
    try await collecting.value
    try await test.close()
  }
}

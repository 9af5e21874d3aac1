import BlobStorage
import BlobStorageObservation
import BlobStorageReports
import BlobStorageTesting
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Holds by name", .timeLimit(.minutes(3)))
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
    let changes = try await store.changes()
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
    let second = try await BlobStore.open(at: test.folder)
    #expect(try await second.data(for: hold.digest) == data)
    #expect(try await second.data(for: other.digest) == data + Data([1]))
    try await second.close()
    try await store.link("k", to: hold.digest)
    #expect(try await store.release("upload"))
    #expect(try await !store.release("upload"))
    #expect(try await store.release("other"))
    _ = try await store.collectGarbage(Self.everything)
    #expect(try await store.data(forKey: "k") == data)
    #expect(try await store.data(for: other.digest) == nil)
    // A put without a key is no change of a key.
    for try await change in changes {
      if case .set(let version) = change { #expect(version.key == "k") } else { #expect(change == .reload) }
      break
    }
    #expect(try await store.verify(.blobs).damaged == [])
    try await test.close()
  }

  @Test("have names that are told apart by their bytes")
  func names() async throws {
    let test = try await TestStore.create()
    let store = test.store
    let names = ["caf\u{e9}", "cafe\u{301}"]
    for (index, name) in names.enumerated() {
      _ = try await store.put(.data(Self.bytes(100, index)), holding: name)
    }
    #expect(try await store.holds().count == 2)
    #expect(try await store.release(names[1]))
    #expect(try await store.holds().map { Array($0.name.utf8) } == [Array(names[0].utf8)])
    #expect(try await !store.release(names[1]))
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
    // Once more, as after a crash, and not for another blob.
    #expect(try await store.hold(version.digest, as: "a")?.name == "a")
    let second = await #expect(throws: BlobStorageError.self) {
      _ = try await store.put(.data(Data([1])), holding: "a")
    }
    #expect(try await store.holds().count == 2)
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

  @Test("that cannot be read keep gc from removing anything", arguments: 0..<4)
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
    if kind == 3 {
      try FileManager.default.moveItem(at: file, to: test.folder.appending(path: "moved"))
      try FileManager.default.createSymbolicLink(
        at: file, withDestinationURL: test.folder.appending(path: "moved"))
    } else {
      try bytes.write(to: file)
    }
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

  @Test("are looked after: a held blob that is damaged is told by verify and repair, and gc removes nothing")
  func damagedBlob() async throws {
    let test = try await TestStore.create()
    let store = test.store
    let version = try await store.set("k", to: Self.bytes(200_000)).version
    try await store.hold(version.digest, as: "h")
    try await store.set("garbage", to: Self.bytes(100_000, 2))
    try await store.delete("garbage")
    try await test.damage("k")
    try await store.delete("k")
    try await store.reopen()
    let report = try await store.verify(.blobs)
    #expect(report.damaged.contains { $0.keys == ["hold h"] }, "\(report.damaged)")
    let garbage = try await store.collectGarbage(Self.everything)
    #expect(!garbage.obstacles.isEmpty && garbage.deletedPackCount + garbage.compactedPackCount == 0)
    let repaired = try await store.repair()
    #expect(repaired.unreadableHolds == ["h"], "\(repaired)")
    // The same bytes heal it.
    _ = try await store.put(.data(Self.bytes(200_000)), holding: "h")
    #expect(try await store.data(for: version.digest) == Self.bytes(200_000))
    try await test.close()
  }

  @Test("are not left by a put that fails, and the same put succeeds afterwards")
  func failed() async throws {
    let test = try await TestStore.create()
    let store = test.store
    try await store.set("k", to: Data([1]))
    test.medium.failsSyncs = true
    _ = await #expect(throws: BlobStorageError.self) {
      _ = try await store.put(.data(Self.bytes(50_000)), holding: "h")
    }
    test.medium.heal()
    try await store.reopen()
    let hold = try await store.put(.data(Self.bytes(50_000)), holding: "h")
    #expect(try await store.holds() == [hold])
    _ = try await store.collectGarbage(Self.everything)
    #expect(try await store.data(for: hold.digest) == Self.bytes(50_000))
    try await test.close()
  }

  /// Opens a store. Runs `body` once, when a put has made its hold, and begins a pack for the blob.
  private func engine(
    of place: StorePlace, number: UInt64? = nil,
    _ body: @escaping @Sendable () throws(BlobStorageError) -> Void
  ) throws -> Engine {
    let isFirst = Atomic<Bool>(true)
    var environment = Engine.Environment()
    // Puts without a key lock stripes that this number chooses.
    if let number { environment.randomNumber = { number } }
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "rename", path.string.contains("/packs/"),
        isFirst.exchange(false, ordering: .acquiringAndReleasing)
      else { return }
      try body()
    }
    return try place.engine(environment)
  }

  @Test("stay for a put that has succeeded when another of the same bytes, which had made the hold, fails")
  func failedBeside() throws {
    let place = try StorePlace()
    let other = try place.engine()
    let data = Self.bytes(50_000)
    let engine = try engine(of: place) { () throws(BlobStorageError) in
      _ = try BlobHolds(other).put(.data(data), as: "h", PutOptions())
      throw BlobStorageError(.io, "The pack cannot be begun.")
    }
    #expect(failure { _ = try BlobHolds(engine).put(.data(data), as: "h", PutOptions()) } != nil)
    #expect(try BlobHolds(other).all().map(\.digest) == [BlobDigest.of(data)])
    try other.writer.rollOver()
    _ = try other.collectGarbage(Self.everything)
    #expect(try other.data(BlobDigest.of(data)) == data)
  }

  @Test("stay for a put that has succeeded when one fails that had made the hold anew after a release")
  func failedAfterRelease() throws {
    let place = try StorePlace()
    let other = try place.engine()
    let data = Self.bytes(50_000)
    let isHeld = DispatchSemaphore(value: 0)
    let isHeldAnew = DispatchSemaphore(value: 0)
    let isDone = DispatchSemaphore(value: 0)
    let first = try engine(of: place, number: 1) { () throws(BlobStorageError) in
      _ = try BlobHolds(other).release("h")
      isHeld.signal()
      isHeldAnew.wait()
    }
    let second = try engine(of: place, number: 2) { () throws(BlobStorageError) in
      isHeldAnew.signal()
      isDone.wait()
      throw BlobStorageError(.io, "The pack cannot be begun.")
    }
    let result = Mutex<BlobHold?>(nil)
    Thread.start(named: "first") {
      let hold = try? BlobHolds(first).put(.data(data), as: "h", PutOptions())
      result.withLock { $0 = hold }
      isDone.signal()
    }
    isHeld.wait()
    #expect(failure { _ = try BlobHolds(second).put(.data(data), as: "h", PutOptions()) } != nil)
    #expect(result.withLock { $0 } != nil)
    #expect(try BlobHolds(other).all().map(\.digest) == [BlobDigest.of(data)])
  }

  @Test("are released if the release finds no room only after it has replaced the file")
  func releasedWithoutRoom() throws {
    let place = try StorePlace()
    let isFull = Atomic<Bool>(false)
    let syncCount = Atomic<Int>(0)
    var environment = Engine.Environment()
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "syncDirectory" else { return }
      if isFull.exchange(false, ordering: .acquiringAndReleasing) {
        throw .systemCall("sync", path: path, errno: Errno.noSpace.rawValue)
      }
      syncCount.add(1, ordering: .relaxed)
    }
    let engine = try place.engine(environment)
    _ = try BlobHolds(engine).put(.data(Self.bytes(50_000)), as: "h", PutOptions())
    isFull.store(true, ordering: .releasing)
    let before = syncCount.load(ordering: .relaxed)
    #expect(try BlobHolds(engine).release("h"))
    #expect(syncCount.load(ordering: .relaxed) > before)
    #expect(try BlobHolds(engine).all().isEmpty)
    #expect(try !BlobHolds(engine).release("h"))
  }

  @Test("go to one of two puts of different bytes that have the name at the same time, and the other fails")
  func twoAtOnce() throws {
    let place = try StorePlace()
    let other = try place.engine()
    let engine = try engine(of: place) { () throws(BlobStorageError) in
      _ = try BlobHolds(other).put(.data(Self.bytes(40_000, 2)), as: "h", PutOptions())
    }
    let error = failure { _ = try BlobHolds(engine).put(.data(Self.bytes(50_000)), as: "h", PutOptions()) }
    #expect(error?.code == .conditionFailed)
    #expect(try BlobHolds(other).all().map(\.digest) == [BlobDigest.of(Self.bytes(40_000, 2))])
  }

  @Test("are not returned by a put if another put has had the name meanwhile, and it was released")
  func releasedMeanwhile() throws {
    let place = try StorePlace()
    let other = try place.engine()
    let engine = try engine(of: place) { () throws(BlobStorageError) in
      _ = try BlobHolds(other).put(.data(Self.bytes(40_000, 2)), as: "h", PutOptions())
      _ = try BlobHolds(other).release("h")
    }
    let data = Self.bytes(50_000)
    let error = failure { _ = try BlobHolds(engine).put(.data(data), as: "h", PutOptions()) }
    #expect(error?.code == .conditionFailed)
    let hold = try BlobHolds(engine).put(.data(data), as: "h", PutOptions())
    #expect(try BlobHolds(other).all() == [hold])
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

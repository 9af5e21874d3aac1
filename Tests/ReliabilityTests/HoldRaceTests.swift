import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Two puts without a key under one name at the same time")
struct HoldRaceTests {
  private let lab: Lab
  private let process: SimulatedProcess
  private let one: Engine
  private let other: Engine

  init() throws {
    lab = try Lab()
    process = lab.disk.process()
    (one, other) = (try lab.open(process), try lab.open())
    for engine in [one, other] { _ = try engine.put("begun", .data(noise(1, 300)), PutOptions()) }
  }

  /// Runs `body` once, when the first process has written its hold and is about to write the blob to its pack.
  private func beforeWrite(_ body: @escaping @Sendable () throws(BlobStorageError) -> Void) {
    let isFirst = Mutex(true)
    lab.disk.beforeMutations { [process] (call) throws(BlobStorageError) in
      guard call.process == process.number, call.kind == .write, call.detail.contains("/packs/"),
        isFirst.withLock({ $0.exchange(false) })
      else { return }
      try body()
    }
  }

  /// Fails if a put that fails takes back a hold on which another put relies.
  @Test("hold the blob if the second succeeds, although the first fails")
  func sameBlob() throws {
    let data = noise(2, 5_000)
    beforeWrite { [other] () throws(BlobStorageError) in
      _ = try other.put(.data(data), holding: "h", PutOptions())
      throw .systemCall("write to", path: "pack", errno: Errno.ioError.rawValue)
    }
    #expect(throws: BlobStorageError.self) { try one.put(.data(data), holding: "h", PutOptions()) }
    lab.disk.beforeMutations(nil)
    let digest = BlobDigest.of(Array(data))
    let digests = try other.holds().map(\.digest)
    #expect(digests == [digest])
    _ = try other.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    let read = try other.data(digest)
    #expect(read == data)
  }

  /// Fails if a put returns although another has given its name to another blob.
  @Test("of different blobs hold one of them, and the other put says so")
  func otherBlob() throws {
    let (first, second) = (noise(3, 5_000), noise(4, 5_000))
    beforeWrite { [other] () throws(BlobStorageError) in
      _ = try other.put(.data(second), holding: "h", PutOptions())
    }
    let error = #expect(throws: BlobStorageError.self) {
      try one.put(.data(first), holding: "h", PutOptions())
    }
    lab.disk.beforeMutations(nil)
    #expect(error?.code == .conditionFailed)
    let digests = try other.holds().map(\.digest)
    #expect(digests == [BlobDigest.of(Array(second))])
  }
}

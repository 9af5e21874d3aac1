import BlobStorage
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A group of threads that wait for a sync")
struct SyncGroupTests {
  private static let pack = PackName(writer: 1, sequence: 1)

  private static func watermark(_ byteCount: Int64) -> WriterSession.Watermark {
    WriterSession.Watermark(pack: pack, byteCount: byteCount)
  }

  @Test("has one leader; it wakes those whose bytes it has synced, and the next leader")
  func turns() throws {
    var group = SyncGroup()
    #expect(group.join(Self.watermark(10)) == nil)
    var members: [SyncGroup.Member] = []
    for byteCount: Int64 in [20, 30, 25, 40] {
      if let member = group.join(Self.watermark(byteCount)) { members.append(member) }
    }
    func end(_ syncedByteCount: Int64) -> (leader: Int64?, durable: [Int64]) {
      let (leader, durable) = group.end { $0.byteCount <= syncedByteCount }
      return (leader?.watermark.byteCount, durable.map(\.watermark.byteCount))
    }
    #expect(members.map(\.watermark.byteCount) == [20, 30, 25, 40])
    let first = end(25)
    #expect(first.leader == 30 && first.durable == [20, 25])
    // It still has a leader.
    #expect(group.join(Self.watermark(50)) != nil)
    // A sync that failed: nothing is durable, and each of the others finds out by itself.
    let second = end(0)
    #expect(second.leader == 40 && second.durable == [])
    let third = end(60)
    #expect(third.leader == nil && third.durable == [50])
    #expect(group.join(Self.watermark(70)) == nil)
  }

  @Test("tells a thread that is woken whether it leads")
  func members() {
    for isLeader in [false, true] {
      let member = SyncGroup.Member(Self.watermark(1))
      member.wake(asLeader: isLeader)
      #expect(member.wait() == isLeader)
    }
  }

  // MARK: In a store

  private static let count = 6

  /// A store in which the first sync of a pack waits until all threads have committed, and then does `outcome`. The
  /// number counts the syncs of packs.
  private static func putTogether(
    _ outcome: @escaping @Sendable (_ path: String) throws(BlobStorageError) -> Void
  ) throws -> (place: StorePlace, engine: Engine, syncCount: Int, failures: [BlobStorageError.Code]) {
    let isArmed = Atomic<Bool>(false)
    let syncCount = Atomic<Int>(0)
    let known = Mutex<Engine?>(nil)
    var environment = Pair.environment
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "synchronize", path.string.contains("/packs/"), isArmed.load(ordering: .acquiring) else {
        return
      }
      guard syncCount.wrappingAdd(1, ordering: .relaxed).newValue == 1, let engine = known.withLock({ $0 })
      else { return }
      for number in 0..<count {
        while try engine.data("k\(number)", nil) == nil { Thread.sleep(forTimeInterval: 0.000_5) }
      }
      try outcome(path.string)
    }
    let place = try StorePlace()
    let engine = try place.engine(environment)
    try #require(engine.catalog.live.table != nil)
    // So that nothing else of the pack has to be synced.
    _ = try engine.put("before", [0], PutOptions())
    known.withLock { $0 = engine }
    isArmed.store(true, ordering: .releasing)
    let failures = Mutex<[BlobStorageError.Code]>([])
    let isEnded: Void? = try ending {
      try together(
        (0..<count).map { number in
          {
            do throws(BlobStorageError) {
              _ = try engine.put("k\(number)", .data(Data([UInt8(number)])), PutOptions())
            } catch {
              failures.withLock { $0.append(error.code) }
            }
          }
        })
    }
    #expect(isEnded != nil)
    known.withLock { $0 = nil }
    return (place, engine, syncCount.load(ordering: .relaxed), failures.withLock { $0 })
  }

  /// All have committed before the first sync returns: the second sync is for all of them.
  @Test("has all threads that came during one sync share the next")
  func sharedSync() throws {
    let (place, engine, syncCount, failures) = try Self.putTogether { (_) throws(BlobStorageError) in }
    #expect(failures == [])
    #expect(syncCount == 2)
    try engine.close()
    withExtendedLifetime(place) {}
  }

  @Test("fails as a whole when a sync fails, and ends the writer")
  func failedSync() throws {
    let (place, engine, syncCount, failures) = try Self.putTogether { (path) throws(BlobStorageError) in
      throw BlobStorageError(.io, "planned", path: path)
    }
    #expect(failures == Array(repeating: .poisoned, count: Self.count))
    // A second sync proves nothing.
    #expect(syncCount == 1)
    #expect(failure { _ = try engine.put("after", [1], .relaxed) }?.code == .poisoned)
    #expect(failure { try engine.close() }?.code == .poisoned)
    withExtendedLifetime(place) {}
  }
}

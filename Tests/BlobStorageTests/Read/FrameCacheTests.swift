import BlobStorage
import Foundation
import Synchronization
import Testing

@Suite("The cache of decoded frames")
struct FrameCacheTests {
  private static let members: [[UInt8]] = (0..<4).map { [UInt8](repeating: $0, count: 1_000) }
  private static let digests = members.map { BlobDigest.of($0) }

  private static func key(_ number: Int) -> FrameCache.Key {
    FrameCache.Key(pack: PackName(writer: 1, sequence: 1), offset: Int64(number))
  }

  /// A frame that was decoded up to a member.
  private static func frame(upTo last: Int = 3) -> Frame {
    Frame(
      plain: Array(members[...last].joined()),
      members: zip(digests, members).lazy.map { ($0, byteCount: $1.count) })
  }

  @Test("lets one thread decode a frame while the others wait for it")
  func once() {
    let cache = FrameCache(byteCountMax: 1 << 20)
    let decodings = Atomic(0)
    DispatchQueue.concurrentPerform(iterations: 8) { _ in
      for number in 0..<50 {
        let frame = try? cache.frame(Self.key(number), holding: Self.digests[0]) { _ in
          decodings.add(1, ordering: .relaxed)
          // Long enough for another thread to come.
          Thread.sleep(forTimeInterval: 0.001)
          return Self.frame()
        }
        #expect(frame?.plain.count == 4_000)
      }
    }
    #expect(decodings.load(ordering: .relaxed) == 50)
  }

  @Test("has the next thread try again if one could not decode a frame")
  func failed() {
    let cache = FrameCache(byteCountMax: 1 << 20)
    let attempts = Atomic(0)
    let found = Atomic(0)
    DispatchQueue.concurrentPerform(iterations: 8) { _ in
      let frame = try? cache.frame(Self.key(1), holding: Self.digests[0]) { (_) throws(BlobStorageError) in
        guard attempts.add(1, ordering: .relaxed).newValue > 3 else {
          throw BlobStorageError(.corrupted, "damaged")
        }
        return Self.frame()
      }
      if frame != nil { found.add(1, ordering: .relaxed) }
    }
    #expect(attempts.load(ordering: .relaxed) == 4)
    #expect(found.load(ordering: .relaxed) == 5)
  }

  @Test("keeps the beginning of a frame, and asks for all of it when more is wanted")
  func partly() throws {
    let cache = FrameCache(byteCountMax: 1 << 20)
    _ = try cache.frame(Self.key(1), holding: Self.digests[1]) { isFirst in
      #expect(isFirst)
      return Self.frame(upTo: 1)
    }
    #expect(cache.kept(Self.key(1), holding: Self.digests[0]) != nil)
    #expect(cache.kept(Self.key(1), holding: Self.digests[2]) == nil)
    _ = try cache.frame(Self.key(1), holding: Self.digests[2]) { isFirst in
      #expect(!isFirst)
      return Self.frame()
    }
    #expect(cache.kept(Self.key(1), holding: Self.digests[3]) != nil)
  }

  @Test("drops the frames that were not used for longest, and keeps one in any case")
  func bounded() throws {
    let cache = FrameCache(byteCountMax: 9_000)
    for number in [0, 1, 0, 2] {
      _ = try cache.frame(Self.key(number), holding: Self.digests[0]) { _ in Self.frame() }
    }
    #expect((0..<3).map { cache.kept(Self.key($0), holding: Self.digests[0]) != nil } == [true, false, true])
    let tiny = FrameCache(byteCountMax: 9_000)
    for number in 0..<1_000 {
      _ = try tiny.frame(Self.key(number), holding: Self.digests[0]) { _ in
        Frame(plain: [1, 2], members: Self.digests.prefix(2).map { (digest: $0, byteCount: 1) })
      }
    }
    #expect((0..<1_000).count { tiny.kept(Self.key($0), holding: Self.digests[0]) != nil } < 100)
    let small = FrameCache(byteCountMax: 10)
    for number in 0..<2 {
      _ = try small.frame(Self.key(number), holding: Self.digests[0]) { _ in Self.frame() }
    }
    #expect((0..<2).map { small.kept(Self.key($0), holding: Self.digests[0]) != nil } == [false, true])
  }
}

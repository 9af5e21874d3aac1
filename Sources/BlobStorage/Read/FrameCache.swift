/// The plain bytes of a frame, or the first of them, and the ranges of its members.
package final class Frame: Sendable {
  package let plain: [UInt8]
  private let members: [BlobDigest: Range<Int>]

  /// - Parameter members: all members with their lengths, in order.
  package init(plain: [UInt8], members: some Sequence<(digest: BlobDigest, byteCount: Int)>) {
    self.plain = plain
    var ranges: [BlobDigest: Range<Int>] = [:]
    var start = 0
    for member in members {
      ranges[member.digest] = start..<start + member.byteCount
      start += member.byteCount
    }
    self.members = ranges
  }

  /// Approximate memory: the plain bytes, and the ranges of the members, which can take more.
  fileprivate var memoryByteCount: Int { plain.count + 100 * (members.count + 1) }

  /// Whether the frame is decoded far enough for a member; true for a digest that is not a member.
  func holds(_ digest: BlobDigest) -> Bool { members[digest].map { $0.upperBound <= plain.count } ?? true }

  /// The plain bytes of a member, compared with its digest.
  func bytes<Bytes: FilledBytes>(of digest: BlobDigest) throws(BlobStorageError) -> Bytes {
    guard let range = members[digest] else {
      throw BlobStorageError(.corrupted, "another record is in its place")
    }
    return try Self.bytes(range, of: plain, digest)
  }

  /// A part of a frame's plain bytes, compared with its digest.
  static func bytes<Bytes: FilledBytes>(
    _ range: Range<Int>, of plain: [UInt8], _ digest: BlobDigest
  ) throws(BlobStorageError) -> Bytes {
    guard range.upperBound <= plain.count else {
      throw BlobStorageError(.corrupted, "it runs past the end of its frame")
    }
    return try Bytes(filling: range.count) { (target) throws(BlobStorageError) in
      plain.withUnsafeBytes { target.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[range])) }
      guard BlobDigest.of(target.bytes, by: digest.algorithm) == digest else {
        throw BlobStorageError(.corrupted, "its bytes do not match its digest")
      }
      return target.count
    }
  }
}

/// A cache of recently decoded frames, limited in bytes; it always keeps the last frame. Neighbours are mostly read one
/// after the other, so it evicts the least recently used frame.
///
/// If several threads want members of one frame, one decodes it, and the others wait.
package final class FrameCache: Sendable {
  package struct Key: Hashable, Sendable {
    package var pack: PackName
    package var offset: Int64

    package init(pack: PackName, offset: Int64) {
      self.pack = pack
      self.offset = offset
    }
  }

  private struct State: Sendable {
    var frames: [Key: (frame: Frame, lastUse: UInt64)] = [:]
    var decoding: Set<Key> = []
    var byteCount = 0
    var clock: UInt64 = 0

    mutating func frame(_ key: Key) -> Frame? {
      guard let index = frames.index(forKey: key) else { return nil }
      clock += 1
      frames.values[index].lastUse = clock
      return frames.values[index].frame
    }

    mutating func remove(_ key: Key) {
      if let removed = frames.removeValue(forKey: key) { byteCount -= removed.frame.memoryByteCount }
    }
  }

  private let byteCountMax: Int
  private let state = Monitor(State())

  package init(byteCountMax: Int) { self.byteCountMax = byteCountMax }

  /// A frame that was decoded far enough for a member; nil if none is kept.
  package func kept(_ key: Key, holding digest: BlobDigest) -> Frame? {
    state.withLock { state in state.frame(key).flatMap { $0.holds(digest) ? $0 : nil } }
  }

  /// The frame, decoded far enough for a member.
  ///
  /// - Parameter decode: decodes the frame, unless another thread has. `isFirst` is true if no part of it is kept.
  package func frame(
    _ key: Key, holding digest: BlobDigest, decode: (_ isFirst: Bool) throws(BlobStorageError) -> Frame
  ) throws(BlobStorageError) -> Frame {
    let kept = state.withLock(when: { !$0.decoding.contains(key) }) { state in
      let kept = state.frame(key)
      if kept?.holds(digest) != true { state.decoding.insert(key) }
      return kept
    }
    if let kept, kept.holds(digest) { return kept }
    defer {
      state.withLock { _ = $0.decoding.remove(key) }
      state.wakeAll()
    }
    let frame = try decode(kept == nil)
    insert(key, frame)
    return frame
  }

  private func insert(_ key: Key, _ frame: Frame) {
    state.withLock { state in
      state.remove(key)
      while state.byteCount + frame.memoryByteCount > byteCountMax,
        let oldest = state.frames.min(by: { $0.value.lastUse < $1.value.lastUse })?.key
      {
        state.remove(oldest)
      }
      state.clock += 1
      state.frames[key] = (frame, state.clock)
      state.byteCount += frame.memoryByteCount
    }
  }

  func remove(_ key: Key) { state.withLock { $0.remove(key) } }

  func removeAll() { state.withLock { ($0.frames, $0.byteCount) = ([:], 0) } }
}

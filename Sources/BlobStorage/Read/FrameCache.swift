import Synchronization

/// The plain bytes of a frame, and where its members lie in them.
final class Frame: Sendable {
  let plain: [UInt8]
  private let members: [Digest: Range<Int>]

  /// - Parameter members: all of them with their lengths, in order.
  init(plain: [UInt8], members: some Sequence<(digest: Digest, byteCount: Int)>) {
    self.plain = plain
    var ranges: [Digest: Range<Int>] = [:]
    var start = 0
    for member in members {
      ranges[member.digest] = start..<start + member.byteCount
      start += member.byteCount
    }
    self.members = ranges
  }

  /// The plain bytes of a member, compared with its digest.
  func bytes<Bytes: FilledBytes>(of digest: Digest) throws(BlobStorageError) -> Bytes {
    guard let range = members[digest] else {
      throw BlobStorageError(.corrupted, "another record is in its place")
    }
    return try Self.bytes(range, of: plain, digest)
  }

  /// A part of a frame's plain bytes, compared with its digest.
  static func bytes<Bytes: FilledBytes>(
    _ range: Range<Int>, of plain: [UInt8], _ digest: Digest
  ) throws(BlobStorageError) -> Bytes {
    guard range.upperBound <= plain.count else {
      throw BlobStorageError(.corrupted, "it runs past the end of its frame")
    }
    return try Bytes(filling: range.count) { (target) throws(BlobStorageError) in
      plain.withUnsafeBytes { target.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[range])) }
      guard Digest.of(target.bytes, by: digest.algorithm) == digest else {
        throw BlobStorageError(.corrupted, "its bytes do not match its digest")
      }
      return target.count
    }
  }
}

/// Frames that were decoded not long ago, up to a number of bytes; the last one in any case. Neighbours are mostly read
/// one after the other, so it evicts the least recently used.
final class FrameCache: Sendable {
  struct Key: Hashable, Sendable {
    var pack: PackName
    var offset: Int64
  }

  private struct State: Sendable {
    var frames: [Key: (frame: Frame, lastUse: UInt64)] = [:]
    var byteCount = 0
    var clock: UInt64 = 0

    mutating func remove(_ key: Key) {
      if let removed = frames.removeValue(forKey: key) { byteCount -= removed.frame.plain.count }
    }
  }

  private let byteCountMax: Int
  private let state = Mutex(State())

  init(byteCountMax: Int) { self.byteCountMax = byteCountMax }

  func frame(_ key: Key) -> Frame? {
    state.withLock { state in
      guard let index = state.frames.index(forKey: key) else { return nil }
      state.clock += 1
      state.frames.values[index].lastUse = state.clock
      return state.frames.values[index].frame
    }
  }

  func insert(_ key: Key, _ frame: Frame) {
    state.withLock { state in
      state.remove(key)
      while state.byteCount + frame.plain.count > byteCountMax,
        let oldest = state.frames.min(by: { $0.value.lastUse < $1.value.lastUse })?.key
      {
        state.remove(oldest)
      }
      state.clock += 1
      state.frames[key] = (frame, state.clock)
      state.byteCount += frame.plain.count
    }
  }

  func remove(_ key: Key) { state.withLock { $0.remove(key) } }
}

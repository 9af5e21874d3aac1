import BlobStorage

/// Reads ranges of published packs from the cache, and fetches absent blocks with one request for each 8 MiB.
///
/// If another thread is fetching the same blocks, a read waits for it instead of asking twice.
final class RangeFetches: Sendable {
  let objects: any ObjectStore
  let cache: RangeCache
  /// Maps a pack's name to its object's name.
  let object: @Sendable (PackName) -> String
  private let underWay = Monitor<[(name: PackName, blocks: Range<Int>)]>([])

  private static let blockByteCount = Int64(RangeCache.blockByteCount)
  /// The most bytes of a read that one request serves. Longer ranges are split. Prefetched bytes come in addition.
  static let requestByteCountMax: Int64 = 8 << 20

  init(
    objects: any ObjectStore, cache: RangeCache,
    object: @escaping @Sendable (PackName) -> String = SharedNames.pack
  ) {
    self.objects = objects
    self.cache = cache
    self.object = object
  }

  /// Fills the buffer, which must end within the pack.
  ///
  /// - Parameter aheadByteCount: bytes to prefetch after the range, if a request is needed.
  /// - Returns: the fetched range; empty if the cache had everything.
  /// - Throws: `packGone`; `corrupted` if the object is shorter than the pack; `cancelled`.
  func read(
    _ name: PackName, byteCount: Int64, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64,
    aheadByteCount: Int64
  ) throws(BlobStorageError) -> Range<Int64> {
    var done = 0
    var asked = offset..<offset
    while done < buffer.count {
      let start = offset + Int64(done)
      let count = min(buffer.count - done, Int(Self.requestByteCountMax))
      let target = UnsafeMutableRawBufferPointer(rebasing: buffer[done..<done + count])
      let range = try readPart(name, byteCount, target, start, aheadByteCount)
      if !range.isEmpty { asked = range }
      done += count
    }
    return asked
  }

  private func readPart(
    _ name: PackName, _ byteCount: Int64, _ target: UnsafeMutableRawBufferPointer, _ offset: Int64,
    _ aheadByteCount: Int64
  ) throws(BlobStorageError) -> Range<Int64> {
    let blocks = Self.blocks(offset..<offset + Int64(target.count))
    var held = Self.buffer(blocks, byteCount)
    let begin = Int(offset - Int64(blocks.lowerBound) * Self.blockByteCount)
    func deliver() {
      held.withUnsafeBytes { target.copyMemory(from: .init(rebasing: $0[begin..<begin + target.count])) }
    }
    guard held.withUnsafeMutableBytes({ cache.load(name, blocks, into: $0) }) != nil else {
      deliver()
      return offset..<offset
    }
    try claim(name, blocks)
    defer { release(name, blocks) }
    // Another thread may have fetched them during the wait.
    guard let missing = held.withUnsafeMutableBytes({ cache.load(name, blocks, into: $0) }) else {
      deliver()
      return offset..<offset
    }
    // The blocks after the range are not claimed, so another thread may fetch them, too.
    let end = min(Int64(missing.upperBound) * Self.blockByteCount + aheadByteCount, byteCount)
    let last =
      aheadByteCount > 0 ? Self.blocks(Int64(missing.lowerBound) * Self.blockByteCount..<end) : missing
    let fetched = try fetch(name, last, byteCount)
    let shared = last.clamped(to: blocks)
    let from = (shared.lowerBound - last.lowerBound) * RangeCache.blockByteCount
    let to = (shared.lowerBound - blocks.lowerBound) * RangeCache.blockByteCount
    let length = min(fetched.count - from, held.count - to)
    held.withUnsafeMutableBytes { held in
      fetched.withUnsafeBytes {
        UnsafeMutableRawBufferPointer(rebasing: held[to..<to + length])
          .copyMemory(from: .init(rebasing: $0[from..<from + length]))
      }
    }
    deliver()
    return Int64(last.lowerBound)
      * Self.blockByteCount..<min(Int64(last.upperBound) * Self.blockByteCount, byteCount)
  }

  /// Fetches the absent blocks of a range into the cache. Does not check cached blocks.
  func ensure(_ name: PackName, byteCount: Int64, _ range: Range<Int64>) throws(BlobStorageError) {
    var start = range.lowerBound
    let rangeEnd = min(range.upperBound, byteCount)
    while start < rangeEnd {
      let end = min(start + Self.requestByteCountMax, rangeEnd)
      let blocks = Self.blocks(start..<end)
      try claim(name, blocks)
      defer { release(name, blocks) }
      if let missing = cache.missing(name, blocks) { _ = try fetch(name, missing, byteCount) }
      start = end
    }
  }

  private func fetch(
    _ name: PackName, _ blocks: Range<Int>, _ byteCount: Int64
  ) throws(BlobStorageError) -> [UInt8] {
    let range =
      Int64(blocks.lowerBound)
      * Self.blockByteCount..<min(Int64(blocks.upperBound) * Self.blockByteCount, byteCount)
    guard let bytes = try objects.get(object(name), range) else {
      throw BlobStorageError(
        .packGone, "\(object(name)) is not in \(objects.place) any more.", pack: name.description)
    }
    guard bytes.count == Int(range.upperBound - range.lowerBound) else {
      throw BlobStorageError(
        .corrupted,
        "\(objects.place) has only \(bytes.count) bytes of \(object(name)) from \(range.lowerBound) on",
        pack: name.description, offset: range.lowerBound)
    }
    bytes.withUnsafeBytes { cache.store(name, blocks, $0) }
    return bytes
  }

  // MARK: Claims

  /// Waits until no other thread fetches these blocks, and claims them.
  ///
  /// - Throws: `cancelled`; then there is no claim to release.
  private func claim(_ name: PackName, _ blocks: Range<Int>) throws(BlobStorageError) {
    try underWay.withLockUnlessCancelled(
      when: { !$0.contains { $0.name == name && $0.blocks.overlaps(blocks) } }
    ) { $0.append((name, blocks)) }
  }

  private func release(_ name: PackName, _ blocks: Range<Int>) {
    underWay.withLock { underWay in
      if let index = underWay.firstIndex(where: { $0.name == name && $0.blocks == blocks }) {
        underWay.remove(at: index)
      }
    }
    underWay.wakeAll()
  }

  static func blocks(_ range: Range<Int64>) -> Range<Int> {
    Int(range.lowerBound / blockByteCount)..<Int((range.upperBound + blockByteCount - 1) / blockByteCount)
  }

  private static func buffer(_ blocks: Range<Int>, _ byteCount: Int64) -> [UInt8] {
    let end = min(Int64(blocks.upperBound) * blockByteCount, byteCount)
    let count = Int(end - Int64(blocks.lowerBound) * blockByteCount)
    return [UInt8](unsafeUninitializedCapacity: count) { $1 = count }
  }
}

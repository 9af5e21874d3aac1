/// The chunks of a key's current version: the first bases to try for the chunks of the next.
///
/// A new chunk is compared with the old chunk at the same position. Chunks that are in both versions define positions:
/// content after one that has moved counts as moved by the same distance. Only the part of the old version near the new
/// chunks is read, so memory stays bounded for blobs of any length.
package struct PreviousVersion: Sendable {
  /// A chunk of the old version that may resemble a new one.
  struct Candidate: Sendable {
    var digest: BlobDigest
    /// Whether chunks near it are in both versions, or both versions are one chunk. Otherwise it is a guess.
    var isAligned: Bool
    /// Whether both versions are one chunk.
    var isOnly: Bool
  }

  /// How far content is expected to move at most, if no chunk near it is in both versions.
  private static let reachByteCount: Int64 = 1 << 20
  /// The most old chunks that are compared at once. A hostile manifest can name millions.
  private static let chunkCountMax = 1 << 16

  private let layout: BlobLayout

  /// Reads the layout of a version's blob. Nil if that cannot be read, or has no bytes.
  init?(_ blobs: BlobSource, _ digest: BlobDigest) throws(BlobStorageError) {
    // An unreadable version provides no bases.
    guard let layout = try unlessCorrupted(try blobs.layout(digest)) ?? nil, layout.byteCount > 0 else {
      return nil
    }
    self.layout = layout
  }

  /// Returns the old chunk to try for each of several consecutive chunks.
  ///
  /// - Parameters:
  ///   - start: the offset of the first chunk in the new blob.
  ///   - isWhole: whether they are all chunks of the new blob.
  func candidates(
    for entries: [ChunkEntry], at start: Int64, isWhole: Bool, from source: ChunkSource
  ) throws(BlobStorageError) -> [Candidate?] {
    let byteCount = entries.reduce(Int64(0)) { $0 + Int64($1.plainByteCount) }
    let first = min(max(start - Self.reachByteCount, 0), layout.byteCount - 1)
    let end = min(max(start + byteCount + Self.reachByteCount, first + 1), layout.byteCount)
    var old: [BlobLayout.PlacedChunk] = []
    do throws(BlobStorageError) {
      try layout.forEachChunk(in: first..<end, from: source) { placed in
        old.append(placed)
        return old.count < Self.chunkCountMax
      }
    } catch {
      guard error.code == .corrupted else { throw error }
      return entries.map { _ in nil }
    }
    return Self.align(entries, at: start, isWhole: isWhole && layout.chunkCount == 1, with: old)
  }

  private static func align(
    _ entries: [ChunkEntry], at start: Int64, isWhole: Bool, with old: [BlobLayout.PlacedChunk]
  ) -> [Candidate?] {
    guard !old.isEmpty else { return entries.map { _ in nil } }
    var starts: [BlobDigest: Int64] = [:]
    for placed in old where starts[placed.entry.digest] == nil { starts[placed.entry.digest] = placed.start }
    var shifts: [Int64?] = []
    var offset = start
    for entry in entries {
      shifts.append(starts[entry.digest].map { $0 - offset })
      offset += Int64(entry.plainByteCount)
    }
    // Chunks before the first one that is in both versions have its shift.
    var shift = shifts.lazy.compactMap { $0 }.first
    var candidates: [Candidate?] = []
    offset = start
    for (entry, twin) in zip(entries, shifts) {
      shift = twin ?? shift
      let middle = offset + Int64(entry.plainByteCount) / 2 + (shift ?? 0)
      let candidate = Candidate(
        digest: chunk(at: middle, old), isAligned: isWhole || shift != nil, isOnly: isWhole)
      candidates.append(twin == nil ? candidate : nil)
      offset += Int64(entry.plainByteCount)
    }
    return candidates
  }

  /// The chunk that contains an offset, or the nearest one.
  private static func chunk(at offset: Int64, _ old: [BlobLayout.PlacedChunk]) -> BlobDigest {
    var low = 0
    var high = old.count
    while low < high {
      let middle = (low + high) / 2
      if old[middle].start <= offset { low = middle + 1 } else { high = middle }
    }
    return old[max(low - 1, 0)].entry.digest
  }
}

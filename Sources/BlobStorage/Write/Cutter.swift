/// Reads content into batches that end with a chunk.
package struct Cutter {
  /// Whole chunks that follow each other.
  package struct Batch: Sendable {
    package var bytes: [UInt8]
    /// One at least.
    package var chunks: [Range<Int>]
    var hint: CompressibilityHint
    /// Where the bytes begin in their blob.
    var start: Int64 = 0
    /// They are all of their blob.
    var isWhole = false
  }

  private var chunker: BlobChunker
  private let batchByteCount: Int
  /// Bytes of the chunk under way, carried over to the next batch, and those that the chunker has not decided on.
  private var carried: [UInt8] = []
  /// All has been read: there is no other batch.
  private var isAtEnd = false
  private var isFirst = true
  /// Where the next batch begins.
  private var start: Int64 = 0
  private var hint = CompressibilityHint.unknown
  private let chunkByteCountMax: Int

  package init(sizes: ChunkSizes, batchByteCount: Int) {
    chunker = BlobChunker(sizes: sizes)
    self.batchByteCount = batchByteCount
    chunkByteCountMax = sizes.maximum
  }

  /// The next whole chunks, or nil at the content's end.
  package mutating func next(
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> Batch? {
    if isAtEnd { return nil }
    let carriedCount = carried.count
    // So that there is a chunk in it, whatever is held back.
    let capacity = carriedCount + max(batchByteCount, chunkByteCountMax + BlobChunker.heldByteCountMax)
    var bytes = try [UInt8](filling: capacity) { (buffer) throws(BlobStorageError) in
      carried.withUnsafeBytes { buffer.copyMemory(from: $0) }
      return carriedCount + (try read(UnsafeMutableRawBufferPointer(rebasing: buffer[carriedCount...])))
    }
    isAtEnd = bytes.count < capacity
    if isFirst {
      hint = CompressibilityHint(beginning: bytes.span.bytes)
      isFirst = false
    }
    let chunks = bytes.withUnsafeBytes { chunker.chunks(in: $0, isAtEnd: isAtEnd) }
    let end = chunks.last?.upperBound ?? 0
    if !isAtEnd {
      carried = Array(bytes[end...])
      bytes.removeLast(bytes.count - end)
    }
    if chunks.isEmpty { return nil }
    defer { start += Int64(end) }
    return Batch(bytes: bytes, chunks: chunks, hint: hint, start: start, isWhole: start == 0 && isAtEnd)
  }
}

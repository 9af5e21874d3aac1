/// Reads content into batches of whole chunks.
package struct Cutter {
  /// Consecutive whole chunks.
  package struct Batch: Sendable {
    private let memory: BatchMemory
    package var bytes: [UInt8] { memory.bytes }
    /// At least one.
    package var chunks: [Range<Int>]
    var hint: CompressibilityHint
    /// Where the bytes begin in their blob.
    var start: Int64 = 0
    /// Whether they are the whole blob.
    var isWhole = false

    fileprivate init(
      _ memory: BatchMemory, chunks: [Range<Int>], hint: CompressibilityHint, start: Int64, isWhole: Bool
    ) {
      self.memory = memory
      (self.chunks, self.hint, self.start, self.isWhole) = (chunks, hint, start, isWhole)
    }

    /// A batch of bytes that were cut already.
    init(bytes: [UInt8], chunks: [Range<Int>], hint: CompressibilityHint) {
      self.init(BatchMemory(bytes), chunks: chunks, hint: hint, start: 0, isWhole: false)
    }
  }

  private var chunker: BlobChunker
  private let batchByteCount: Int
  /// Bytes carried over to the next batch: those of the unfinished chunk, and those that the chunker has not decided
  /// on.
  private var carried: [UInt8] = []
  /// Whether all has been read: there is no other batch.
  private var isAtEnd = false
  /// Where the next batch begins.
  private var start: Int64 = 0
  /// Nil before the first batch, whose beginning determines it.
  private var hint: CompressibilityHint?
  private let carriedCountMax: Int
  private let pool = BatchMemory.Pool()

  package init(sizes: ChunkSizes, batchByteCount: Int) {
    chunker = BlobChunker(sizes: sizes)
    self.batchByteCount = batchByteCount
    carriedCountMax = sizes.maximum + BlobChunker.heldByteCountMax
  }

  /// Reads the next whole chunks. Returns nil at the content's end.
  package mutating func next(
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> Batch? {
    if isAtEnd { return nil }
    let carriedCount = carried.count
    // Enough for one whole chunk, however many bytes are carried over.
    let capacity = carriedCount + max(batchByteCount, carriedCountMax)
    var bytes = pool.removeAny()
    // The most that any batch needs.
    bytes.reserveCapacity(max(batchByteCount, carriedCountMax) + carriedCountMax)
    try bytes.fill(capacity) { (buffer) throws(BlobStorageError) in
      carried.withUnsafeBytes { buffer.copyMemory(from: $0) }
      return carriedCount + (try read(UnsafeMutableRawBufferPointer(rebasing: buffer[carriedCount...])))
    }
    isAtEnd = bytes.count < capacity
    if hint == nil { hint = CompressibilityHint(beginning: bytes.span.bytes) }
    let chunks = bytes.withUnsafeBytes { chunker.chunks(in: $0, isAtEnd: isAtEnd) }
    let end = chunks.last?.upperBound ?? 0
    if !isAtEnd {
      carried.removeAll(keepingCapacity: true)
      carried.append(contentsOf: bytes[end...])
      bytes.removeLast(bytes.count - end)
    }
    if chunks.isEmpty { return nil }
    defer { start += Int64(end) }
    return Batch(
      BatchMemory(bytes, pool), chunks: chunks, hint: hint ?? .unknown, start: start,
      isWhole: start == 0 && isAtEnd)
  }
}

/// The bytes of a batch. Later batches reuse its memory, because the C library would keep more and more of it
/// (``FreedMemory``).
private final class BatchMemory: Sendable {
  /// The free arrays.
  final class Pool: Sendable {
    private let free = IOLock<[[UInt8]]>([])

    /// An array with arbitrary bytes, or an empty one.
    func removeAny() -> [UInt8] { free.withLock { $0.popLast() } ?? [] }

    func add(_ bytes: [UInt8]) {
      // The sanitizer does not see that the last release of a batch comes after all others.
      #if !THREAD_SANITIZER
        free.withLock { $0.append(bytes) }
      #endif
    }
  }

  let bytes: [UInt8]
  private let pool: Pool?

  init(_ bytes: [UInt8], _ pool: Pool? = nil) {
    self.bytes = bytes
    self.pool = pool
  }

  deinit { pool?.add(bytes) }
}

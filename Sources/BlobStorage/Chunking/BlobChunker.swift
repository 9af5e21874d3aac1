/// Cuts a blob into chunks at content-defined cut points, and at borders between the parts of a container.
///
/// After a border the search for cut points starts anew. So the content behind a border is cut the same way, whatever
/// precedes it. Blobs of up to the average chunk length, and blobs that are no container, are cut by content alone.
///
/// **Cut points may never change**, like those of ``Chunker``: otherwise new puts would not find chunks that an older
/// build stored.
package struct BlobChunker: Sendable {
  /// The most bytes that may be left for the next call although they would make a chunk.
  package static let heldByteCountMax = PartFinder.headerByteCountMax

  private let sizes: ChunkSizes
  private var chunker: Chunker
  private var finder: PartFinder?
  private var isBegun = false
  /// The offset of the current chunk in the blob.
  private var start: Int64 = 0
  /// The bytes of the current chunk that were scanned.
  private var seenByteCount = 0

  /// A chunker at the start of a blob.
  package init(sizes: ChunkSizes) {
    self.sizes = sizes
    chunker = Chunker(sizes: sizes)
  }

  /// The chunks in these bytes, in order. The first begins at the first byte.
  ///
  /// - Parameters:
  ///   - bytes: the bytes that the last call left over, and those that follow.
  ///   - isAtEnd: whether the blob ends here. Then all bytes belong to a chunk.
  package mutating func chunks(in bytes: UnsafeRawBufferPointer, isAtEnd: Bool) -> [Range<Int>] {
    if !isBegun {
      guard isAtEnd || bytes.count > sizes.average else { return [] }
      isBegun = true
      if bytes.count > sizes.average {
        finder = PartFinder(beginning: bytes, longByteCount: sizes.average)
      }
    }
    finder?.read(bytes, at: start)
    let end = isAtEnd ? bytes.count : min(bytes.count, Int(clamping: (finder?.knownEnd ?? .max) - start))
    var chunks: [Range<Int>] = []
    var begin = 0
    var offset = seenByteCount
    while true {
      // The loop never reaches borders behind the end of the blob.
      while let border = finder?.nextBorder, border.offset - start <= offset {
        finder?.passBorder()
        guard offset > begin, border.kind == .always || offset - begin >= sizes.minimum else { continue }
        chunks.append(begin..<offset)
        begin += chunker.finish()
      }
      if offset >= end { break }
      let limit = min(end, Int(clamping: (finder?.nextBorder?.offset ?? .max) - start))
      let cut = chunker.nextCut(in: UnsafeRawBufferPointer(rebasing: bytes[offset..<limit]))
      offset += cut.byteCount
      if cut.endsChunk {
        chunks.append(begin..<offset)
        begin = offset
      }
    }
    if isAtEnd, begin < bytes.count {
      chunks.append(begin..<bytes.count)
      begin = bytes.count
      offset = begin
    }
    start += Int64(begin)
    seenByteCount = offset - begin
    return chunks
  }
}

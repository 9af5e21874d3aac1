/// Cuts a blob into chunks: where its content says so, and where the parts of its container end.
///
/// A chunk ends at a border between two parts, and the search for cut points starts again behind it: so what stands
/// behind is cut the same way whatever stands before. Blobs of up to the average length of a chunk, and all that are no
/// container, are cut by content alone.
///
/// **Cut points may never change**, as those of ``Chunker``: what was stored by an older build would not be found again.
package struct BlobChunker: Sendable {
  /// How many of the bytes handed over may be left for the next time although they would make a chunk.
  package static let heldByteCountMax = PartFinder.headerByteCountMax

  private let sizes: ChunkSizes
  private var chunker: Chunker
  private var finder: PartFinder?
  private var isBegun = false
  /// Where in the blob the chunk under way begins.
  private var start: Int64 = 0
  /// How many of its bytes have been looked at.
  private var seenByteCount = 0

  /// A chunker at the start of a blob.
  package init(sizes: ChunkSizes) {
    self.sizes = sizes
    chunker = Chunker(sizes: sizes)
  }

  /// The chunks in these bytes, in order, the first at their beginning.
  ///
  /// - Parameters:
  ///   - bytes: what the chunks returned last left over, and what follows it.
  ///   - isAtEnd: nothing follows. Then all bytes belong to a chunk.
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
      // Borders behind the end of the blob are never reached.
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

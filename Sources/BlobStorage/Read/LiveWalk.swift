/// Visits everything that a blob needs: its lists, its chunks, and their bases.
///
/// Reads a list once, however often a hostile manifest names it. Holds one list of chunks and one group in memory.
package struct LiveWalk {
  /// One thing that a blob needs.
  package struct Part {
    package enum Kind { case list, chunk, base }

    package let kind: Kind
    package let digest: BlobDigest
    /// Offset in the blob at which it first begins.
    package let start: Int64
    /// The list or chunk that is encoded against a base.
    package var dependent: BlobDigest?
  }

  /// The result of following a blob.
  package enum Outcome {
    case whole
    /// The store does not have the blob.
    case missing
    /// Its manifest or one of its lists is damaged or missing.
    case unreadable(BlobStorageError)
  }

  /// Rows that are looked up in one snapshot.
  private static let rowCountOfGroup = 4_096

  private let blobs: BlobSource

  package init(_ blobs: BlobSource) { self.blobs = blobs }

  /// Runs `body` on the blob's layout; returns damage instead of throwing it.
  package func outcome(
    of blob: BlobDigest, _ body: (BlobLayout) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    do throws(BlobStorageError) {
      guard let layout = try blobs.layout(blob) else { return .missing }
      try body(layout)
      return .whole
    } catch {
      guard error.code == .corrupted else { throw error }
      return .unreadable(error)
    }
  }

  /// Calls `visit` with the blob's lists, each before it is read, and with its chunks, until it returns false.
  ///
  /// - Parameter follows: whether a list is visited and read.
  /// - Throws: `corrupted` for a list that cannot be read.
  package func forEachPart(
    of layout: BlobLayout, follows: (ListEntry) throws(BlobStorageError) -> Bool = { _ in true },
    _ visit: (Part) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    func visitAll(_ chunks: [ChunkEntry], from start: Int64) throws(BlobStorageError) -> Bool {
      var start = start
      for chunk in chunks {
        guard try visit(Part(kind: .chunk, digest: chunk.digest, start: start)) else { return false }
        start += Int64(chunk.plainByteCount)
      }
      return true
    }
    switch layout.listed {
    case .chunks(let chunks) where chunks.isEmpty:
      // The empty blob is a chunk that no layout names.
      _ = try visit(Part(kind: .chunk, digest: layout.digest, start: 0))
    case .chunks(let chunks): _ = try visitAll(chunks, from: 0)
    case .lists(let lists):
      // Whole entries, because a manifest that names a list with two lengths is damaged.
      var seen: Set<ListEntry> = []
      var start: Int64 = 0
      for list in lists {
        if seen.insert(list).inserted, try follows(list) {
          guard try visit(Part(kind: .list, digest: list.digest, start: start)),
            try visitAll(try layout.chunks(of: list, from: blobs.chunks), from: start)
          else { return }
        }
        start += list.spanByteCount
      }
    }
  }

  /// Calls `visit` with the blob's lists, chunks and their bases, each with its row; nil if the store does not have it.
  /// A part that is needed twice may be visited twice.
  ///
  /// - Parameter sorts: looks rows up in the order of digests, which takes less time; parts come in that order.
  /// - Throws: `corrupted` for a list that cannot be read, once that list and what comes before it were visited.
  package func forEachRow(
    of layout: BlobLayout, sorts: Bool = false, _ visit: (Part, ChunkRow?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var group: [Part] = []
    func look() throws(BlobStorageError) {
      guard !group.isEmpty else { return }
      if sorts { group.sort { $0.digest < $1.digest } }
      defer { group.removeAll(keepingCapacity: true) }
      let found = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
        var found: [(part: Part, row: ChunkRow?)] = []
        for part in group {
          let row = try transaction.chunkRow(part.digest)
          found.append((part, row))
          guard let base = row?.base else { continue }
          found.append(
            (
              Part(kind: .base, digest: base, start: part.start, dependent: part.digest),
              try transaction.chunkRow(base)
            ))
        }
        return found
      }
      for (part, row) in found { try visit(part, row) }
    }
    do throws(BlobStorageError) {
      try forEachPart(of: layout) { (part) throws(BlobStorageError) in
        group.append(part)
        if part.kind == .list { try CancellationFlag.check() }
        guard group.count >= Self.rowCountOfGroup else { return true }
        try CancellationFlag.check()
        try look()
        return true
      }
    } catch {
      guard error.code == .corrupted else { throw error }
      // The list that cannot be read, or its base, may be among the missing rows.
      try look()
      throw error
    }
    try look()
  }
}

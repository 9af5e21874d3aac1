/// Collects the chunks of a blob into lists, so that it holds little in memory.
struct ManifestBuilder {
  /// A full list, which is stored as a chunk.
  struct List {
    var bytes: [UInt8]
    var chunkCount: Int
    var spanByteCount: Int64
  }

  private(set) var entries: [ChunkEntry] = []
  private(set) var lists: [ListEntry]?

  var isEmpty: Bool { entries.isEmpty && lists == nil }

  mutating func append(_ entry: ChunkEntry) { entries.append(entry) }

  /// Removes and returns a full list of entries, if there is one.
  mutating func removeFullList() -> List? {
    // One more than a list holds: a blob of exactly that many chunks needs no lists.
    guard entries.count > ManifestRecord.listedCountTarget else { return nil }
    let last = entries.removeLast()
    defer { entries = [last] }
    return list()
  }

  /// Removes the remaining entries as a list. Returns nil if the blob has no lists, or no entries remain.
  mutating func removeLastList() -> List? {
    guard lists != nil, !entries.isEmpty else { return nil }
    defer { entries = [] }
    return list()
  }

  /// Appends the entry of a list that was stored as the chunk `digest`.
  mutating func append(_ list: List, digest: BlobDigest) {
    lists =
      (lists ?? []) + [
        ListEntry(digest: digest, chunkCount: list.chunkCount, spanByteCount: list.spanByteCount)
      ]
  }

  /// The layout of the blob. If it has lists, all of them were stored.
  func layout(_ digest: BlobDigest) throws(BlobStorageError) -> BlobLayout {
    if let lists {
      try BlobLayout(digest: digest, lists: lists)
    } else {
      try BlobLayout(digest: digest, chunks: entries)
    }
  }

  private func list() -> List {
    List(
      bytes: ChunkEntry.encoded(entries), chunkCount: entries.count,
      spanByteCount: entries.reduce(0) { $0 + Int64($1.plainByteCount) })
  }
}

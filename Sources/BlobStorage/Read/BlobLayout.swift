import Synchronization

/// The chunks of a blob. The lists of a long blob are loaded when they are needed.
package struct BlobLayout: Sendable {
  /// The entries of a blob's manifest.
  package enum Listed: Sendable {
    case chunks([ChunkEntry])
    case lists([ListEntry])
  }

  package let digest: BlobDigest
  package let byteCount: Int64
  package let chunkCount: Int64
  package let listed: Listed
  /// Where each listed entry begins.
  private let starts: [Int64]
  private let loaded = LoadedLists()

  /// A chunk and where it begins in its blob.
  package typealias PlacedChunk = (entry: ChunkEntry, start: Int64)

  /// Creates the layout of a blob whose manifest names chunks.
  package init(digest: BlobDigest, chunks: [ChunkEntry]) throws(BlobStorageError) {
    self.digest = digest
    listed = .chunks(chunks)
    chunkCount = Int64(chunks.count)
    (starts, byteCount) = Self.offsets(chunks) { Int64($0.plainByteCount) }
  }

  package init(digest: BlobDigest, lists: [ListEntry]) throws(BlobStorageError) {
    self.digest = digest
    listed = .lists(lists)
    chunkCount = lists.reduce(0) { $0 + Int64($1.chunkCount) }
    // Decoding has checked that all spans together are at most 2⁴⁸, and there are at most 2¹⁷ lists.
    (starts, byteCount) = Self.offsets(lists) { $0.spanByteCount }
  }

  /// Where entries of these lengths begin, and the sum of the lengths.
  private static func offsets<Entry>(
    _ entries: [Entry], _ byteCount: (Entry) -> Int64
  ) -> (starts: [Int64], sum: Int64) {
    var starts: [Int64] = []
    starts.reserveCapacity(entries.count)
    var sum: Int64 = 0
    for entry in entries {
      starts.append(sum)
      sum += byteCount(entry)
    }
    return (starts, sum)
  }

  /// The digests of the lists, which are chunks of their own.
  package var listDigests: [BlobDigest] {
    if case .lists(let lists) = listed { lists.map(\.digest) } else { [] }
  }

  /// The blob's manifest: the record's meta and its payload.
  ///
  /// - Throws: `limitExceeded` when the blob has more chunks than a manifest can name.
  func manifest() throws(BlobStorageError) -> (record: ManifestRecord, payload: [UInt8]) {
    let (depth, payload, listedCount) =
      switch listed {
      case .chunks(let chunks): (UInt8(0), ChunkEntry.encoded(chunks), chunks.count)
      case .lists(let lists): (UInt8(1), ListEntry.encoded(lists), lists.count)
      }
    guard listedCount <= BlobLimits.manifestListCountMax else {
      throw BlobStorageError(.limitExceeded, "The blob has more chunks than a manifest can name.")
    }
    let record = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: chunkCount, depth: depth, listedCount: listedCount)
    return (record, payload)
  }

  /// Calls `body` with the chunks that the range touches, in order, until it returns false.
  ///
  /// - Complexity: reads only the lists that the range touches.
  package func forEachChunk(
    in range: Range<Int64>, from source: ChunkSource, access: ChunkSource.Access = .sequential,
    _ body: (PlacedChunk) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    guard !range.isEmpty else { return }
    switch listed {
    case .chunks(let chunks):
      _ = try Self.walk(chunks, starts, base: 0, range, body)
    case .lists(let lists):
      var index = Self.lastIndex(starts, atMost: range.lowerBound)
      while index < lists.count, starts[index] < range.upperBound {
        let list = try loaded.list(index) { () throws(BlobStorageError) in
          try load(lists[index], from: source, access: access)
        }
        guard try Self.walk(list.chunks, list.starts, base: starts[index], range, body) else { return }
        index += 1
      }
    }
  }

  /// The chunks that one of the blob's lists names.
  ///
  /// - Throws: `corrupted` if the list is damaged, missing, or differs from the manifest.
  func chunks(of list: ListEntry, from source: ChunkSource) throws(BlobStorageError) -> [ChunkEntry] {
    try load(list, from: source, access: .sequential).chunks
  }

  private static func walk(
    _ chunks: [ChunkEntry], _ starts: [Int64], base: Int64, _ range: Range<Int64>,
    _ body: (PlacedChunk) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Bool {
    var index = lastIndex(starts, atMost: max(range.lowerBound - base, 0))
    while index < chunks.count, base + starts[index] < range.upperBound {
      guard try body((chunks[index], base + starts[index])) else { return false }
      index += 1
    }
    return true
  }

  private func load(
    _ list: ListEntry, from source: ChunkSource, access: ChunkSource.Access
  ) throws(BlobStorageError) -> LoadedLists.List {
    let bytes = try source.bytes(list.digest, access: access, keeps: true)
    let chunks = try bridge(bytes) { (raw) throws(BlobStorageError) in
      try ChunkEntry.list(raw, algorithm: digest.algorithm)
    }
    let (starts, sum) = Self.offsets(chunks) { Int64($0.plainByteCount) }
    guard sum == list.spanByteCount, chunks.count == list.chunkCount else {
      throw BlobStorageError(
        .corrupted, "A list of blob \(digest) differs from its manifest.", digest: digest)
    }
    return LoadedLists.List(chunks: chunks, starts: starts)
  }

  private static func lastIndex(_ starts: [Int64], atMost offset: Int64) -> Int {
    var low = 0
    var high = starts.count
    while low < high {
      let middle = (low + high) / 2
      if starts[middle] <= offset { low = middle + 1 } else { high = middle }
    }
    return max(low - 1, 0)
  }
}

/// A cache of one blob's lists, up to a number of chunks. Decoding a list takes as long as decoding a small chunk.
private final class LoadedLists: Sendable {
  struct List: Sendable {
    var chunks: [ChunkEntry]
    var starts: [Int64]
  }

  /// About 4 MB: 56 bytes each.
  private static let chunkCountMax = 1 << 16
  private let lists = Mutex<(byIndex: [Int: List], chunkCount: Int)>(([:], 0))

  func list(_ index: Int, _ load: () throws(BlobStorageError) -> List) throws(BlobStorageError) -> List {
    if let list = lists.withLock({ $0.byIndex[index] }) { return list }
    let list = try load()
    lists.withLock { lists in
      if lists.chunkCount + list.chunks.count > Self.chunkCountMax { lists = ([:], 0) }
      if lists.byIndex.updateValue(list, forKey: index) == nil { lists.chunkCount += list.chunks.count }
    }
    return list
  }
}

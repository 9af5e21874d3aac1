import Foundation
import SystemPackage

/// Putting content of any length in bounded memory: one thread reads and cuts, all threads hash, look up, encode and
/// append, and one commit at the end makes the blob visible.
///
/// Chunks reach the catalog before any version needs them. Until the end they are protected from gc: new ones by
/// ``LeaseFile/beginPut(from:)``, shared ones by a lease that is written before they are looked up again.
struct StreamPut {
  private typealias Batch = ChunkIntake.Batch
  private typealias BatchResult = ChunkIntake.BatchResult

  private static let batchByteCount = 1 << 20
  /// Bytes added to packs after which chunks are committed to the catalog, so that what is pending stays bounded.
  private static let committedByteCount: Int64 = 16 << 20

  private let engine: Engine
  private let options: PutOptions
  private let intake: ChunkIntake
  /// Told how many bytes have been read.
  var progress: (Int64) -> Void = { _ in }

  init(_ engine: Engine, _ options: PutOptions) throws(BlobStorageError) {
    self.engine = engine
    self.options = options
    intake = ChunkIntake(engine, try engine.codecChoice(options.codec))
  }

  func run(_ key: [UInt8], _ content: BlobContent) throws(BlobStorageError) -> PutResult {
    var shared = Engine.SharedPacks()
    let (result, watermark) = try run(key, content, &shared)
    try engine.makeDurable(options.durability, watermark, shared)
    return result
  }

  private func run(
    _ key: [UInt8], _ content: BlobContent, _ shared: inout Engine.SharedPacks
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    switch content {
    case .data(let data):
      var offset = 0
      return try run(key, &shared) { (target) in
        let count = min(target.count, data.count - offset)
        data.withUnsafeBytes { raw in
          target.copyMemory(from: UnsafeRawBufferPointer(rebasing: raw[offset..<offset + count]))
        }
        offset += count
        return count
      }
    case .file(let path):
      let file = try InputFile(FilePath(path))
      return try run(key, &shared, beforeCommit: { () throws(BlobStorageError) in try file.checkUnchanged() })
      {
        (target) throws(BlobStorageError) in try file.read(into: target)
      }
    case .descriptor(let number):
      let file = try InputFile(borrowing: number, name: FilePath("descriptor \(number)"))
      return try run(key, &shared) { (target) throws(BlobStorageError) in try file.read(into: target) }
    case .stream(let next):
      var rest = Data()
      return try run(key, &shared) { (target) throws(BlobStorageError) in
        var filled = 0
        while filled < target.count {
          if rest.isEmpty {
            let more: Data?
            do { more = try next() } catch {
              throw BlobStorageError(.sourceFailed, "The source of a put failed: \(error).")
            }
            guard let more, !more.isEmpty else { break }
            rest = more
          }
          let count = min(target.count - filled, rest.count)
          rest.prefix(count).withUnsafeBytes { raw in
            UnsafeMutableRawBufferPointer(rebasing: target[filled...]).copyMemory(from: raw)
          }
          rest = rest.dropFirst(count)
          filled += count
        }
        return filled
      }
    }
  }

  /// Makes the content visible; durability is left to the caller, with the packs that were shared.
  ///
  /// - Parameter read: fills its buffer, or stops at the content's end.
  func run(
    _ key: [UInt8], _ shared: inout Engine.SharedPacks,
    beforeCommit: () throws(BlobStorageError) -> Void = {},
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    let put = try engine.leases.beginPut(from: engine.writer.currentSequence)
    defer { engine.leases.endPut(put) }
    let lossCount = engine.writer.lossCount
    var holds: [LeaseFile.Hold] = []
    defer { for hold in holds { engine.leases.release(hold) } }
    var total = BatchResult()
    var manifest = ManifestBuilder()
    var whole = DigestStream(engine.header.digestAlgorithm)
    var byteCount: Int64 = 0
    var committedMark = engine.writer.addedByteCount
    var cutter = Cutter(sizes: engine.sizes, batchByteCount: Self.batchByteCount)

    func take(_ result: BatchResult) throws(BlobStorageError) {
      holds += result.holds
      total.shared.merge(result.shared)
      total.newByteCount += result.newByteCount
      total.storedByteCount += result.storedByteCount
      for entry in result.entries {
        manifest.append(entry)
        if let list = manifest.takeFullList() { try store(list, &total, &holds, &manifest) }
      }
      if engine.writer.addedByteCount - committedMark >= Self.committedByteCount {
        _ = try engine.writer.commit { _ in }
        committedMark = engine.writer.addedByteCount
      }
    }

    try engine.work.orderedMap(
      inFlightMax: engine.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> Batch? in
        try CancellationFlag.check()
        guard let (bytes, chunks) = try cutter.next(read) else { return nil }
        bytes.withUnsafeBytes { whole.update($0) }
        byteCount += Int64(bytes.count)
        progress(byteCount)
        guard byteCount <= Limits.blobByteCountMax else {
          throw BlobStorageError(.limitExceeded, "A blob has at most \(Limits.blobByteCountMax) bytes.")
        }
        return Batch(bytes: bytes, chunks: chunks, hint: cutter.hint)
      },
      transform: { [intake] (batch) throws(BlobStorageError) in try intake.process(batch) },
      consume: take)

    let digest = whole.finalize()
    if manifest.isEmpty {
      // An empty blob is one chunk of no bytes.
      try take(try intake.process(Batch(bytes: [], chunks: [0..<0], hint: .unknown)))
      manifest = ManifestBuilder()
    }
    if let list = manifest.takeLastList() { try store(list, &total, &holds, &manifest) }
    try beforeCommit()
    shared.merge(total.shared)
    return try commit(key, digest, byteCount, manifest, total, lossCount, &shared)
  }

  private func commit(
    _ key: [UInt8], _ digest: Digest, _ byteCount: Int64, _ manifest: ManifestBuilder, _ total: BatchResult,
    _ lossCount: Int, _ noted: inout Engine.SharedPacks
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    var shared = Engine.SharedPacks()
    let (result, watermark) = try engine.writer.commit { (commit) throws(BlobStorageError) in
      try commit.checkNothingLost(since: lossCount)
      var added = total.storedByteCount
      if let lists = manifest.lists {
        try recheck(lists.map(\.digest), commit)
        added += Int64(try appendManifest(digest, lists, byteCount, manifest.chunkCount, &commit, &shared))
      } else {
        try recheck(manifest.entries.map(\.digest), commit)
        if manifest.entries.count > 1 {
          added += Int64(try engine.appendManifest(digest, manifest.entries, &commit, &shared))
        }
      }
      let (version, refByteCount) = try engine.appendRef(
        key, digest, byteCount, options.replacement, options.metadata, &commit)
      return PutResult(
        version: version, newByteCount: total.newByteCount, storedByteCount: added + Int64(refByteCount))
    }
    noted.merge(shared)
    return (result, watermark)
  }

  /// What the leases should have kept is really there: looked up once more inside the transaction that counts on it.
  private func recheck(_ digests: [Digest], _ commit: WriterSession.Commit) throws(BlobStorageError) {
    for digest in digests where !commit.hasPendingChunk(digest) {
      guard try commit.transaction.chunkRow(digest) == nil else { continue }
      throw BlobStorageError(
        .busy, "Chunk \(digest) was removed while it was being shared: put the content again.", digest: digest
      )
    }
  }

  private func appendManifest(
    _ digest: Digest, _ lists: [ListEntry], _ byteCount: Int64, _ chunkCount: Int64,
    _ commit: inout WriterSession.Commit, _ shared: inout Engine.SharedPacks
  ) throws(BlobStorageError) -> Int {
    if let row = try commit.transaction.manifestToShare(digest), try commit.canRefer(to: row.place) {
      try shared.note(row.place, commit.transaction)
      return 0
    }
    guard lists.count <= Limits.manifestListCountMax else {
      throw BlobStorageError(.limitExceeded, "The blob has more chunks than a manifest can name.")
    }
    var payload = ByteWriter(capacity: lists.count * ListEntry.byteCount)
    for list in lists { list.encode(into: &payload) }
    let record = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: chunkCount, depth: 1, listedCount: lists.count)
    return try bridge(payload.bytes) { (raw) throws(BlobStorageError) in
      try commit.append(.manifest(record), payload: raw)
    }
  }

  private func store(
    _ list: ManifestBuilder.List, _ total: inout BatchResult, _ holds: inout [LeaseFile.Hold],
    _ manifest: inout ManifestBuilder
  ) throws(BlobStorageError) {
    let result = try intake.process(
      Batch(bytes: list.bytes, chunks: [0..<list.bytes.count], hint: .alreadyCompressed))
    holds += result.holds
    total.shared.merge(result.shared)
    total.storedByteCount += result.storedByteCount
    manifest.note(list, digest: result.entries[0].digest)
  }
}

/// One batch of chunks, on any thread: named, looked up, encoded and appended.
struct ChunkIntake: Sendable {
  /// What goes through the pipeline in one piece.
  struct Batch: Sendable {
    var bytes: [UInt8]
    var chunks: [Range<Int>]
    var hint: CompressibilityHint
  }

  struct BatchResult: Sendable {
    var entries: [ChunkEntry] = []
    var holds: [LeaseFile.Hold] = []
    var shared = Engine.SharedPacks()
    var newByteCount: Int64 = 0
    var storedByteCount: Int64 = 0
  }

  private struct Missing {
    var digest: Digest
    var range: Range<Int>
    var features: SIMD3<UInt32>?
    var base: BaseSearch.Base?
  }

  private let engine: Engine
  private let search: BaseSearch

  init(_ engine: Engine, _ codec: CodecChoice) {
    self.engine = engine
    search = BaseSearch(engine, codec)
  }

  func process(_ batch: Batch) throws(BlobStorageError) -> BatchResult {
    var result = BatchResult()
    return try bridge(batch.bytes) { (bytes) throws(BlobStorageError) in
      for range in batch.chunks {
        let digest = Digest.of(
          UnsafeRawBufferPointer(rebasing: bytes[range]), by: engine.header.digestAlgorithm)
        result.entries.append(ChunkEntry(digest: digest, plainByteCount: range.count))
      }
      let present = try share(result.entries.map(\.digest), &result)
      var missing: [Missing] = []
      for (index, range) in batch.chunks.enumerated() {
        let digest = result.entries[index].digest
        if present.contains(digest) || engine.writer.hasPendingChunk(digest) { continue }
        let plain = UnsafeRawBufferPointer(rebasing: bytes[range])
        missing.append(
          Missing(digest: digest, range: range, features: search.features(plain, hint: batch.hint)))
      }
      try findBases(&missing, &result)
      for chunk in missing {
        let plain = UnsafeRawBufferPointer(rebasing: bytes[chunk.range])
        let encoded = try search.encode(
          chunk.digest, plain, hint: batch.hint, features: chunk.features, base: chunk.base)
        let added: Int
        if let stored = encoded.stored {
          added = try bridge(stored) { (raw) throws(BlobStorageError) in
            try engine.writer.append(.chunk(encoded.record), payload: raw)
          }
        } else {
          added = try engine.writer.append(.chunk(encoded.record), payload: plain)
        }
        result.storedByteCount += Int64(added)
        if added > 0 { result.newByteCount += Int64(plain.count) }
      }
      return result
    }
  }

  /// Finds bases, and leases them before they are looked up again, like chunks that are shared.
  private func findBases(_ missing: inout [Missing], _ result: inout BatchResult) throws(BlobStorageError) {
    let (found, unsynced) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [BaseSearch.Base?] = []
      var unsynced: Set<PackName> = []
      for chunk in missing {
        let base =
          chunk.features == nil
          ? nil : try search.base(for: chunk.digest, chunk.features, previous: nil, transaction)
        if let base { unsynced.formUnion(try engine.unsyncedPacks(base.row, transaction)) }
        found.append(base)
      }
      return (found, unsynced)
    }
    let digests = found.compactMap { $0?.digest }
    for name in unsynced { try engine.writer.synchronizeOther(name) }
    guard !digests.isEmpty else { return }
    result.holds.append(try engine.leases.hold(digests.map { .chunk($0) }))
    var shared = Engine.SharedPacks()
    var confirmed = found
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for index in found.indices {
        guard let base = found[index] else { continue }
        guard let row = try transaction.baseToShare(base.digest),
          try engine.unsyncedPacks(row, transaction).isEmpty
        else {
          confirmed[index] = nil
          continue
        }
        try shared.note(row, transaction)
      }
    }
    for index in missing.indices { missing[index].base = confirmed[index] }
    result.shared.merge(shared)
  }

  /// Which of these chunks are there to be shared: found, leased, and found again in a snapshot taken after that.
  private func share(_ digests: [Digest], _ result: inout BatchResult) throws(BlobStorageError) -> Set<Digest>
  {
    let (found, unsynced) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [Digest] = []
      var unsynced: Set<PackName> = []
      for digest in digests {
        guard let row = try transaction.chunkToShare(digest) else { continue }
        found.append(digest)
        unsynced.formUnion(try engine.unsyncedPacks(row, transaction))
      }
      return (found, unsynced)
    }
    guard !found.isEmpty else { return [] }
    for name in unsynced { try engine.writer.synchronizeOther(name) }
    result.holds.append(try engine.leases.hold(found.map { .chunk($0) }))
    var shared = Engine.SharedPacks()
    let present = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var present: Set<Digest> = []
      for digest in found {
        guard let row = try transaction.chunkToShare(digest),
          try engine.unsyncedPacks(row, transaction).isEmpty
        else { continue }
        try shared.note(row, transaction)
        present.insert(digest)
      }
      return present
    }
    result.shared.merge(shared)
    return present
  }
}

/// Reads content into batches that end with a chunk.
struct Cutter {
  private var chunker: Chunker
  private let batchByteCount: Int
  /// Bytes of the chunk under way, carried over to the next batch.
  private var carried: [UInt8] = []
  private var isAtEnd = false
  private var isFirst = true
  private(set) var hint = CompressibilityHint.unknown
  private let chunkByteCountMax: Int

  init(sizes: ChunkSizes, batchByteCount: Int) {
    chunker = Chunker(sizes: sizes)
    self.batchByteCount = batchByteCount
    chunkByteCountMax = sizes.maximum
  }

  /// The next whole chunks, or nil at the content's end.
  mutating func next(
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> (bytes: [UInt8], chunks: [Range<Int>])? {
    if isAtEnd { return nil }
    let carriedCount = carried.count
    let capacity = carriedCount + max(batchByteCount, chunkByteCountMax)
    var failure: BlobStorageError?
    var filled = 0
    var bytes = [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
      let raw = UnsafeMutableRawBufferPointer(buffer)
      carried.withUnsafeBytes { raw.copyMemory(from: $0) }
      do throws(BlobStorageError) {
        filled = try read(UnsafeMutableRawBufferPointer(rebasing: raw[carriedCount...]))
      } catch { failure = error }
      count = carriedCount + filled
    }
    if let failure { throw failure }
    isAtEnd = filled < capacity - carriedCount
    if isFirst {
      hint = bytes.withUnsafeBytes { CompressibilityHint(beginning: $0) }
      isFirst = false
    }
    var chunks: [Range<Int>] = []
    bytes.withUnsafeBytes { raw in
      var begin = 0
      var offset = carriedCount
      while offset < raw.count {
        let cut = chunker.nextCut(in: UnsafeRawBufferPointer(rebasing: raw[offset...]))
        offset += cut.byteCount
        if cut.endsChunk {
          chunks.append(begin..<offset)
          begin = offset
        }
      }
    }
    let end = chunks.last?.upperBound ?? 0
    if isAtEnd {
      if end < bytes.count { chunks.append(end..<bytes.count) }
    } else {
      carried = Array(bytes[end...])
      bytes.removeLast(bytes.count - end)
    }
    return chunks.isEmpty ? nil : (bytes, chunks)
  }
}

/// Gathers the chunks of a blob into lists, so that what is in memory stays small.
struct ManifestBuilder {
  /// A full list, to be stored as a chunk.
  struct List {
    var bytes: [UInt8]
    var chunkCount: Int
    var spanByteCount: Int64
  }

  private(set) var entries: [ChunkEntry] = []
  private(set) var lists: [ListEntry]?
  private(set) var chunkCount: Int64 = 0

  var isEmpty: Bool { chunkCount == 0 }

  mutating func append(_ entry: ChunkEntry) {
    entries.append(entry)
    chunkCount += 1
  }

  mutating func takeFullList() -> List? {
    // One more than a list holds: a blob of exactly that many chunks needs no lists.
    guard entries.count > ManifestRecord.listedCountTarget else { return nil }
    let last = entries.removeLast()
    defer { entries = [last] }
    return list()
  }

  /// What is left, if there are lists already.
  mutating func takeLastList() -> List? {
    guard lists != nil, !entries.isEmpty else { return nil }
    defer { entries = [] }
    return list()
  }

  mutating func note(_ list: List, digest: Digest) {
    lists =
      (lists ?? []) + [
        ListEntry(digest: digest, chunkCount: list.chunkCount, spanByteCount: list.spanByteCount)
      ]
  }

  private func list() -> List {
    var writer = ByteWriter(capacity: entries.count * ChunkEntry.byteCount)
    var span: Int64 = 0
    for entry in entries {
      entry.encode(into: &writer)
      span += Int64(entry.plainByteCount)
    }
    return List(bytes: writer.bytes, chunkCount: entries.count, spanByteCount: span)
  }
}

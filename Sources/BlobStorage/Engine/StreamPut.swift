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
    let (result, watermark) = try write(key, content)
    try engine.makeDurable(options.durability, watermark)
    return result
  }

  private func write(
    _ key: [UInt8], _ content: BlobContent
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    switch content {
    case .data(let data):
      var offset = 0
      return try run(key) { (target) in
        let count = min(target.count, data.count - offset)
        data.withUnsafeBytes { raw in
          target.copyMemory(from: UnsafeRawBufferPointer(rebasing: raw[offset..<offset + count]))
        }
        offset += count
        return count
      }
    case .file(let path):
      return try run(key, try InputFile(FilePath(path)))
    case .descriptor(let number):
      let file = try InputFile(borrowing: number, name: FilePath("descriptor \(number)"))
      return try run(key) { (target) throws(BlobStorageError) in try file.read(into: target) }
    case .stream(let next):
      var rest = Data()
      return try run(key) { (target) throws(BlobStorageError) in
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

  /// Puts a file; durability is left to the caller.
  func run(
    _ key: [UInt8], _ file: InputFile
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    var put: UInt64?
    defer { if let put { engine.leases.endPut(put) } }
    // What is compared is looked up long before it is counted on.
    put = try engine.writer.publisher.joinStream(engine.writer, engine.leases)
    var compared: Int64 = 0
    if let same = try SameContent(engine, key: key, byteCount: file.status.byteCount),
      try same.isHeld(
        by: file,
        progress: {
          compared = $0
          progress($0)
        })
    {
      try file.checkUnchanged()
      if let done = try same.commit(options) { return done }
    }
    var rest = self
    // What is read once more is no progress.
    rest.progress = { [progress, compared] in progress(max($0, compared)) }
    return try rest.run(
      key, beforeCommit: { () throws(BlobStorageError) in try file.checkUnchanged() }
    ) {
      (target) throws(BlobStorageError) in try file.read(into: target)
    }
  }

  /// Makes the content visible; durability is left to the caller.
  ///
  /// - Parameter read: fills its buffer, or stops at the content's end.
  func run(
    _ key: [UInt8],
    beforeCommit: () throws(BlobStorageError) -> Void = {},
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    try CancellationFlag.check()
    let head = try head(read)
    guard head.count == engine.streamHeadByteCount else {
      return try runShort(key, head, beforeCommit)
    }
    var rest = head[...]
    return try runLong(key, beforeCommit) { (target) throws(BlobStorageError) in
      let count = min(rest.count, target.count)
      rest.prefix(count).withUnsafeBytes { target.copyMemory(from: $0) }
      rest = count == rest.count ? [] : rest.dropFirst(count)
      guard count < target.count else { return count }
      return count + (try read(UnsafeMutableRawBufferPointer(rebasing: target[count...])))
    }
  }

  /// The beginning of the content, as much as is put from memory.
  private func head(
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> [UInt8] {
    try [UInt8](filling: engine.streamHeadByteCount, by: read)
  }

  /// Content that has ended already needs neither leases nor a pipeline.
  private func runShort(
    _ key: [UInt8], _ bytes: [UInt8],
    _ beforeCommit: () throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    progress(Int64(bytes.count))
    let blob = try bridge(bytes) { (raw) throws(BlobStorageError) in
      try engine.prepare(raw, key: key, options)
    }
    try beforeCommit()
    let item = Engine.CommitItem(key: key, blob: blob, data: Data(bytes), options)
    let (results, watermark) = try engine.commit([item], promising: options.durability)
    return (results[0], watermark)
  }

  private func runLong(
    _ key: [UInt8],
    _ beforeCommit: () throws(BlobStorageError) -> Void,
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    let put = try engine.leases.beginPut(from: engine.writer.currentSequence)
    defer { engine.leases.endPut(put) }
    try engine.writer.join()
    let lossCount = engine.writer.lossCount
    let previous = intake.usesBases ? try PreviousVersion(engine, key: key) : nil
    var holds: [LeaseFile.Hold] = []
    defer { for hold in holds { engine.leases.release(hold) } }
    var total = BatchResult()
    var manifest = ManifestBuilder()
    var whole = BlobDigest(engine.header.digestAlgorithm, on: engine.work)
    var byteCount: Int64 = 0
    var committedMark = engine.writer.addedByteCount
    var cutter = Cutter(sizes: engine.sizes, batchByteCount: engine.environment.streamBatchByteCount)

    func take(_ result: BatchResult) throws(BlobStorageError) {
      holds += result.holds
      total.newByteCount += result.newByteCount
      total.storedByteCount += result.storedByteCount
      for entry in result.entries {
        manifest.append(entry)
        if let list = manifest.takeFullList() { try store(list, &total, &holds, &manifest) }
      }
      if engine.writer.addedByteCount - committedMark >= Self.committedByteCount {
        _ = try engine.writer.commit(on: []) { _ in }
        committedMark = engine.writer.addedByteCount
      }
    }

    try engine.work.orderedMap(
      inFlightMax: engine.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> Batch? in
        try CancellationFlag.check()
        guard let (bytes, chunks) = try cutter.next(read) else { return nil }
        whole.update(bytes)
        let start = byteCount
        byteCount += Int64(bytes.count)
        progress(byteCount)
        guard byteCount <= Limits.blobByteCountMax else {
          throw BlobStorageError(.limitExceeded, "A blob has at most \(Limits.blobByteCountMax) bytes.")
        }
        return Batch(
          bytes: bytes, chunks: chunks, hint: cutter.hint, start: start,
          isWhole: start == 0 && cutter.isAtEnd)
      },
      transform: { [intake] (batch) throws(BlobStorageError) in try intake.process(batch, previous: previous)
      },
      consume: take)

    let digest = whole.finalize()
    if manifest.isEmpty {
      // An empty blob is one chunk of no bytes.
      try take(try intake.process(Batch(bytes: [], chunks: [0..<0], hint: .unknown)))
      manifest = ManifestBuilder()
    }
    if let list = manifest.takeLastList() { try store(list, &total, &holds, &manifest) }
    try beforeCommit()
    return try commit(key, digest, byteCount, manifest, total, lossCount)
  }

  private func commit(
    _ key: [UInt8], _ digest: Digest, _ byteCount: Int64, _ manifest: ManifestBuilder, _ total: BatchResult,
    _ lossCount: Int
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    let (result, watermark) = try engine.writer.commit(on: [key]) { (commit) throws(BlobStorageError) in
      commit.isPromised = options.durability == .durable
      try commit.checkNothingLost(since: lossCount)
      var added = total.storedByteCount
      if let lists = manifest.lists {
        try recheck(lists.map(\.digest), commit)
        added += Int64(try engine.appendManifest(digest, lists, byteCount, manifest.chunkCount, &commit))
      } else {
        try recheck(manifest.entries.map(\.digest), commit)
        if manifest.entries.count > 1 {
          added += Int64(try engine.appendManifest(digest, manifest.entries, &commit))
        }
      }
      let (version, refByteCount) = try engine.appendRef(
        key, digest, byteCount, Engine.RefOptions(options), &commit)
      return PutResult(
        version: version, newByteCount: total.newByteCount, storedByteCount: added + Int64(refByteCount))
    }
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

  private func store(
    _ list: ManifestBuilder.List, _ total: inout BatchResult, _ holds: inout [LeaseFile.Hold],
    _ manifest: inout ManifestBuilder
  ) throws(BlobStorageError) {
    let result = try intake.process(
      Batch(bytes: list.bytes, chunks: [0..<list.bytes.count], hint: .alreadyCompressed))
    holds += result.holds
    total.storedByteCount += result.storedByteCount
    manifest.note(list, digest: result.entries[0].digest)
  }
}

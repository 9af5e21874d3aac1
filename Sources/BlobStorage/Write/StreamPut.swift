import Foundation
import Synchronization
import SystemPackage

/// Puts content of any length in bounded memory. One thread reads and cuts. All threads hash, look up, encode and
/// append. One commit at the end makes the blob visible. The caller makes it durable.
///
/// Chunks reach the catalog before any version needs them. Until the end ``LeaseFile/beginPut(from:)`` protects new
/// ones from gc, and leases protect all of them. Each lease is written before its chunks are looked up again.
package struct StreamPut {
  /// After so many bytes added to packs, chunks are committed to the catalog, so that few records are pending.
  private static let committedByteCount: Int64 = 16 << 20

  /// After so many of these commits, freed memory goes back to the system.
  private static let commitCountOfRelease = 4
  /// The most batches in flight, whatever the number of processors: the one thread that reads seldom feeds more.
  private static let batchCountMax = 7

  private static let remedy = "put the content again"

  private let short: MemoryPut
  private let options: PutOptions
  private let batching: Batching
  private let planner: ChunkPlanner
  private var writer: WriterSession { short.writer }
  private var leases: LeaseFile { planner.leases }
  private var work: WorkPool { planner.blobs.work }
  /// Receives the number of bytes read so far.
  package var progress: (Int64) -> Void = { _ in }

  /// How much of a stream is processed together.
  package struct Batching: Sendable {
    /// Shorter content is put like content in memory.
    package var headByteCount: Int
    /// So many bytes are cut and looked up together.
    package var batchByteCount: Int
  }

  /// - Parameter short: puts content that ends before the head is full.
  init(_ short: MemoryPut, _ options: PutOptions, _ batching: Batching) throws(BlobStorageError) {
    self.short = short
    self.options = options
    self.batching = batching
    planner = try short.planner(options.codec)
  }

  /// Puts content of any kind.
  func run(
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
      guard options.storesChangingFiles else { return try run(key, try InputFile(FilePath(path))) }
      var change: SourceChange?
      var (result, watermark) = try run(key, try InputFile(FilePath(path))) { found, _ in change = found }
      result.sourceChange = change
      return (result, watermark)
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
              if error is CancellationError || (error as? BlobStorageError)?.code == .cancelled {
                throw CancellationFlag.cancelled
              }
              throw BlobStorageError(
                .sourceFailed, "The source of a put failed: \(error).", underlying: error)
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

  /// Puts a file.
  ///
  /// - Parameter whenChanged: is told how the file changed while it was read, before the commit, and may change the
  ///   options of the put. What was read is stored, unless it throws.
  /// - Throws: `sourceFailed` if the file changed and `whenChanged` is nil.
  package func run(
    _ key: [UInt8], _ file: InputFile,
    whenChanged: ((SourceChange, inout PutOptions) throws(BlobStorageError) -> Void)? = nil
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    func check(_ options: inout PutOptions) throws(BlobStorageError) {
      guard let change = try file.change() else { return }
      guard let whenChanged else { throw file.changedError }
      try whenChanged(change, &options)
    }
    var put: UInt64?
    defer { if let put { leases.endPut(put) } }
    // The comparison looks chunks up long before the commit relies on them.
    put = try writer.publisher.joinStream(writer, leases)
    var compared: Int64 = 0
    if let same = try SameContent(planner, key: key, byteCount: file.status.byteCount),
      try same.isHeld(
        by: file,
        progress: {
          compared = $0
          progress($0)
        })
    {
      var options = options
      try check(&options)
      if let done = try same.commit(options) { return done }
    }
    var rest = self
    // Reading bytes again is no progress.
    rest.progress = { [progress, compared] in progress(max($0, compared)) }
    return try rest.run(key, beforeCommit: check) { (target) throws(BlobStorageError) in
      try file.read(into: target)
    }
  }

  /// Puts the content that `read` delivers.
  ///
  /// - Parameters:
  ///   - beforeCommit: is called once all is read, and may change the options of the commit.
  ///   - read: fills its buffer, except at the content's end, and returns the number of bytes.
  func run(
    _ key: [UInt8],
    beforeCommit: (inout PutOptions) throws(BlobStorageError) -> Void = { _ in },
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    try CancellationFlag.check()
    let head = try [UInt8](filling: batching.headByteCount, by: read)
    guard head.count == batching.headByteCount else {
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

  /// Puts content that has ended already. It needs neither leases nor a pipeline.
  private func runShort(
    _ key: [UInt8], _ bytes: [UInt8],
    _ beforeCommit: (inout PutOptions) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    progress(Int64(bytes.count))
    var options = options
    try beforeCommit(&options)
    let item = try short.prepare(key, Data(bytes), options)
    return try short.commit(item, options.durability)
  }

  private func runLong(
    _ key: [UInt8],
    _ beforeCommit: (inout PutOptions) throws(BlobStorageError) -> Void,
    _ read: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    let put = try leases.beginPut(from: writer.currentSequence)
    defer { leases.endPut(put) }
    try writer.join()
    try writer.endLongPack()
    let lossCount = writer.lossCount
    let previous = try planner.previousVersion(of: key)
    let intake = Intake(planner, writer)
    defer { intake.release() }
    var total = Intake.Added()
    var manifest = ManifestBuilder()
    var whole = BlobHasher(planner.algorithm, on: work)
    var byteCount: Int64 = 0
    var committedMark = writer.addedByteCount
    var commitCount = 0
    var cutter = Cutter(sizes: planner.sizes, batchByteCount: batching.batchByteCount)

    func add(_ added: Intake.Added) throws(BlobStorageError) {
      total.newByteCount += added.newByteCount
      total.storedByteCount += added.storedByteCount
      for entry in added.entries {
        manifest.append(entry)
        if let list = manifest.removeFullList() { try store(list, by: intake, &total, &manifest) }
      }
      if writer.addedByteCount - committedMark >= Self.committedByteCount {
        _ = try writer.commit(on: []) { _ in }
        committedMark = writer.addedByteCount
        commitCount += 1
        if commitCount.isMultiple(of: Self.commitCountOfRelease) { FreedMemory.release() }
      }
    }

    try work.orderedMap(
      inFlightMax: min(work.width * 2 + 1, work.width + 2, Self.batchCountMax),
      next: { () throws(BlobStorageError) -> Cutter.Batch? in
        try CancellationFlag.check()
        guard let batch = try cutter.next(read) else { return nil }
        whole.update(batch)
        byteCount += Int64(batch.bytes.count)
        progress(byteCount)
        guard byteCount <= BlobLimits.maximumBlobByteCount else {
          throw BlobStorageError(
            .limitExceeded, "A blob has at most \(BlobLimits.maximumBlobByteCount) bytes.")
        }
        return batch
      },
      transform: { (batch) throws(BlobStorageError) in try intake.append(batch, previous: previous) },
      consume: add)

    let digest = whole.finalize()
    if manifest.isEmpty {
      // An empty blob is one chunk of no bytes.
      try add(try intake.append(Cutter.Batch(bytes: [], chunks: [0..<0], hint: .unknown)))
      manifest = ManifestBuilder()
    }
    if let list = manifest.removeLastList() { try store(list, by: intake, &total, &manifest) }
    var options = options
    try beforeCommit(&options)
    return try commit(key, digest, byteCount, manifest, total, lossCount, options)
  }

  private func commit(
    _ key: [UInt8], _ digest: BlobDigest, _ byteCount: Int64, _ manifest: ManifestBuilder,
    _ total: Intake.Added, _ lossCount: Int, _ options: PutOptions
  ) throws(BlobStorageError) -> (PutResult, WriterSession.Watermark?) {
    try options.heldPut?.hold(digest, byteCount)
    let layout = try manifest.layout(digest)
    let place = try planner.blobs.place(of: layout)
    return try KeptVersions(writer).keepingReplaced(of: options.keepsReplaced ? [key] : []) {
      (check) throws(BlobStorageError) in
      try writer.commit(on: [key]) { (commit) throws(BlobStorageError) in
        try check(commit)
        commit.isPromised = options.durability == .durable
        try commit.checkNothingLost(since: lossCount)
        // A list is a chunk, too.
        try commit.check(
          manifest.lists?.map(\.digest) ?? manifest.entries.map(\.digest), remedy: Self.remedy)
        let added =
          total.storedByteCount + Int64(try commit.appendManifest(of: layout) { $0 == place })
        let (version, refByteCount) = try commit.appendRef(
          key, digest, byteCount, RefOptions(options))
        return PutResult(
          version: version, newByteCount: total.newByteCount, storedByteCount: added + Int64(refByteCount))
      }
    }
  }

  private func store(
    _ list: ManifestBuilder.List, by intake: Intake, _ total: inout Intake.Added,
    _ manifest: inout ManifestBuilder
  ) throws(BlobStorageError) {
    let added = try intake.append(
      Cutter.Batch(bytes: list.bytes, chunks: [0..<list.bytes.count], hint: .alreadyCompressed))
    total.storedByteCount += added.storedByteCount
    manifest.append(list, digest: added.entries[0].digest)
  }
}

/// Plans batches and appends their new chunks, on any thread. Leases protect the chunks until ``release()``.
private final class Intake: Sendable {
  struct Added: Sendable {
    var entries: [ChunkEntry] = []
    var newByteCount: Int64 = 0
    var storedByteCount: Int64 = 0
  }

  private let planner: ChunkPlanner
  private let writer: WriterSession
  private let holds = Mutex<[LeaseFile.Hold]>([])

  init(_ planner: ChunkPlanner, _ writer: WriterSession) {
    self.planner = planner
    self.writer = writer
  }

  /// - Parameter previous: the current version of the blob's key.
  func append(
    _ batch: Cutter.Batch, previous: PreviousVersion? = nil
  ) throws(BlobStorageError) -> Added {
    var added = Added()
    var builder = FrameBuilder(
      planner.codec, writer.codecs, plainByteCountMax: FrameBuilder.longPlainByteCountMax)
    var joined: Set<BlobDigest> = []
    func append(_ group: JoinedChunks?) throws(BlobStorageError) {
      guard let group else { return }
      for part in try group.parts(by: planner.codec, writer.codecs, except: { _ in false }) {
        added.storedByteCount += Int64(try writer.append(part))
      }
    }
    let hold = try planner.plan(batch, previous: previous, .leases, joins: true) {
      (chunk, plain) throws(BlobStorageError) in
      added.entries.append(ChunkEntry(digest: chunk.digest, plainByteCount: plain.byteCount))
      if chunk.isToBeJoined {
        // Another thread may have appended the chunk meanwhile.
        guard joined.insert(chunk.digest).inserted, !writer.hasPendingChunk(chunk.digest) else { return }
        added.newByteCount += Int64(plain.byteCount)
        try append(try builder.add(chunk.digest, plain, features: chunk.features))
        return
      }
      guard let encoded = chunk.encoded else { return }
      let byteCount = try encoded.withPayload(plain) { (payload) throws(BlobStorageError) in
        try writer.append(.chunk(encoded.record), payload: payload)
      }
      // Another thread may have appended the chunk meanwhile.
      guard byteCount > 0 else { return }
      added.storedByteCount += Int64(byteCount)
      added.newByteCount += Int64(plain.byteCount)
    }
    if let hold { holds.withLock { $0.append(hold) } }
    try append(try builder.end())
    return added
  }

  /// Releases the leases, including those of batches that failed.
  func release() {
    // The newest first, so that the file gets shorter.
    for hold in holds.withLock({ $0 }).reversed() { planner.leases.release(hold) }
  }
}

extension BlobContent {
  /// Its length if that is known beforehand; otherwise 0.
  func knownByteCount() -> Int64 {
    switch self {
    case .data(let data): return Int64(data.count)
    case .file(let path):
      // Opening the file reports errors.
      do { return try SystemFiles().status(of: FilePath(path))?.byteCount ?? 0 } catch { return 0 }
    case .descriptor, .stream: return 0
    }
  }
}

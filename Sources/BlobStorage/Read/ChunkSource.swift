import Dispatch
import Foundation
import Synchronization

/// Finds a chunk by its digest, wherever gc has moved it, and returns its verified plain bytes.
package final class ChunkSource: Sendable {
  /// How the bytes of a pack are fetched when they are not in the page cache.
  package enum Access: Sendable {
    /// Large parts in order: a plain read, so that the system reads ahead.
    case sequential
    /// Scattered parts: through DispatchIO, and frames are decoded only as far as needed.
    case random
    /// A single chunk: a plain read, and frames are decoded only as far as needed.
    case single
    /// From the page cache only; throws `notCached` otherwise.
    case cached
  }

  let catalog: Catalog
  private let packs: PackFiles
  let codecs: CodecPool
  package let cache: ChunkCache
  /// Decoded frames, with half as many bytes as ``cache``.
  let frames: FrameCache
  private let extender: any CatalogExtender
  /// Maximum number of lookups of a chunk whose pack is removed before it is read (H6).
  let lookUpCountMax: Int
  let otherCopies: OtherCopies
  private static let dispatchQueue = DispatchQueue(label: "blob-storage.reads", attributes: .concurrent)

  package init(
    catalog: Catalog, packs: PackFiles, codecs: CodecPool, cache: ChunkCache, otherCopies: OtherCopies,
    looksUpAgain: Bool = true, extender: any CatalogExtender
  ) {
    self.otherCopies = otherCopies
    self.extender = extender
    lookUpCountMax = looksUpAgain ? 8 : 1
    self.catalog = catalog
    self.packs = packs
    self.codecs = codecs
    self.cache = cache
    frames = FrameCache(byteCountMax: cache.byteCountMax / 2)
  }

  /// Returns the chunk's verified plain bytes, from another copy if the known one is damaged.
  ///
  /// - Parameter keeps: whether to keep them in the cache. Then they are always verified by their digest.
  /// - Throws: `corrupted` if the chunk is missing, or no copy matches.
  package func bytes(
    _ digest: BlobDigest, access: Access = .sequential, keeps: Bool = false,
    verification: Verification = .digest
  ) throws(BlobStorageError) -> [UInt8] {
    let bytes: [UInt8] = try plain(digest, access, keeps ? .digest : verification)
    if keeps { cache.insert(digest, bytes) }
    return bytes
  }

  /// The same for a caller that wants them as `Data`.
  func data(_ digest: BlobDigest, _ verification: Verification) throws(BlobStorageError) -> Data {
    try plain(digest, .single, verification)
  }

  /// - Parameter hopCount: how many other copies that have a base led to this chunk.
  private func plain<Bytes: FilledBytes>(
    _ digest: BlobDigest, _ access: Access, _ verification: Verification, hopCount: Int = 0
  ) throws(BlobStorageError) -> Bytes {
    if let bytes = cache.bytes(digest) { return Bytes(copying: bytes) }
    var lookCount = 0
    repeat {
      let found = try located(digest) { (place) throws(BlobStorageError) -> Bytes in
        do throws(BlobStorageError) {
          return try self.read(place, digest, access, verification, hopCount: hopCount)
        } catch {
          guard error.code == .corrupted,
            let bytes: Bytes = try self.otherBytes(
              of: digest, insteadOf: place.row.place, in: place.pack, hopCount: hopCount)
          else { throw error }
          return bytes
        }
      } otherwise: { (place, pack) throws(BlobStorageError) in
        try self.otherBytes(of: digest, insteadOf: place, in: pack, hopCount: hopCount)
      }
      if let found { return found }
    } while try looksAgain(&lookCount)
    throw BlobStorageError(
      .corrupted, "Chunk \(digest) is missing from the store: put the same bytes again to heal it.",
      digest: digest)
  }

  /// Reads the copy of a chunk that the catalog knows, and neither another copy nor a cache.
  ///
  /// - Parameter last: the frame that the call before has read for the same check. It is not read again.
  /// - Returns: the frame of the chunk; nil for a chunk that is stored alone.
  /// - Throws: `corrupted` when that copy is damaged or missing.
  func checkKnownCopy(_ digest: BlobDigest, after last: FramePlace?) throws(BlobStorageError) -> FramePlace? {
    var frame: FramePlace?
    let found = try located(digest) { (place) throws(BlobStorageError) -> [UInt8] in
      frame = FramePlace(place.row)
      return try self.read(place, digest, usesKept: frame != nil && frame == last)
    }
    guard found == nil else { return frame }
    throw BlobStorageError(.corrupted, "Chunk \(digest) is missing from the store.", digest: digest)
  }

  /// Whether any copy of a damaged chunk can be read. If that is another copy, points the catalog at it.
  func hasOtherCopy(_ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      let isReadable = try located(digest) { (place) throws(BlobStorageError) -> Bool in
        do throws(BlobStorageError) {
          let _: [UInt8] = try self.read(place, digest, usesKept: false)
          return true
        } catch {
          guard error.code == .corrupted else { throw error }
          let other: [UInt8]? = try self.otherBytes(of: digest, insteadOf: place.row.place, in: place.pack)
          return other != nil
        }
      }
      return isReadable ?? false
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  /// Damaged chunks may have other copies that are encoded against each other, in a circle.
  private static let hopCountMax = 2

  /// Reads another copy than the one at `place`, which is damaged or lost; nil if no other copy is undamaged.
  private func otherBytes<Bytes: FilledBytes>(
    of digest: BlobDigest, insteadOf place: Place, in pack: PackName, hopCount: Int = 0
  ) throws(BlobStorageError) -> Bytes? {
    for copy in try otherCopies.copies(of: digest, insteadOf: pack, place.offset) {
      guard case .chunk(let chunk) = copy.record.content, let file = try packs.file(copy.pack) else {
        continue
      }
      do throws(BlobStorageError) {
        var row = ChunkRow(
          place: Place(pack: 0, offset: copy.record.offset, ordinal: copy.ordinal), record: chunk,
          storedByteCount: copy.record.storedByteCount, frameOffset: copy.record.frameOffset)
        // No row of the catalog points at this copy, so damage to it is not recorded.
        row.isSuspect = true
        let located = Located(row: row, pack: copy.pack, file: file)
        var base: [UInt8]?
        if let digest = chunk.base {
          guard hopCount < Self.hopCountMax else { continue }
          base = try self.base(digest, access: .sequential, hopCount: hopCount + 1)
        }
        let bytes: Bytes = try readOnce(located, digest, base, .sequential, .digest)
        use(copy, chunk, insteadOf: place, digest)
        return bytes
      } catch {
        guard error.code == .corrupted || error.code == .packGone else { throw error }
      }
    }
    return nil
  }

  /// Points the catalog at another copy of a chunk, if the catalog can be written and other chunks stay decodable.
  private func use(
    _ copy: OtherCopies.Copy, _ chunk: ChunkRecord, insteadOf place: Place, _ digest: BlobDigest
  ) {
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard let row = try transaction.chunkRow(digest), row.place == place,
          let pack = try transaction.pack(copy.pack), pack.row.state == .live, !pack.row.isPoisoned
        else { return }
        // Chunks that are encoded against this one must be decodable in one hop, and gc may be about to remove a base.
        if let base = chunk.base {
          if try transaction.isBase(digest) { return }
          guard try transaction.baseToShare(base) != nil else { return }
        }
        let other = ChunkRow(
          place: Place(pack: pack.number, offset: copy.record.offset, ordinal: copy.ordinal), record: chunk,
          storedByteCount: copy.record.storedByteCount, frameOffset: copy.record.frameOffset)
        try transaction.setChunkRow(digest, other, insteadOf: row)
        _ = try transaction.increment(.movedRows)
      }
    } catch {
      // Reading goes on; the next read finds the copy again.
    }
  }

  /// Extends or completes the catalog after a lookup missed something, and returns whether to look again. A reference
  /// may become known before its target. A chunk may have a copy in a second pack after the first one was removed.
  func looksAgain(_ lookCount: inout Int) throws(BlobStorageError) -> Bool {
    guard lookCount < 2 else { return false }
    lookCount += 1
    if lookCount == 1, try extender.extendForMissing() { return true }
    lookCount = 2
    return try extender.completeCatalog()
  }

  /// The result of looking up and reading a chunk.
  enum Look {
    case bytes(Data)
    /// The lookup of the digest returned nil.
    case noDigest
    /// The chunk is missing or cannot be read at once.
    case unknown
  }

  /// Reads the chunk whose digest `find` returns. The digest and the chunk's place are found in the same view.
  func look(
    _ verification: Verification, _ find: (ReadTransaction) throws(BlobStorageError) -> BlobDigest?
  ) throws(BlobStorageError) -> Look {
    let found = try catalog.read { (view) throws(BlobStorageError) in try sight(view, find) }
    switch found {
    case .noDigest: return .noDigest
    case .noChunk: return .unknown
    case .chunk(let digest, let row, let pack, let number, var file):
      if let bytes = cache.bytes(digest) { return .bytes(Data(bytes)) }
      if file == nil { file = try packs.file(pack, number) }
      guard let file else { return .unknown }
      do throws(BlobStorageError) {
        return .bytes(
          try read(Located(row: row, pack: pack, file: file), digest, .single, verification))
      } catch {
        guard error.code == .packGone else { throw error }
        return .unknown
      }
    }
  }

  /// The longest chunk to read on the caller's thread, which takes about as long as waking another thread.
  private static let atOnceByteCountMax = 64 << 10

  /// The same without waiting for another process or for the medium, except that pages of the catalog may have to be
  /// read.
  ///
  /// - Throws: errors that the general way may repair.
  func lookAtOnce(
    _ verification: Verification, _ find: (ReadTransaction) throws(BlobStorageError) -> BlobDigest?
  ) throws(BlobStorageError) -> Look {
    let found = try catalog.readAtOnce { (view) throws(BlobStorageError) in try sight(view, find) }
    switch found {
    case .noDigest: return .noDigest
    case nil, .noChunk: return .unknown
    case .chunk(let digest, let row, let pack, _, let file):
      guard row.plainByteCount <= Self.atOnceByteCountMax else { return .unknown }
      if let bytes = cache.bytes(digest) { return .bytes(Data(bytes)) }
      guard let file else { return .unknown }
      var base: [UInt8]?
      if let digest = row.base {
        base = cache.bytes(digest)
        if base == nil { return .unknown }
      }
      return .bytes(
        try readOnce(Located(row: row, pack: pack, file: file), digest, base, .cached, verification))
    }
  }

  private enum Sight {
    case noDigest
    case noChunk
    /// The file is nil if it has to be opened.
    case chunk(BlobDigest, ChunkRow, PackName, PackFiles.Number, file: (any File)?)
  }

  private func sight(
    _ view: ReadTransaction, _ find: (ReadTransaction) throws(BlobStorageError) -> BlobDigest?
  ) throws(BlobStorageError) -> Sight {
    guard let digest = try find(view) else { return .noDigest }
    guard let row = try view.chunkRow(digest) else { return .noChunk }
    let number = PackFiles.Number(catalog: view.database.number, pack: row.place.pack)
    if let (pack, file) = packs.openFile(number) { return .chunk(digest, row, pack, number, file: file) }
    guard let pack = try view.packRow(row.place.pack) else { return .noChunk }
    return .chunk(digest, row, pack.name, number, file: nil)
  }

  /// Runs `body` on the file of a pack. If the pack was removed, updates the catalog and returns nil.
  ///
  /// - Parameter other: makes the result for a pack that is lost; returns nil if it cannot.
  func whereThere<T>(
    _ pack: PackName, _ body: (any File) throws(BlobStorageError) -> T,
    otherwise other: () throws(BlobStorageError) -> T?
  ) throws(BlobStorageError) -> T? {
    var reason = "Pack \(pack) is missing."
    do throws(BlobStorageError) {
      if let file = try packs.file(pack) { return try body(file) }
    } catch {
      guard error.code == .packGone else { throw error }
      reason = error.message
    }
    do throws(BlobStorageError) { try extender.resolveGone(pack, reason) } catch {
      guard error.code == .corrupted, let other = try other() else { throw error }
      return other
    }
    return nil
  }

  /// Returns the plain bytes of a chunk that others are encoded against. It has no base itself, so that recursion ends.
  package func base(
    _ digest: BlobDigest, access: Access, hopCount: Int = 0
  ) throws(BlobStorageError) -> [UInt8] {
    if let bytes = cache.bytes(digest) { return bytes }
    func hasBase() throws(BlobStorageError) -> Bool {
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.chunkRow(digest)?.base != nil
      }
    }
    if try hasBase() {
      // A completed catalog may have a copy without a base in another pack.
      guard try extender.completeCatalog(), try !hasBase() else {
        throw BlobStorageError(
          .corrupted, "Chunk \(digest) is a base and has a base itself.", digest: digest)
      }
    }
    let bytes: [UInt8] = try plain(digest, access, .digest, hopCount: hopCount)
    cache.insert(digest, bytes)
    return bytes
  }

  /// Whether reading the chunk requires decoding; false for a missing chunk.
  func isEncoded(_ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    let row = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.chunkRow(digest) }
    return row.map { $0.codecNumber != CodecKind.none.rawValue } ?? false
  }

  /// Where a chunk lies, as of one snapshot.
  package struct Located {
    package var row: ChunkRow
    package var pack: PackName
    package var file: any File
  }

  /// Looks the chunk up and calls `body` with its place; nil if the catalog lacks the chunk. If its pack was removed
  /// meanwhile, looks it up again in a newer snapshot.
  ///
  /// - Parameter other: makes the result for a copy whose pack is lost; returns nil if it cannot.
  package func located<T>(
    _ digest: BlobDigest, _ body: (Located) throws(BlobStorageError) -> T,
    otherwise other: (Place, PackName) throws(BlobStorageError) -> T? = { _, _ in nil }
  ) throws(BlobStorageError) -> T? {
    var lastPack: PackName?
    for _ in 0..<lookUpCountMax {
      let found = try catalog.read { (transaction) throws(BlobStorageError) -> (ChunkRow, PackName)? in
        guard let row = try transaction.chunkRow(digest), let pack = try transaction.packRow(row.place.pack)
        else {
          return nil
        }
        return (row, pack.name)
      }
      guard let (row, pack) = found else { return nil }
      lastPack = pack
      let result = try whereThere(pack) { (file) throws(BlobStorageError) in
        try body(Located(row: row, pack: pack, file: file))
      } otherwise: { () throws(BlobStorageError) in
        try other(row.place, pack)
      }
      if let result { return result }
    }
    throw BlobStorageError(
      .corrupted, "Chunk \(digest) should be in pack \(lastPack.map { "\($0)" } ?? "?"), which is missing.",
      digest: digest, pack: lastPack?.description)
  }

  private func read<Bytes: FilledBytes>(
    _ place: Located, _ digest: BlobDigest, _ access: Access = .sequential,
    _ verification: Verification = .digest, usesKept: Bool = true, hopCount: Int = 0
  ) throws(BlobStorageError) -> Bytes {
    let row = place.row
    var base: [UInt8]?
    if let baseDigest = row.base {
      do { base = try self.base(baseDigest, access: access, hopCount: hopCount) } catch {
        throw BlobStorageError(
          error.code, "Chunk \(digest) is encoded against another that cannot be read: \(error.message)",
          digest: digest, pack: place.pack.description, offset: row.place.offset, path: error.path,
          errno: error.errno)
      }
    }
    do throws(BlobStorageError) {
      let bytes: Bytes = try readOnce(place, digest, base, access, verification, usesKept: usesKept)
      // The bytes of a frame may come from the cache while the medium is damaged.
      if row.isSuspect, row.frameOffset == nil, verification == .digest {
        clearSuspect(digest, in: place.pack, offset: row.place.offset)
      }
      return bytes
    } catch {
      guard error.code == .corrupted else { throw error }
      // The local copy of that range may be the damaged one. Without a local copy, the pack is damaged.
      guard !row.isSuspect, place.file.dropKept(damagedRange(row)) else {
        markSuspect(digest, row)
        throw error
      }
    }
    do throws(BlobStorageError) {
      return try readOnce(place, digest, base, access, verification, usesKept: false)
    } catch {
      if error.code == .corrupted { markSuspect(digest, row) }
      throw error
    }
  }

  private func readOnce<Bytes: FilledBytes>(
    _ place: Located, _ digest: BlobDigest, _ base: [UInt8]?, _ access: Access, _ verification: Verification,
    usesKept: Bool = true
  ) throws(BlobStorageError) -> Bytes {
    let row = place.row
    do throws(BlobStorageError) {
      if let frame = row.frameOffset {
        return try member(digest, ofFrameAt: frame, place, access, usesKept: usesKept)
      }
      if row.codecNumber == CodecKind.none.rawValue {
        guard row.storedByteCount == row.plainByteCount else {
          throw BlobStorageError(.corrupted, "its length is wrong")
        }
        if verification == .checksum, row.storedByteCount > 0 {
          // A damaged header or meta does not mean that the bytes are damaged: the digest decides.
          do throws(BlobStorageError) { return try record(place, digest, access) } catch {
            guard error.code == .corrupted else { throw error }
          }
        }
      }
      return try Bytes(filling: row.plainByteCount) { (target) throws(BlobStorageError) in
        if row.codecNumber == CodecKind.none.rawValue {
          try self.fetch(place.file, row.payloadOffset, into: target, access)
        } else {
          guard let kind = CodecKind(rawValue: row.codecNumber) else {
            throw BlobStorageError(.unsupportedFormat, "this build does not know codec \(row.codecNumber)")
          }
          let stored = try [UInt8](filling: row.storedByteCount) { (target) throws(BlobStorageError) in
            try self.fetch(place.file, row.payloadOffset, into: target, access)
            return target.count
          }
          try self.decode(stored.span.bytes, kind, base, into: target)
        }
        guard BlobDigest.of(target.bytes, by: digest.algorithm) == digest else {
          throw BlobStorageError(.corrupted, "its bytes do not match its digest")
        }
        return target.count
      }
    } catch {
      guard error.code == .corrupted else { throw error }
      throw BlobStorageError(
        .corrupted,
        "Chunk \(digest) in pack \(place.pack) at \(row.place.offset) is damaged: \(error.message).",
        digest: digest, pack: place.pack.description, offset: row.place.offset, path: error.path,
        errno: error.errno)
    }
  }

  /// Reads the payload of a chunk that is stored without a codec, verified by its record's checksums.
  private func record<Bytes: FilledBytes>(
    _ place: Located, _ digest: BlobDigest, _ access: Access
  ) throws(BlobStorageError) -> Bytes {
    // One read of the whole record. Its payload is then moved to the front.
    try Bytes(filling: place.row.recordByteCount) { (target) throws(BlobStorageError) in
      let offset = place.row.place.offset
      try self.fetch(place.file, offset, into: target, access)
      let (header, meta, payload) = try RecordHeader.verified(
        UnsafeRawBufferPointer(target), pack: place.pack, offset: offset)
      guard header.typeNumber == RecordType.chunk.rawValue,
        try ChunkRecord(
          meta: meta, payloadByteCount: header.payloadByteCount, algorithm: digest.algorithm
        ).digest == digest,
        payload.count == place.row.plainByteCount, let start = target.baseAddress,
        let source = payload.baseAddress
      else { throw BlobStorageError(.corrupted, "another record is in its place") }
      start.copyMemory(from: source, byteCount: payload.count)
      return payload.count
    }
  }

  /// The plain bytes of a chunk record's payload, compared with their digest.
  package func decoded(
    _ stored: RawSpan, _ record: ChunkRecord, base: [UInt8]?
  ) throws(BlobStorageError) -> [UInt8] {
    guard let kind = CodecKind(rawValue: record.codecNumber) else {
      throw BlobStorageError(.unsupportedFormat, "this build does not know codec \(record.codecNumber)")
    }
    return try [UInt8](filling: record.plainByteCount) { (target) throws(BlobStorageError) in
      try decode(stored, kind, base, into: target)
      guard BlobDigest.of(target.bytes, by: record.digest.algorithm) == record.digest else {
        throw BlobStorageError(.corrupted, "its bytes do not match its digest")
      }
      return target.count
    }
  }

  private func decode(
    _ stored: RawSpan, _ kind: CodecKind, _ base: [UInt8]?, into target: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    try codecs.withDecoder { (decoder) throws(BlobStorageError) in
      try decoder.decode(stored, by: kind, base: base, into: target)
    }
  }

  /// Fills `target` from the page cache, or else as `access` says. Throws `corrupted` if the file ends before.
  func fetch(
    _ file: any File, _ offset: Int64, into target: UnsafeMutableRawBufferPointer, _ access: Access
  ) throws(BlobStorageError) {
    if target.isEmpty { return }
    let count: Int
    switch access {
    case .sequential, .single:
      count = try file.read(into: target, at: offset)
    case .random:
      if file.readIfCached(into: target, at: offset) != nil { return }
      if !file.isRemote,
        let read = try unlessCorrupted(try Self.readThroughDispatch(file, offset, into: target))
      {
        count = read
      } else {
        // Also where the medium could not be read: that may succeed the next time, and damage is remembered.
        count = try file.read(into: target, at: offset)
      }
    case .cached:
      guard let read = file.readIfCached(into: target, at: offset) else {
        throw BlobStorageError(.notCached, "It has to be read from the medium.")
      }
      count = read
    }
    guard count == target.count else { throw BlobStorageError(.corrupted, "its pack ends before it does") }
  }

  private static func readThroughDispatch(
    _ file: any File, _ offset: Int64, into target: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) -> Int {
    let done = DispatchSemaphore(value: 0)
    let answer = Answer()
    file.readThroughDispatch(offset: offset, byteCount: target.count, queue: dispatchQueue) { result in
      answer.result = result
      done.signal()
    }
    done.wait()
    guard let data = try answer.result?.get() else { return 0 }
    return data.copyBytes(to: target)
  }

  /// Written once before `done` is signalled, read once after.
  private final class Answer: @unchecked Sendable {
    var result: Result<DispatchData, BlobStorageError>?
  }

  /// Marks the chunk as damaged, so that the next put of the same bytes stores it again.
  private func markSuspect(_ digest: BlobDigest, _ known: ChunkRow) {
    // Later reads of the chunk wait for no writer.
    if known.isSuspect { return }
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard let row = try transaction.chunkRow(digest), row.place == known.place else { return }
        try transaction.setSuspect(digest, row)
      }
    } catch {
      // The damage is reported in any case; healing can wait for `repair`.
    }
  }

  /// Clears the mark of a chunk after a read at that place found bytes that match its digest. Its pack was restored, or
  /// only the earlier read had failed.
  package func clearSuspect(_ digest: BlobDigest, in pack: PackName, offset: Int64) {
    do throws(BlobStorageError) {
      func isSuspect(_ transaction: ReadTransaction) throws(BlobStorageError) -> ChunkRow? {
        guard let row = try transaction.chunkRow(digest), row.isSuspect, row.place.offset == offset,
          try transaction.packRow(row.place.pack)?.name == pack
        else { return nil }
        return row
      }
      guard try catalog.read({ (view) throws(BlobStorageError) in try isSuspect(view) != nil }) else {
        return
      }
      try catalog.write { (transaction) throws(BlobStorageError) in
        if let row = try isSuspect(transaction) { try transaction.setSuspect(digest, row, false) }
      }
    } catch {
      // The next read that finds it undamaged tries again.
    }
  }
}

extension ChunkSource {
  /// Reads a chunk that a manifest names, and checks its length against the manifest.
  package func bytes(
    _ entry: ChunkEntry, access: Access = .sequential, keeps: Bool = false,
    verification: Verification = .digest
  ) throws(BlobStorageError) -> [UInt8] {
    let bytes = try bytes(entry.digest, access: access, keeps: keeps, verification: verification)
    guard bytes.count == entry.plainByteCount else {
      throw BlobStorageError(
        .corrupted, "The length of chunk \(entry.digest) differs from the manifest.", digest: entry.digest)
    }
    return bytes
  }
}

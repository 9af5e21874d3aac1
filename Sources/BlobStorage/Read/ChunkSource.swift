import Dispatch
import Foundation
import Synchronization

/// Digest → verified plain bytes, wherever the chunk lies by now.
package final class ChunkSource: Sendable {
  /// How the bytes of a pack are fetched when they are not in the page cache.
  package enum Access: Sendable {
    /// Large parts in order: a plain read, so that the system reads ahead.
    case sequential
    /// Here and there: through DispatchIO.
    case random
  }

  private let catalog: Catalog
  private let packs: PackFiles
  private let codecs: CodecPool
  package let cache: ChunkCache
  private let extender: any CatalogExtender
  /// How often a place is looked up whose pack has gone by the time it is read (H6).
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
  }

  /// The chunk's plain bytes, equal to their digest, from whichever of its copies is undamaged.
  ///
  /// - Throws: `corrupted` for a chunk that is not there, or whose bytes do not match.
  package func bytes(
    _ digest: Digest, access: Access = .sequential, keeps: Bool = false
  ) throws(BlobStorageError) -> [UInt8] {
    if let bytes = cache.bytes(digest) { return bytes }
    var lookCount = 0
    repeat {
      let found = try located(digest) { (place) throws(BlobStorageError) -> [UInt8] in
        do throws(BlobStorageError) { return try self.read(place, digest, access: access) } catch {
          guard error.code == .corrupted, let bytes = try self.otherBytes(of: digest, insteadOf: place) else {
            throw error
          }
          return bytes
        }
      }
      guard let bytes = found else { continue }
      if keeps { cache.insert(digest, bytes) }
      return bytes
    } while try looksAgain(&lookCount)
    throw BlobStorageError(
      .corrupted, "Chunk \(digest) is needed and not in the store: put the same bytes again to heal it.",
      digest: digest)
  }

  /// Reads the copy of a chunk that the catalog knows; no other copy and no cache stands in for it.
  ///
  /// - Throws: `corrupted` when that copy is damaged or missing.
  package func checkKnownCopy(_ digest: Digest) throws(BlobStorageError) {
    let found = try located(digest) { (place) throws(BlobStorageError) in
      try self.read(place, digest, access: .sequential)
    }
    guard found == nil else { return }
    throw BlobStorageError(.corrupted, "Chunk \(digest) is needed and not in the store.", digest: digest)
  }

  /// Whether another copy of a damaged chunk can be read. The catalog points at that copy from then on.
  func hasOtherCopy(_ digest: Digest) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      let isReadable = try located(digest) { (place) throws(BlobStorageError) -> Bool in
        do throws(BlobStorageError) {
          _ = try self.read(place, digest, access: .sequential)
          return true
        } catch {
          guard error.code == .corrupted else { throw error }
          return try self.otherBytes(of: digest, insteadOf: place) != nil
        }
      }
      return isReadable ?? false
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  /// The bytes of a chunk from another copy than the one at `place`, which is damaged; nil if no other is undamaged.
  private func otherBytes(of digest: Digest, insteadOf place: Located) throws(BlobStorageError) -> [UInt8]? {
    for copy in try otherCopies.copies(of: digest, insteadOf: place.pack, place.row.place.offset) {
      guard case .chunk(let chunk) = copy.record.content, let file = try packs.file(copy.pack) else {
        continue
      }
      do throws(BlobStorageError) {
        var row = ChunkRow(
          place: Place(pack: 0, offset: copy.record.offset, ordinal: copy.ordinal), record: chunk,
          storedByteCount: copy.record.payloadByteCount)
        // No row of the catalog points there: nothing is to be noted if it is damaged as well.
        row.isSuspect = true
        let located = Located(row: row, pack: copy.pack, file: file)
        var base: [UInt8]?
        if let digest = chunk.base { base = try self.base(digest, access: .sequential) }
        let bytes = try readOnce(located, digest, base, access: .sequential)
        use(copy, chunk, insteadOf: place.row.place, digest)
        return bytes
      } catch {
        guard error.code == .corrupted || error.code == .packGone else { throw error }
      }
    }
    return nil
  }

  /// Has the catalog point at another copy of a chunk, where it can be written and others can still be decoded.
  private func use(_ copy: OtherCopies.Copy, _ chunk: ChunkRecord, insteadOf place: Place, _ digest: Digest) {
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard let row = try transaction.chunkRow(digest), row.place == place,
          let pack = try transaction.pack(copy.pack), pack.row.state == .live, !pack.row.isPoisoned
        else { return }
        // What is encoded against the chunk is decoded in one hop.
        if chunk.base != nil, try transaction.isBase(digest) { return }
        try transaction.setChunkRow(
          digest,
          ChunkRow(
            place: Place(pack: pack.number, offset: copy.record.offset, ordinal: copy.ordinal), record: chunk,
            storedByteCount: copy.record.payloadByteCount))
      }
    } catch {
      // Reading goes on; the next read finds the copy again.
    }
  }

  /// Whether what is not in the catalog may be there by now. What refers to it may have come to be known before it; and
  /// it may lie in a second pack, when the first one was removed.
  func looksAgain(_ lookCount: inout Int) throws(BlobStorageError) -> Bool {
    guard lookCount < 2 else { return false }
    lookCount += 1
    if lookCount == 1, try extender.extendForMissing() { return true }
    lookCount = 2
    return try extender.completeCatalog()
  }

  /// The plain bytes of the chunk whose digest `find` looks up, found in the same snapshot as its place; nil if there
  /// is no such chunk, or if it has moved meanwhile.
  func bytes(
    _ find: (ReadTransaction) throws(BlobStorageError) -> Digest?
  ) throws(BlobStorageError) -> [UInt8]? {
    let found = try catalog.read { (transaction) throws(BlobStorageError) -> (Digest, ChunkRow, PackName)? in
      guard let digest = try find(transaction), let row = try transaction.chunkRow(digest),
        let pack = try transaction.packRow(row.place.pack)
      else { return nil }
      return (digest, row, pack.name)
    }
    guard let (digest, row, pack) = found else { return nil }
    if let bytes = cache.bytes(digest) { return bytes }
    guard let file = try packs.file(pack) else { return nil }
    do throws(BlobStorageError) {
      return try read(Located(row: row, pack: pack, file: file), digest, access: .sequential)
    } catch {
      guard error.code == .packGone else { throw error }
      return nil
    }
  }

  /// Runs `body` on a file; nil when the pack turns out to have gone: then the catalog has been brought up to that.
  func whereThere<T>(
    _ pack: PackName, _ body: (any File) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T? {
    var reason = "Pack \(pack) is not there."
    do throws(BlobStorageError) {
      if let file = try packs.file(pack) { return try body(file) }
    } catch {
      guard error.code == .packGone else { throw error }
      reason = error.message
    }
    try extender.resolveGone(pack, reason)
    return nil
  }

  /// The plain bytes of a chunk that others are encoded against. It has no base itself, so that reading ends.
  func base(_ digest: Digest, access: Access) throws(BlobStorageError) -> [UInt8] {
    if let bytes = cache.bytes(digest) { return bytes }
    func hasBase() throws(BlobStorageError) -> Bool {
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.chunkRow(digest)?.base != nil
      }
    }
    if try hasBase() {
      // One without may be in another pack, if the catalog is made anew.
      guard try extender.completeCatalog(), try !hasBase() else {
        throw BlobStorageError(
          .corrupted, "Chunk \(digest) is a base and has a base itself.", digest: digest)
      }
    }
    return try bytes(digest, access: access, keeps: true)
  }

  /// Whether to read the chunk takes decoding; false also for one that is not there.
  func isEncoded(_ digest: Digest) throws(BlobStorageError) -> Bool {
    let row = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.chunkRow(digest) }
    return row.map { $0.codecNumber != CodecKind.none.rawValue } ?? false
  }

  /// Where a chunk lies, as of one snapshot.
  struct Located {
    var row: ChunkRow
    var pack: PackName
    var file: any File
  }

  /// Looks the chunk up and calls `body` with its place; nil when it is not in the catalog. A pack that was removed
  /// in between sends it to a fresh snapshot.
  func located<T>(
    _ digest: Digest, _ body: (Located) throws(BlobStorageError) -> T
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
      }
      if let result { return result }
    }
    throw BlobStorageError(
      .corrupted, "Chunk \(digest) should be in pack \(lastPack.map { "\($0)" } ?? "?"), which is not there.",
      digest: digest, pack: lastPack?.description)
  }

  private func read(
    _ place: Located, _ digest: Digest, access: Access
  ) throws(BlobStorageError) -> [UInt8] {
    let row = place.row
    var base: [UInt8]?
    if let baseDigest = row.base {
      do { base = try self.base(baseDigest, access: access) } catch {
        throw BlobStorageError(
          error.code, "Chunk \(digest) is encoded against another that cannot be read: \(error.message)",
          digest: digest,
          pack: place.pack.description, offset: row.place.offset)
      }
    }
    do throws(BlobStorageError) { return try readOnce(place, digest, base, access: access) } catch {
      guard error.code == .corrupted else { throw error }
      // What was kept here of the pack may be what is damaged. Where it was not, it is so in the pack.
      let range = row.payloadOffset..<row.payloadOffset + Int64(row.storedByteCount)
      guard !row.isSuspect, place.file.dropKept(range) else {
        noteSuspect(digest, row.place)
        throw error
      }
    }
    do throws(BlobStorageError) { return try readOnce(place, digest, base, access: access) } catch {
      if error.code == .corrupted { noteSuspect(digest, row.place) }
      throw error
    }
  }

  private func readOnce(
    _ place: Located, _ digest: Digest, _ base: [UInt8]?, access: Access
  ) throws(BlobStorageError) -> [UInt8] {
    let row = place.row
    do throws(BlobStorageError) {
      let plain = try [UInt8](filling: row.plainByteCount) { (target) throws(BlobStorageError) in
        if row.codecNumber == CodecKind.none.rawValue {
          guard row.storedByteCount == row.plainByteCount else {
            throw BlobStorageError(.corrupted, "its length is not that of its bytes")
          }
          try self.fetch(place.file, row.payloadOffset, into: target, access)
        } else {
          guard let kind = CodecKind(rawValue: row.codecNumber) else {
            throw BlobStorageError(.unsupportedFormat, "codec \(row.codecNumber) is not known to this build")
          }
          let stored = try [UInt8](filling: row.storedByteCount) { (target) throws(BlobStorageError) in
            try self.fetch(place.file, row.payloadOffset, into: target, access)
            return target.count
          }
          try self.decode(stored, kind, row, base, into: target)
        }
        return target.count
      }
      let actual = plain.withUnsafeBytes { Digest.of($0, by: digest.algorithm) }
      guard actual == digest else {
        throw BlobStorageError(.corrupted, "its bytes do not match its digest")
      }
      return plain
    } catch {
      guard error.code == .corrupted else { throw error }
      throw BlobStorageError(
        .corrupted,
        "Chunk \(digest) in pack \(place.pack) at \(row.place.offset) is damaged: \(error.message).",
        digest: digest,
        pack: place.pack.description, offset: row.place.offset)
    }
  }

  /// The plain bytes of a chunk record's payload, not yet compared with their digest.
  func decoded(
    _ stored: UnsafeRawBufferPointer, _ record: ChunkRecord, base: [UInt8]?
  ) throws(BlobStorageError) -> [UInt8] {
    guard let kind = CodecKind(rawValue: record.codecNumber) else {
      throw BlobStorageError(.unsupportedFormat, "codec \(record.codecNumber) is not known to this build")
    }
    return try [UInt8](filling: record.plainByteCount) { (target) throws(BlobStorageError) in
      try decode(stored, kind, record.baseKind, base: record.base, base, into: target)
      return target.count
    }
  }

  private func decode(
    _ stored: [UInt8], _ kind: CodecKind, _ row: ChunkRow, _ base: [UInt8]?,
    into target: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    try bridge(stored) { (stored) throws(BlobStorageError) in
      try decode(stored, kind, row.baseKind, base: row.base, base, into: target)
    }
  }

  private func decode(
    _ stored: UnsafeRawBufferPointer, _ kind: CodecKind, _ baseKind: ChunkRecord.BaseKind,
    base digest: Digest?,
    _ base: [UInt8]?, into target: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    try codecs.withDecoder { (decoder) throws(BlobStorageError) in
      guard let base, let digest else {
        try decoder.decode(stored, by: kind, into: target)
        return
      }
      try bridge(base) { (base) throws(BlobStorageError) in
        let encodingBase: EncodingBase =
          baseKind == .dictionary
          ? .dictionary(base, identity: digest.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) })
          : .prefix(base)
        try decoder.decode(stored, by: kind, base: encodingBase, into: target)
      }
    }
  }

  /// Exactly as many bytes as `target` has: from the page cache if they are there, else as `access` says.
  private func fetch(
    _ file: any File, _ offset: Int64, into target: UnsafeMutableRawBufferPointer, _ access: Access
  ) throws(BlobStorageError) {
    if target.isEmpty { return }
    let count: Int
    switch access {
    case .sequential:
      count = try file.read(into: target, at: offset)
    case .random:
      if file.readIfCached(into: target, at: offset) != nil { return }
      count =
        file.isRemote
        ? try file.read(into: target, at: offset) : try Self.readThroughDispatch(file, offset, into: target)
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

  /// Remembers that the chunk is damaged, so that the next put of the same bytes stores it again.
  private func noteSuspect(_ digest: Digest, _ place: Place) {
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard var row = try transaction.chunkRow(digest), row.place == place else { return }
        row.isSuspect = true
        try transaction.setChunkRow(digest, row)
      }
    } catch {
      // The damage is reported in any case; healing can wait for `repair`.
    }
  }
}

extension ChunkSource {
  /// The chunk that a manifest names: its length is the one that the manifest says, or the manifest is wrong.
  func bytes(_ entry: ChunkEntry, access: Access = .sequential, keeps: Bool = false) throws(BlobStorageError)
    -> [UInt8]
  {
    let bytes = try bytes(entry.digest, access: access, keeps: keeps)
    guard bytes.count == entry.plainByteCount else {
      throw BlobStorageError(
        .corrupted, "Chunk \(entry.digest) has not the length that a manifest says.", digest: entry.digest)
    }
    return bytes
  }
}

import BlobStorage

/// Follows blobs to the chunks that they need, and records why it cannot follow some.
final class NeededChunks {
  private let walk: LiveWalk
  /// Why blobs could not be followed, each reason once.
  private var reasons: Set<String> = []
  private static let reasonCountMax = 100

  init(_ blobs: BlobSource) { walk = LiveWalk(blobs) }

  /// Why blobs could not be followed; only the first reasons.
  var unreadableMessages: [String] { Array(reasons.sorted().prefix(20)) }

  /// Calls `body` with the lists and chunks of a blob, bases included. A chunk that the blob needs twice may come
  /// twice; a missing chunk does not come.
  func forEachChunk(of blob: BlobDigest, _ body: (ChunkRow) -> Void) throws(BlobStorageError) {
    let outcome = try walk.outcome(of: blob) { (layout) throws(BlobStorageError) in
      try walk.forEachRow(of: layout, sorts: true) { part, row in
        if let row { body(row) } else { add(part.digest.neededAndMissing) }
      }
    }
    switch outcome {
    case .whole: break
    case .missing: add(blob.neededAndMissing)
    case .unreadable(let error): add(error.message)
    }
  }

  private func add(_ reason: String) {
    if reasons.count < Self.reasonCountMax { reasons.insert(reason) }
  }
}

extension BlobDigest {
  /// The message that the chunk or manifest is missing from the store.
  var neededAndMissing: String { "Chunk or manifest \(self) is needed and missing." }
}

extension Engine {
  /// A key with the versions it has, newest first, and with those that imports have replaced: they go with the key.
  typealias KeyVersions = (key: [UInt8], versions: [StampedVersion], replaced: [StampedVersion])

  /// Reports how many keys have been followed to their chunks, and about how many there are.
  func marking(_ progress: ProgressHandler?) throws(BlobStorageError) -> (Int) -> Void {
    guard let progress else { return { _ in } }
    let total = try catalog.keyCountMax()
    progress(WorkProgress(phase: "marking", totalCount: total))
    return { progress(WorkProgress(phase: "marking", doneCount: $0, totalCount: max($0, total))) }
  }

  /// Calls `body` with every key and its versions, in byte order, internal keys included. Versions that imports have
  /// replaced come with their key, if it has others.
  func forEachKey(_ body: (KeyVersions) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    let replaced = InternalKey.Purpose.replaced
    var pages = KeyPages(catalog, includesInternal: true, countMax: 4_096)
    while let page = try pages.next({
      (key, name, transaction) throws(BlobStorageError) -> (entry: KeyVersions, count: Int)? in
      var entry: KeyVersions = (key, try transaction.versions(of: name), [])
      if entry.versions.isEmpty { return nil }
      if !InternalKey.isInternal(key) {
        entry.replaced = try transaction.versions(ofKey: replaced.key(key))
      } else if key.starts(with: replaced.prefix),
        try transaction.currentVersion(ofKey: Array(key.dropFirst(replaced.prefix.count))) != nil
      {
        entry.versions = []
      }
      return (entry, 1 + entry.versions.count + entry.replaced.count)
    }) {
      for entry in page where !entry.versions.isEmpty { try body(entry) }
    }
  }

  /// The blobs that are held by name. Skips blobs that were never stored, because a process died first.
  func heldBlobs() throws(BlobStorageError) -> [BlobDigest] {
    let digests = try BlobHolds(self).all().map(\.digest)
    return try catalog.read { (transaction) throws(BlobStorageError) in
      var stored: [BlobDigest] = []
      for digest in digests where try transaction.place(ofBlob: digest) != nil { stored.append(digest) }
      return stored
    }
  }
}

extension ReadTransaction {
  /// The versions of a key, newest first.
  func versions(ofKey key: [UInt8]) throws(BlobStorageError) -> [StampedVersion] {
    guard let name = try nameRow(key) else { return [] }
    return try versions(of: name)
  }
}

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
  /// A key with the versions it has, newest first.
  typealias KeyVersions = (key: [UInt8], versions: [StampedVersion])

  /// Reports how many keys have been followed to their chunks, and about how many there are.
  func marking(_ progress: ProgressHandler?) throws(BlobStorageError) -> (Int) -> Void {
    guard let progress else { return { _ in } }
    let total = try catalog.keyCountMax()
    progress(WorkProgress(phase: "marking", totalCount: total))
    return { progress(WorkProgress(phase: "marking", doneCount: $0, totalCount: max($0, total))) }
  }

  /// Calls `body` with every key and its versions, in byte order, internal keys included.
  func forEachKey(_ body: (KeyVersions) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    var pages = KeyPages(catalog, includesInternal: true, countMax: 4_096)
    while let page = try pages.next({ (key, name, transaction) throws(BlobStorageError) in
      let versions = try transaction.versions(of: name)
      return versions.isEmpty ? nil : ((key, versions), versions.count)
    }) {
      for entry in page { try body(entry) }
    }
  }

  /// The blobs that are held by name. Skips blobs that were never stored, because a process died first.
  func heldBlobs() throws(BlobStorageError) -> [BlobDigest] {
    let digests = try holds().map(\.digest)
    return try catalog.read { (transaction) throws(BlobStorageError) in
      var stored: [BlobDigest] = []
      for digest in digests where try transaction.place(ofBlob: digest) != nil { stored.append(digest) }
      return stored
    }
  }
}

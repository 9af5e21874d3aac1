import BlobStorage

/// Follows blobs to the chunks that they need, and remembers those that cannot be followed.
final class NeededChunks {
  private let walk: LiveWalk
  /// Why blobs could not be followed, each reason once.
  private var reasons: Set<String> = []
  private static let reasonCountMax = 100

  init(_ engine: Engine) { walk = LiveWalk(engine.blobs) }

  /// Why blobs could not be followed; only the first reasons.
  var unreadableMessages: [String] { Array(reasons.sorted().prefix(20)) }

  /// Calls `body` with the lists and chunks of a blob, bases included; one that it needs twice may come twice, and what
  /// is missing does not come.
  func forEachChunk(of blob: Digest, _ body: (ChunkRow) -> Void) throws(BlobStorageError) {
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

extension Digest {
  /// Says that the chunk or manifest should be in the store.
  var neededAndMissing: String { "Chunk or manifest \(self) is needed and missing." }
}

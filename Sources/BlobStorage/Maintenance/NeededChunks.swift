/// Follows blobs to the chunks that they need, and remembers those that cannot be followed.
final class NeededChunks {
  private let walk: LiveWalk
  /// What could not be followed.
  private var unreadable: [BlobStorageError] = []
  private static let unreadableCountMax = 100

  init(_ engine: Engine) { walk = LiveWalk(engine.blobs) }

  /// Why blobs could not be followed, each reason once; only the first ones.
  var unreadableMessages: [String] { Array(Set(unreadable.map(\.message)).sorted().prefix(20)) }

  /// Calls `body` with the lists and chunks of a blob, bases included; one that it needs twice may come twice, and what
  /// is missing does not come.
  func forEachChunk(of blob: Digest, _ body: (ChunkRow) -> Void) throws(BlobStorageError) {
    let outcome = try walk.outcome(of: blob) { (layout) throws(BlobStorageError) in
      try walk.forEachRow(of: layout, sorts: true) { _, row in if let row { body(row) } }
    }
    if case .unreadable(let error) = outcome, unreadable.count < Self.unreadableCountMax {
      unreadable.append(error)
    }
  }
}

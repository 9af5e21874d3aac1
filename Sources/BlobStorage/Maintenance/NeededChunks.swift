/// Follows blobs to the chunks that they need: those they are made of, the lists of long ones, and bases.
final class NeededChunks {
  /// Keys are looked up so many versions at a time.
  private static let versionCountOfPage = 4_096
  private static let groupCount = 4_096

  private let engine: Engine
  /// What could not be followed.
  private var unreadable: [BlobStorageError] = []
  private static let unreadableCountMax = 100

  init(_ engine: Engine) { self.engine = engine }

  /// Why blobs could not be followed, each reason once; the first so many.
  var unreadableMessages: [String] { Array(Set(unreadable.map(\.message)).sorted().prefix(20)) }

  /// A key with the versions it has, newest first.
  typealias KeyVersions = (key: [UInt8], versions: [(stamp: Stamp, row: VersionRow)])

  /// Calls `body` with every key, in byte order, a page at a time.
  func forEachKey(_ body: (KeyVersions) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    let algorithm = engine.header.digestAlgorithm
    var last: [UInt8]?
    while true {
      try CancellationFlag.check()
      var page: [KeyVersions] = []
      var count = 0
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachKey(prefix: [], after: last) { (key, name) throws(BlobStorageError) in
          var versions: [(stamp: Stamp, row: VersionRow)] = []
          try transaction.forEachVersion(key: name.key, algorithm: algorithm) { version in
            versions.append((version.stamp, version.row))
            return true
          }
          last = key
          count += versions.count
          if !versions.isEmpty { page.append((key, versions)) }
          return count < Self.versionCountOfPage
        }
      }
      if page.isEmpty { return }
      for entry in page { try body(entry) }
    }
  }

  /// Calls `body` with the chunks of a blob, bases included; one that it needs twice may come twice, and what is
  /// missing does not come.
  func forEachChunk(
    of blob: Digest, _ body: (ChunkRow) -> Void
  ) throws(BlobStorageError) {
    var group: [Digest] = []
    do throws(BlobStorageError) {
      guard let layout = try engine.blobs.layout(blob) else { return }
      if layout.byteCount == 0 { try look([blob], body) }
      var lists: Set<Digest> = []
      try layout.forEachListedChunk(from: engine.chunks) { (list) throws(BlobStorageError) in
        guard lists.insert(list.digest).inserted else { return false }
        group.append(list.digest)
        return true
      } _: { (chunk) throws(BlobStorageError) in
        group.append(chunk.digest)
        if group.count >= Self.groupCount {
          try CancellationFlag.check()
          try look(group, body)
          group.removeAll(keepingCapacity: true)
        }
      }
      try look(group, body)
    } catch {
      guard error.code == .corrupted else { throw error }
      // What came before the list that cannot be read is needed all the same.
      try look(group, body)
      if unreadable.count < Self.unreadableCountMax { unreadable.append(error) }
    }
  }

  /// Calls `body` with a chunk and its base.
  func look(
    _ digests: [Digest], _ body: (ChunkRow) -> Void
  ) throws(BlobStorageError) {
    guard !digests.isEmpty else { return }
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for digest in digests.sorted() {
        guard let row = try transaction.chunkRow(digest) else { continue }
        body(row)
        if let base = row.base, let baseRow = try transaction.chunkRow(base) { body(baseRow) }
      }
    }
  }
}

import Synchronization

/// Finds further copies of a chunk or a manifest in the packs, once the copy that the catalog knows was found damaged.
///
/// The catalog keeps one place of each. Finding other copies scans all packs, which is slow. So one scan looks for
/// copies of everything that the damaged pack lists, and keeps the result for the pack's next damaged record.
package final class OtherCopies: Sendable {
  /// A copy in a pack.
  struct Copy: Sendable {
    var pack: PackName
    var record: PackRecord
    var ordinal: Int
  }

  private struct Identity: Hashable, Sendable {
    var digest: BlobDigest
    var isManifest: Bool
  }

  private struct Found: Sendable {
    var generation: String?
    var epoch: UInt64
    var sought: Set<Identity>
    var copies: [Identity: [Copy]]
  }

  private let catalog: Catalog
  private let packs: PackFiles
  private let found = Mutex<[PackName: Found]>([:])
  /// Limits: damaged packs whose copies are remembered, and records that one scan looks for.
  private static let packCountMax = 4
  private static let soughtCountMax = 100_000

  init(catalog: Catalog, packs: PackFiles) {
    self.catalog = catalog
    self.packs = packs
  }

  /// The copies of a chunk, or of a manifest, that lie elsewhere than at `offset` of `pack`.
  ///
  /// - Complexity: reads the footers of all packs at the first call for a pack.
  func copies(
    of digest: BlobDigest, isManifest: Bool = false, insteadOf pack: PackName, _ offset: Int64
  ) throws(BlobStorageError) -> [Copy] {
    let identity = Identity(digest: digest, isManifest: isManifest)
    let generation = catalog.generation
    let epoch = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.epoch() }
    let known = found.withLock { $0[pack] }
    var result: [Copy]
    if let known, known.generation == generation, known.epoch == epoch, known.sought.contains(identity) {
      result = known.copies[identity] ?? []
    } else {
      let sought = try sought(in: pack, identity)
      let copies = try search(sought)
      found.withLock { found in
        if found.count >= Self.packCountMax, found[pack] == nil { found = [:] }
        found[pack] = Found(generation: generation, epoch: epoch, sought: sought, copies: copies)
      }
      result = copies[identity] ?? []
    }
    result.removeAll { $0.pack == pack && $0.record.offset == offset }
    return result
  }

  /// Returns a frame's member at that offset, from the pack's footer or the record itself; nil if neither can be read.
  ///
  /// - Complexity: scans the pack.
  func footerRecord(
    _ digest: BlobDigest, in pack: PackName, at offset: Int64
  ) throws(BlobStorageError) -> PackRecord? {
    var found: PackRecord?
    try scan(pack) { (record, _) in
      guard record.offset == offset, case .chunk(let chunk) = record.content, chunk.digest == digest,
        record.member != nil
      else { return }
      found = record
    }
    return found
  }

  /// What to look for: the requested identity, and all that the pack lists, up to a limit.
  private func sought(in pack: PackName, _ identity: Identity) throws(BlobStorageError) -> Set<Identity> {
    var sought: Set<Identity> = [identity]
    try scan(pack) { (record, _) in
      guard sought.count < Self.soughtCountMax, let identity = Self.identity(record) else { return }
      sought.insert(identity)
    }
    return sought
  }

  private func search(_ sought: Set<Identity>) throws(BlobStorageError) -> [Identity: [Copy]] {
    let names = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packRows().filter { $0.row.state != .retired }.map(\.row.name)
    }
    var copies: [Identity: [Copy]] = [:]
    for name in names {
      try CancellationFlag.check()
      try scan(name) { (record, ordinal) in
        guard let identity = Self.identity(record), sought.contains(identity) else { return }
        copies[identity, default: []].append(Copy(pack: name, record: record, ordinal: ordinal))
      }
    }
    return copies
  }

  /// Calls `body` with the records of a pack. Skips a pack that cannot be read.
  private func scan(
    _ name: PackName, _ body: (_ record: PackRecord, _ ordinal: Int) -> Void
  ) throws(BlobStorageError) {
    do throws(BlobStorageError) {
      var ordinal = 0
      try packs.scan(name) { record in
        body(record, ordinal)
        ordinal += 1
      }
    } catch {
      guard error.code == .corrupted || error.code == .packGone else { throw error }
    }
  }

  private static func identity(_ record: PackRecord) -> Identity? {
    switch record.content {
    case .chunk(let chunk): Identity(digest: chunk.digest, isManifest: false)
    case .manifest(let manifest): Identity(digest: manifest.digest, isManifest: true)
    case .ref, .drop, .skipped: nil
    }
  }
}

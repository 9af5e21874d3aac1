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

  /// The members of a frame that its pack lists.
  private struct Members: Sendable {
    /// A repair may give packs other files, and makes the catalog anew.
    var generation: String?
    var records: [BlobDigest: PackRecord] = [:]
  }

  private let catalog: Catalog
  private let packs: PackFiles
  private let found = Mutex<[PackName: Found]>([:])
  private let members = Mutex<[FrameCache.Key: Members]>([:])
  /// Damaged frames whose members are remembered.
  private static let frameCountMax = 64
  /// Damaged packs whose copies are remembered.
  private static let packCountMax = 4
  /// Copies of one record that are remembered. A hostile pack can have millions.
  private static let copyCountMax = 1_000
  /// Records of a damaged pack that are looked for at once.
  private let soughtCountMax: Int
  /// Copies that are remembered at once. A hostile store can have more than memory holds.
  private let totalCountMax: Int

  package init(
    catalog: Catalog, packs: PackFiles, soughtCountMax: Int = 100_000, totalCountMax: Int = 1 << 20
  ) {
    self.catalog = catalog
    self.packs = packs
    self.soughtCountMax = soughtCountMax
    self.totalCountMax = totalCountMax
  }

  /// The copies of a chunk, or of a manifest, that lie elsewhere than at `offset` of `pack`.
  ///
  /// - Complexity: reads the footers of all packs, unless the result for this pack is kept and the epoch is the same.
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
      var sought = try sought(in: pack, from: offset, identity)
      var copies = try search(sought, countMax: totalCountMax)
      if copies == nil {
        sought = [identity]
        copies = try search(sought, countMax: .max)
      }
      found.withLock { [sought, copies] found in
        if found.count >= Self.packCountMax, found[pack] == nil { found = [:] }
        found[pack] = Found(generation: generation, epoch: epoch, sought: sought, copies: copies ?? [:])
      }
      result = copies?[identity] ?? []
    }
    result.removeAll { $0.pack == pack && $0.record.offset == offset }
    return result
  }

  /// Returns a frame's member, from the pack's footer or the record itself; nil if neither can be read.
  ///
  /// - Complexity: scans the pack, and keeps the result for the frame's other members.
  func footerRecord(
    _ digest: BlobDigest, of frame: FrameCache.Key
  ) throws(BlobStorageError) -> PackRecord? {
    var found = Members(generation: catalog.generation)
    if let known = members.withLock({ $0[frame] }), known.generation == found.generation {
      return known.records[digest]
    }
    let outcome = try scan(frame.pack) { (record, _) in
      if record.frameOffset == frame.offset, let chunk = record.chunk { found.records[chunk.digest] = record }
    }
    // A footer that could not be read, or is not there yet, may be read the next time.
    if let outcome, outcome.isSealed, outcome.gaps.isEmpty {
      members.withLock { [found] members in
        if members.count >= Self.frameCountMax { members = [:] }
        members[frame] = found
      }
    }
    return found.records[digest]
  }

  /// The records to look for: the wanted one, then those that the pack lists from `offset` on, then earlier ones, up
  /// to a limit. For a lost pack, the records that the catalog knows to lie in it.
  private func sought(
    in pack: PackName, from offset: Int64, _ identity: Identity
  ) throws(BlobStorageError) -> Set<Identity> {
    var sought: Set<Identity> = [identity]
    var before: [Identity] = []
    try scan(pack) { (record, _) in
      guard let identity = Self.identity(record) else { return }
      if record.offset < offset {
        if before.count == 2 * soughtCountMax { before.removeFirst(soughtCountMax) }
        before.append(identity)
      } else if sought.count < soughtCountMax {
        sought.insert(identity)
      }
    }
    // Of a lost pack the catalog knows what it had.
    if sought.count == 1, before.isEmpty { sought.formUnion(try known(in: pack)) }
    for identity in before.reversed() {
      if sought.count >= soughtCountMax { break }
      sought.insert(identity)
    }
    return sought
  }

  /// What the catalog knows to lie in a pack, the first so many.
  private func known(in pack: PackName) throws(BlobStorageError) -> Set<Identity> {
    guard let number = try catalog.read({ (view) throws(BlobStorageError) in try view.packNumber(pack) })
    else {
      return []
    }
    var known: Set<Identity> = []
    try catalog.forEachChunk { (digest, row, _) in
      if row.place.pack == number { known.insert(Identity(digest: digest, isManifest: false)) }
      return known.count < soughtCountMax
    }
    try catalog.forEachManifestPage { (page) in
      for (digest, row) in page where row.place.pack == number && known.count < 2 * soughtCountMax {
        known.insert(Identity(digest: digest, isManifest: true))
      }
    }
    return known
  }

  /// The copies of these records in all packs; nil if there are more than `countMax`.
  private func search(
    _ sought: Set<Identity>, countMax: Int
  ) throws(BlobStorageError) -> [Identity: [Copy]]? {
    let names = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packRows().filter { $0.row.state != .retired }.map(\.row.name)
    }
    var copies: [Identity: [Copy]] = [:]
    var count = 0
    for name in names {
      try CancellationFlag.check()
      try scan(name) { (record, ordinal) in
        guard count <= countMax, let identity = Self.identity(record), sought.contains(identity),
          copies[identity]?.count ?? 0 < Self.copyCountMax
        else { return }
        copies[identity, default: []].append(Copy(pack: name, record: record, ordinal: ordinal))
        count += 1
      }
      if count > countMax { return nil }
    }
    return copies
  }

  /// Calls `body` with the records of a pack. Skips a pack that cannot be read.
  @discardableResult
  private func scan(
    _ name: PackName, _ body: (_ record: PackRecord, _ ordinal: Int) -> Void
  ) throws(BlobStorageError) -> PackScanner.Outcome? {
    do throws(BlobStorageError) {
      var ordinal = 0
      return try packs.scan(name) { record in
        body(record, ordinal)
        ordinal += 1
      }
    } catch {
      guard error.code == .corrupted || error.code == .packGone else { throw error }
      return nil
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

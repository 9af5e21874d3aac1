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

  /// Members of frames that a damaged pack lists, by their offsets.
  private struct Members: Sendable {
    var pack: PackName
    /// A repair may give packs other files, and makes the catalog anew.
    var generation: String?
    /// The range of offsets whose members are all among the records.
    var range: Range<Int64>
    var records: [Int64: PackRecord]
  }

  private let catalog: Catalog
  private let packs: PackFiles
  private let found = Mutex<[PackName: Found]>([:])
  /// Those of the pack that was asked about last.
  private let members = Mutex<Members?>(nil)
  /// Damaged packs whose copies are remembered.
  private static let packCountMax = 4
  /// Copies of one record that are remembered. A hostile pack can have millions.
  private static let copyCountMax = 1_000
  /// Records of a damaged pack that are looked for at once, and members that are remembered before and behind one.
  private let soughtCountMax: Int
  private let memberCountMax: Int

  package init(
    catalog: Catalog, packs: PackFiles, soughtCountMax: Int = 100_000, memberCountMax: Int = 16_384
  ) {
    self.catalog = catalog
    self.packs = packs
    self.soughtCountMax = soughtCountMax
    self.memberCountMax = memberCountMax
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
      let sought = try sought(in: pack, from: offset, identity)
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
  /// - Complexity: scans the pack, and keeps the result for the next members.
  func footerRecord(
    _ digest: BlobDigest, in pack: PackName, at offset: Int64
  ) throws(BlobStorageError) -> PackRecord? {
    let generation = catalog.generation
    var known = members.withLock { $0 }
    if known?.pack != pack || known?.generation != generation || known?.range.contains(offset) != true {
      let (found, isWhole) = try listedMembers(of: pack, around: offset)
      // A footer that could not be read, or is not there yet, may be read the next time.
      members.withLock { $0 = isWhole ? found : nil }
      known = found
    }
    guard let record = known?.records[offset], record.chunk?.digest == digest else { return nil }
    return record
  }

  private func listedMembers(
    of pack: PackName, around offset: Int64
  ) throws(BlobStorageError) -> (Members, isWhole: Bool) {
    let generation = catalog.generation
    var records: [PackRecord] = []
    var (start, end) = (Int64(0), Int64.max)
    var countBehind = 0
    let outcome = try scan(pack) { (record, _) in
      guard record.member != nil else { return }
      if record.offset < offset {
        if records.count == 2 * memberCountMax {
          records.removeFirst(memberCountMax)
          start = records[0].offset
        }
      } else {
        countBehind += 1
        guard countBehind <= memberCountMax else {
          end = min(end, record.offset)
          return
        }
      }
      records.append(record)
    }
    let members = Members(
      pack: pack, generation: generation, range: start..<end,
      records: Dictionary(records.map { ($0.offset, $0) }, uniquingKeysWith: { $1 }))
    return (members, outcome.map { $0.isSealed && $0.gaps.isEmpty } ?? false)
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

  private func search(_ sought: Set<Identity>) throws(BlobStorageError) -> [Identity: [Copy]] {
    let names = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packRows().filter { $0.row.state != .retired }.map(\.row.name)
    }
    var copies: [Identity: [Copy]] = [:]
    for name in names {
      try CancellationFlag.check()
      try scan(name) { (record, ordinal) in
        guard let identity = Self.identity(record), sought.contains(identity),
          copies[identity]?.count ?? 0 < Self.copyCountMax
        else { return }
        copies[identity, default: []].append(Copy(pack: name, record: record, ordinal: ordinal))
      }
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

/// What must be kept of a pack when it is removed, found from its records and the catalog, without its payloads.
///
/// A tombstone is kept while any other pack has a copy of a ref that it hides (H4). A drop keeps only such versions.
/// Copies in the same pack go with it in one step.
struct PackContent: Sendable {
  /// A record for the new pack.
  enum Kept: Sendable {
    /// Copied with its payload.
    case copy(PackRecord)
    /// A ref or a drop, written again.
    case written(CommitRecord.Entry)
  }

  private(set) var keptCount = 0
  /// Bytes of the kept records in this pack.
  private(set) var keptByteCount: Int64 = 0
  /// Bytes of the kept records in the new pack, once they are copied.
  var copiedByteCount: Int64?
  /// The places of kept chunks that are blobs with versions.
  private(set) var keptBlobs = PlaceSet()
  private(set) var deletedChunkCount = 0
  private(set) var recordsByteCount: Int64 = 0
  /// Why the other copy of a live record cannot be read. Removing the pack could remove the only good copy.
  private(set) var damagedCopy: BlobStorageError?
  /// Live chunks and manifests of the current group that the catalog has in another pack.
  private var staying: [PackRecord.Content] = []
  private let weaknesses: Weaknesses

  /// Records that are looked up together, at most.
  private static let groupCount = 4_096

  /// Examines the pack `number`.
  ///
  /// - Parameters:
  ///   - gone: the refs of hidden versions in packs that are removed before this one.
  ///   - checksCopies: whether to read the copies in other packs of what is live and also lies in this one.
  ///   - body: called with each record of the new pack, in order, outside of transactions.
  /// - Throws: `corrupted` if a record cannot be read, `unsupportedFormat` for one of a later build. The pack then
  ///   stays.
  /// - Complexity: memory for a few thousand records, one bit for each of the others, and 40 bytes for each hidden
  ///   version.
  init(
    _ blobs: BlobSource, number: UInt32, row: PackRow, marks: Marks, gone: HiddenCopies,
    checksCopies: Bool, weaknesses: Weaknesses, _ body: (Kept) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    self.weaknesses = weaknesses
    let going = [try Self.hiddenCopies(row, blobs), gone]
    var group: [PackRecord] = []
    var groupByteCount = 0
    var ordinal = 0
    func decideGroup() throws(BlobStorageError) {
      let kept = try blobs.catalog.read { (transaction) throws(BlobStorageError) in
        var kept: [Kept] = []
        for record in group {
          let place = Place(pack: number, offset: record.offset, ordinal: ordinal)
          ordinal += 1
          if let record = try decide(record, place, transaction, marks, going) { kept.append(record) }
        }
        return kept
      }
      group.removeAll(keepingCapacity: true)
      groupByteCount = 0
      if checksCopies, damagedCopy == nil { damagedCopy = try Self.damage(of: staying, blobs) }
      staying.removeAll(keepingCapacity: true)
      for record in kept { try body(record) }
    }
    let outcome = try blobs.packs.scan(row.name) { (record) throws(BlobStorageError) in
      recordsByteCount += Int64(record.byteCount)
      group.append(record)
      groupByteCount += record.memoryByteCount
      if group.count == Self.groupCount || groupByteCount >= PackRecord.memoryByteCountOfGroup {
        try decideGroup()
      }
    }
    try Self.checkWhole(outcome, row)
    try decideGroup()
  }

  /// The first error in reading these copies; nil if all can be read.
  private static func damage(
    of copies: [PackRecord.Content], _ blobs: BlobSource
  ) throws(BlobStorageError) -> BlobStorageError? {
    var frame: ChunkSource.FramePlace?
    for copy in copies {
      try CancellationFlag.check()
      do throws(BlobStorageError) {
        switch copy {
        case .chunk(let chunk): frame = try blobs.chunks.checkKnownCopy(chunk.digest, after: frame)
        case .manifest(let manifest): try blobs.checkKnownCopy(manifest.digest)
        case .ref, .drop, .skipped: break
        }
      } catch {
        guard error.code == .corrupted else { throw error }
        return error
      }
    }
    return nil
  }

  /// How many refs the pack has of each version that something hides.
  static func hiddenCopies(_ row: PackRow, _ blobs: BlobSource) throws(BlobStorageError) -> HiddenCopies {
    var copies: HiddenCopies = [:]
    var refs: [RefRecord] = []
    func count() throws(BlobStorageError) {
      try blobs.catalog.read { (transaction) throws(BlobStorageError) in
        for ref in refs {
          guard let name = try transaction.nameRow(ref.key),
            try transaction.maskRow(of: name, ref.version) != nil
          else { continue }
          copies[Name(ref.key, ref.version), default: 0] += 1
        }
      }
      refs.removeAll(keepingCapacity: true)
    }
    let outcome = try blobs.packs.scan(row.name) { (record) throws(BlobStorageError) in
      guard case .ref(let ref) = record.content else { return }
      refs.append(ref)
      if refs.count == groupCount { try count() }
    }
    try count()
    try checkWhole(outcome, row)
    return copies
  }

  /// - Parameter outcome: of a scan of the pack.
  /// - Throws: `corrupted` when a record could not be read.
  static func checkWhole(_ outcome: PackScanner.Outcome?, _ row: PackRow) throws(BlobStorageError) {
    guard let outcome else { throw .missing(row.name) }
    // An older copy of the file was put back, or its end is lost: what the rest was cannot be seen from here.
    let end = outcome.endOffset < row.appliedByteCount ? outcome.endOffset : nil
    guard let offset = outcome.gaps.first?.lowerBound ?? end else { return }
    throw BlobStorageError(
      .corrupted, "Pack \(row.name) is damaged at \(offset).", pack: row.name.description, offset: offset)
  }

  typealias HiddenCopies = [Name: Int]

  /// A version, by its stamp and the hash of its key. In an honest store the stamp alone identifies a version.
  struct Name: Hashable {
    private let key: Int
    private let version: Stamp

    init(_ key: [UInt8], _ version: Stamp) {
      self.key = key.hashValue
      self.version = version
    }
  }

  /// Decides what becomes of a record. Returns nil if it goes.
  private mutating func decide(
    _ record: PackRecord, _ place: Place, _ transaction: ReadTransaction, _ marks: Marks,
    _ going: [HiddenCopies]
  ) throws(BlobStorageError) -> Kept? {
    switch record.content {
    case .chunk, .manifest:
      let known = try transaction.place(of: record.content)
      guard known == place, marks.contains(place) else {
        if record.chunk != nil { deletedChunkCount += 1 }
        if let known, known != place, marks.contains(known) { staying.append(record.content) }
        return nil
      }
      if let chunk = record.chunk, try transaction.versionCount(of: chunk.digest) > 0 {
        keptBlobs.insert(place)
      }
      return keep(.copy(record), record.byteCount)
    case .ref(var ref):
      let isReplacedNeeded = try hasCopiesElsewhere(ref.key, ref.replaced, transaction, going)
      if try transaction.needs(ref, at: place) {
        if !isReplacedNeeded { ref.replaced = .none }
        return keep(.written(.ref(ref)), record.byteCount)
      }
      guard isReplacedNeeded else { return nil }
      let drop = DropRecord(key: ref.key, stamp: ref.version, versions: [ref.replaced])
      return keep(.written(.drop(drop)), min(drop.recordByteCount, record.byteCount))
    case .drop(var drop):
      var needed: [Stamp] = []
      for version in drop.versions where try hasCopiesElsewhere(drop.key, version, transaction, going) {
        needed.append(version)
      }
      guard !needed.isEmpty else { return nil }
      drop.versions = needed
      return keep(.written(.drop(drop)), min(drop.recordByteCount, record.byteCount))
    case .skipped:
      throw BlobStorageError(
        .unsupportedFormat, "A pack has records of a later build: collect garbage with that build.")
    }
  }

  /// Whether a pack that stays has a ref of the version, which would come back if nothing hid it.
  private func hasCopiesElsewhere(
    _ key: [UInt8], _ version: Stamp, _ transaction: ReadTransaction, _ going: [HiddenCopies]
  ) throws(BlobStorageError) -> Bool {
    if weaknesses.contains(.forgetsDropsEarly) { return false }
    guard let name = try transaction.nameRow(key), let mask = try transaction.maskRow(of: name, version)
    else {
      return false
    }
    return mask.copyCount > going.reduce(0) { $0 + ($1[Name(key, version)] ?? 0) }
  }

  private mutating func keep(_ record: Kept, _ byteCount: Int) -> Kept {
    keptCount += 1
    keptByteCount += Int64(byteCount)
    return record
  }
}

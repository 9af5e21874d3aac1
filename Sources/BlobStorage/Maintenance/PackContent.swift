/// What must be kept of a pack when it goes: worked out from its records and the catalog, without its payloads.
///
/// A record that names versions as gone is kept, or its names are, as long as a copy of such a version's ref is in
/// any other pack (H4). Copies in the same pack go with it in one step.
struct PackContent: Sendable {
  /// A record of the new pack.
  enum Kept: Sendable {
    /// Copied with its payload.
    case copy(PackRecord)
    /// The same, and encoded with a dictionary if that is worth it.
    case small(PackRecord)
    /// Written anew, without payload or with one of its own.
    case ref(RefRecord)
    case drop(DropRecord)
  }

  private(set) var kept: [Kept] = []
  /// Chunks among them that are blobs with versions.
  private(set) var keptBlobs: [Digest] = []
  private(set) var keptByteCount: Int64 = 0
  private(set) var deletedChunkCount = 0
  /// Whether a dictionary may change what is kept.
  private(set) var hasSmall = false
  private(set) var recordsByteCount: Int64 = 0
  /// Chunk and manifest records that are marked; they must not point here any more when the pack is retired.
  private(set) var records: [PackRecord] = []
  /// Live chunks and manifests of which the pack has a copy that the catalog does not know: another stays.
  private(set) var staying: [(digest: Digest, isManifest: Bool)] = []
  private let weaknesses: Weaknesses

  /// Looks at the pack `number`.
  ///
  /// - Parameter small: which chunks may be encoded with a dictionary.
  /// - Throws: `corrupted` when a record cannot be read: then the pack is left alone.
  init(
    _ engine: Engine, number: UInt32, row: PackRow, marks: Marks, small: SmallChunks? = nil
  ) throws(BlobStorageError) {
    guard let file = try engine.backend.openPack(row.name) else {
      throw BlobStorageError(.corrupted, "Pack \(row.name) is not there.", pack: row.name.description)
    }
    defer { file.close() }
    var found: [PackRecord] = []
    let outcome = try PackScanner(file: file, name: row.name, codecs: engine.codecs, store: engine.header).scan { record in
      found.append(record)
    }
    guard outcome.gaps.isEmpty else {
      throw BlobStorageError(
        .corrupted, "Pack \(row.name) is damaged at \(outcome.gaps[0].lowerBound).",
        pack: row.name.description,
        offset: outcome.gaps[0].lowerBound)
    }
    records = found
    weaknesses = engine.weaknesses
    recordsByteCount = found.reduce(0) { $0 + Int64($1.byteCount) }
    var copiesHere: [Name: Int] = [:]
    for case .ref(let ref) in found.map(\.content) { copiesHere[Name(ref.key, ref.version), default: 0] += 1 }
    let copies = copiesHere
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for (ordinal, record) in found.enumerated() {
        try decide(
          record, Place(pack: number, offset: record.offset, ordinal: ordinal), transaction, marks, copies,
          small)
      }
    }
  }

  private struct Name: Hashable {
    let key: [UInt8]
    let version: Stamp

    init(_ key: [UInt8], _ version: Stamp) {
      self.key = key
      self.version = version
    }
  }

  private mutating func decide(
    _ record: PackRecord, _ place: Place, _ transaction: Transaction, _ marks: Marks,
    _ copiesHere: [Name: Int], _ small: SmallChunks?
  ) throws(BlobStorageError) {
    switch record.content {
    case .chunk(let chunk):
      let row = try transaction.chunkRow(chunk.digest)
      if row?.place == place, marks.contains(place) {
        let isSmall = small?.contains(place) == true
        hasSmall = hasSmall || isSmall
        keep(isSmall ? .small(record) : .copy(record), record.byteCount)
        if try transaction.versionCount(of: chunk.digest) > 0 { keptBlobs.append(chunk.digest) }
      } else {
        deletedChunkCount += 1
        if let row, row.place != place, marks.contains(row.place) { staying.append((chunk.digest, false)) }
      }
    case .manifest(let manifest):
      let row = try transaction.manifestRow(manifest.digest)
      if row?.place == place, marks.contains(place) {
        keep(.copy(record), record.byteCount)
      } else if let row, row.place != place, marks.contains(row.place) {
        staying.append((manifest.digest, true))
      }
    case .ref(var ref):
      var row: VersionRow?
      if let name = try transaction.nameRow(ref.key) {
        row = try transaction.versionRow(key: name.key, ref.version, algorithm: ref.digest.algorithm)
      }
      let isReplacedNeeded = try hasCopiesElsewhere(ref.key, ref.replaced, transaction, copiesHere)
      if row?.place == place {
        if !isReplacedNeeded { ref.replaced = .none }
        keep(.ref(ref), record.byteCount)
      } else if isReplacedNeeded {
        let drop = DropRecord(key: ref.key, stamp: ref.version, versions: [ref.replaced])
        keep(.drop(drop), Self.byteCount(drop))
      }
    case .drop(var drop):
      var needed: [Stamp] = []
      for version in drop.versions where try hasCopiesElsewhere(drop.key, version, transaction, copiesHere) {
        needed.append(version)
      }
      guard !needed.isEmpty else { return }
      drop.versions = needed
      keep(.drop(drop), Self.byteCount(drop))
    case .skipped:
      throw BlobStorageError(
        .unsupportedFormat, "A pack has records of a later build: use that to collect garbage.")
    }
  }

  /// Whether a ref of the version is in another pack, so that the version would come back if nothing hid it.
  private func hasCopiesElsewhere(
    _ key: [UInt8], _ version: Stamp, _ transaction: Transaction, _ copiesHere: [Name: Int]
  ) throws(BlobStorageError) -> Bool {
    if weaknesses.contains(.forgetsDropsEarly) { return false }
    guard let name = try transaction.nameRow(key), let mask = try transaction.maskRow(key: name.key, version)
    else {
      return false
    }
    return mask.copyCount > copiesHere[Name(key, version)] ?? 0
  }

  private mutating func keep(_ record: Kept, _ byteCount: Int) {
    kept.append(record)
    keptByteCount += Int64(byteCount)
  }

  private static func byteCount(_ drop: DropRecord) -> Int {
    RecordHeader.byteCount + drop.encodedMeta().count + drop.versions.count * Stamp.byteCount + 4
  }
}

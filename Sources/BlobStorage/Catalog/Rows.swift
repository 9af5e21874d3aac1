/// A value of the catalog's tables, as bytes of known length.
protocol TableValue {
  /// Bytes of the value.
  var encodedByteCount: Int { get }

  /// Puts the value's bytes.
  func encode(into filler: inout ByteFiller)
}

/// Where a record lies: its pack's number in this catalog, its offset, and its ordinal in the pack.
package struct Place: Hashable, Sendable {
  package var pack: UInt32
  package var offset: Int64
  package var ordinal: Int

  package init(pack: UInt32, offset: Int64, ordinal: Int) {
    self.pack = pack
    self.offset = offset
    self.ordinal = ordinal
  }
}

/// What the catalog knows of a pack.
package struct PackRow: Hashable, Sendable, TableValue {
  /// What a pack is going through. Only `live` packs may be deduplicated onto.
  package enum State: UInt8, Sendable {
    case live = 0
    /// gc is about to take it away: what lies in it counts as a miss for writers, and is still read.
    case condemned = 1
    /// What was live in it lies elsewhere; its file may be gone already.
    case retired = 2
  }

  package var name: PackName
  package var created: UInt64
  package var state: State
  package var isSealed: Bool
  /// A part of it could not be read: gc removes nothing while such a pack is there.
  package var isDamaged: Bool
  /// Its writer could not sync it: beyond `durableByteCount` it is not to be trusted.
  package var isPoisoned: Bool
  /// Its file is not in the store, and it should be: the catalog keeps what it knows of it.
  package var isLost: Bool
  /// Records are missing here that neither copy in the pack has: refs and drops of unknown keys may be among them.
  package var hasLostRecords: Bool
  /// Records up to here are in the catalog.
  package var appliedByteCount: Int64
  package var recordCount: Int
  /// Records up to here are on the medium, as far as is known here.
  package var durableByteCount: Int64
  /// Records up to here belong to durable changes: a sync follows the commit before its call returns.
  package var promisedByteCount: Int64

  package init(name: PackName, created: UInt64) {
    self.name = name
    self.created = created
    state = .live
    isSealed = false
    isDamaged = false
    isPoisoned = false
    isLost = false
    hasLostRecords = false
    appliedByteCount = Int64(PackHeader.byteCount)
    recordCount = 0
    durableByteCount = 0
    promisedByteCount = 0
  }

  var encodedByteCount: Int { 50 }

  func encode(into filler: inout ByteFiller) {
    filler.integer(name.writer)
    filler.integer(name.sequence)
    filler.integer(created)
    filler.integer(state.rawValue)
    var flags: UInt8 = (isSealed ? 1 : 0) | (isDamaged ? 2 : 0) | (isPoisoned ? 4 : 0)
    flags |= (isLost ? 8 : 0) | (hasLostRecords ? 16 : 0)
    filler.integer(flags)
    filler.integer(appliedByteCount)
    filler.integer(UInt32(recordCount))
    filler.integer(durableByteCount)
    filler.integer(promisedByteCount)
  }

  init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    let writer: UInt64 = try reader.integer()
    name = PackName(writer: writer, sequence: try reader.integer())
    created = try reader.integer()
    guard let state = State(rawValue: try reader.integer()) else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a pack in no known state.")
    }
    self.state = state
    let flags: UInt8 = try reader.integer()
    isSealed = flags & 1 != 0
    isDamaged = flags & 2 != 0
    isPoisoned = flags & 4 != 0
    isLost = flags & 8 != 0
    hasLostRecords = flags & 16 != 0
    appliedByteCount = try reader.integer()
    recordCount = Int(try reader.integer(UInt32.self))
    durableByteCount = try reader.integer()
    promisedByteCount = try reader.integer()
  }

  /// Of two copies of a record, the one in the younger pack counts.
  func isYounger(than other: PackRow) -> Bool {
    created != other.created ? created > other.created : name > other.name
  }
}

/// Where a chunk lies and what it takes to decode it. 19 bytes, 51 with a base.
package struct ChunkRow: Hashable, Sendable, TableValue {
  package var place: Place
  package var plainByteCount: Int
  package var storedByteCount: Int
  package var codecNumber: UInt8
  package var baseKind: ChunkRecord.BaseKind
  package var base: Digest?
  /// A read found it damaged: writers count it as a miss, so that the same bytes heal it.
  package var isSuspect: Bool
  /// Its record has features in its meta.
  private let hasFeatures: Bool

  package init(place: Place, record: ChunkRecord, storedByteCount: Int) {
    self.place = place
    hasFeatures = record.features != nil
    plainByteCount = record.plainByteCount
    self.storedByteCount = storedByteCount
    codecNumber = record.codecNumber
    baseKind = record.baseKind
    base = record.base
    isSuspect = false
  }

  /// Where the payload begins in the pack.
  package var payloadOffset: Int64 {
    place.offset + Int64(RecordHeader.byteCount + metaByteCount)
  }

  /// Bytes of the whole record.
  package var recordByteCount: Int {
    RecordHeader.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: storedByteCount)
  }

  private var metaByteCount: Int { ChunkRecord.metaByteCount(hasBase: base != nil, hasFeatures: hasFeatures) }

  var encodedByteCount: Int { base == nil ? 19 : 19 + Digest.byteCount }

  func encode(into filler: inout ByteFiller) {
    filler.integer(place.pack)
    filler.integer(UInt32(place.offset))
    filler.integer(
      UInt64(place.ordinal) | UInt64(storedByteCount) << 24 | UInt64(plainByteCount & 0xffff) << 48)
    filler.integer(UInt8(plainByteCount >> 16))
    filler.integer(codecNumber)
    filler.integer(baseKind.rawValue | (hasFeatures ? 64 : 0) | (isSuspect ? 128 : 0))
    base?.withUnsafeBytes { filler.raw($0) }
  }

  init(_ bytes: UnsafeRawBufferPointer, algorithm: Digest.Algorithm) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    let pack: UInt32 = try reader.integer()
    let offset = Int64(try reader.integer(UInt32.self))
    let packed: UInt64 = try reader.integer()
    place = Place(pack: pack, offset: offset, ordinal: Int(packed & 0xff_ffff))
    storedByteCount = Int(packed >> 24 & 0xff_ffff)
    plainByteCount = Int(packed >> 48) | Int(try reader.integer(UInt8.self)) << 16
    codecNumber = try reader.integer()
    let flags: UInt8 = try reader.integer()
    isSuspect = flags & 128 != 0
    hasFeatures = flags & 64 != 0
    guard let kind = ChunkRecord.BaseKind(rawValue: flags & 63) else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a chunk with a base of no known kind.")
    }
    baseKind = kind
    base = kind == .none ? nil : Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
  }
}

/// Where a manifest lies and how large its blob is.
package struct ManifestRow: Hashable, Sendable, TableValue {
  package var place: Place
  package var byteCount: Int64
  package var chunkCount: Int64
  package var depth: UInt8
  package var listedCount: Int

  package init(place: Place, record: ManifestRecord) {
    self.place = place
    byteCount = record.byteCount
    chunkCount = record.chunkCount
    depth = record.depth
    listedCount = record.listedCount
  }

  /// Its record.
  package func packRecord(_ digest: Digest) -> PackRecord {
    let manifest = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: chunkCount, depth: depth, listedCount: listedCount)
    return PackRecord(
      content: .manifest(manifest), offset: place.offset, metaByteCount: ManifestRecord.metaByteCount,
      payloadByteCount: payloadByteCount)
  }

  /// Where the payload begins in the pack.
  package var payloadOffset: Int64 {
    place.offset + Int64(RecordHeader.byteCount + ManifestRecord.metaByteCount)
  }
  package var payloadByteCount: Int {
    listedCount * (depth == 0 ? ChunkEntry.byteCount : ListEntry.byteCount)
  }
  /// Bytes of the whole record.
  package var recordByteCount: Int {
    RecordHeader.recordByteCount(
      metaByteCount: ManifestRecord.metaByteCount, payloadByteCount: payloadByteCount)
  }

  var encodedByteCount: Int { 33 }

  func encode(into filler: inout ByteFiller) {
    filler.integer(place.pack)
    filler.integer(UInt32(place.offset))
    filler.integer(UInt32(place.ordinal))
    filler.integer(UInt32(listedCount))
    filler.integer(depth)
    filler.integer(byteCount)
    filler.integer(chunkCount)
  }

  init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    let pack: UInt32 = try reader.integer()
    let offset = Int64(try reader.integer(UInt32.self))
    place = Place(pack: pack, offset: offset, ordinal: Int(try reader.integer(UInt32.self)))
    listedCount = Int(try reader.integer(UInt32.self))
    depth = try reader.integer()
    byteCount = try reader.integer()
    chunkCount = try reader.integer()
    guard listedCount <= Limits.manifestListCountMax else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a manifest of an impossible length.")
    }
  }
}

/// A version that can be seen.
package struct VersionRow: Hashable, Sendable, TableValue {
  package var digest: Digest
  package var byteCount: Int64
  package var created: UInt64
  /// Where its ref record lies.
  package var place: Place
  /// How many copies of its ref record there are in packs.
  package var copyCount: Int
  package var metadata: [UInt8]

  package init(place: Place, record: RefRecord) {
    digest = record.digest
    byteCount = record.byteCount
    created = record.created
    self.place = place
    copyCount = 1
    metadata = record.metadata
  }

  var encodedByteCount: Int { Digest.byteCount + 32 + metadata.count }

  func encode(into filler: inout ByteFiller) {
    digest.withUnsafeBytes { filler.raw($0) }
    filler.integer(byteCount)
    filler.integer(created)
    filler.integer(place.pack)
    filler.integer(UInt32(place.offset))
    filler.integer(UInt32(place.ordinal))
    filler.integer(UInt32(copyCount))
    filler.raw(metadata)
  }

  init(_ bytes: UnsafeRawBufferPointer, algorithm: Digest.Algorithm) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    digest = Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
    byteCount = try reader.integer()
    created = try reader.integer()
    let pack: UInt32 = try reader.integer()
    let offset = Int64(try reader.integer(UInt32.self))
    place = Place(pack: pack, offset: offset, ordinal: Int(try reader.integer(UInt32.self)))
    copyCount = Int(try reader.integer(UInt32.self))
    metadata = Array(try reader.bytes(reader.remainingByteCount))
  }
}

/// A version that something hides: how many copies of its ref there are, and how many records name it as gone.
///
/// It is forgotten when both are zero. A record that names it may be forgotten only when no copy is left.
package struct MaskRow: Hashable, Sendable, TableValue {
  package var copyCount: Int
  package var maskerCount: Int

  var encodedByteCount: Int { 8 }

  func encode(into filler: inout ByteFiller) {
    filler.integer(UInt32(copyCount))
    filler.integer(UInt32(maskerCount))
  }

  init(copyCount: Int, maskerCount: Int) {
    self.copyCount = copyCount
    self.maskerCount = maskerCount
  }

  init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    copyCount = Int(try reader.integer(UInt32.self))
    maskerCount = Int(try reader.integer(UInt32.self))
  }
}

/// What hangs on a key, or on the first part of a long one.
package struct NameRow: Hashable, Sendable, TableValue {
  /// The key's number in this catalog, 0 when only longer keys begin here.
  package var key: UInt64
  /// The number under which the rest of longer keys is found, 0 when there are none.
  package var child: UInt64
  /// How many versions can be seen, and how many are masked.
  package var versionCount: Int
  package var maskCount: Int

  init() {
    key = 0
    child = 0
    versionCount = 0
    maskCount = 0
  }

  var encodedByteCount: Int { 24 }

  func encode(into filler: inout ByteFiller) {
    filler.integer(key)
    filler.integer(child)
    filler.integer(UInt32(versionCount))
    filler.integer(UInt32(maskCount))
  }

  init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    key = try reader.integer()
    child = try reader.integer()
    versionCount = Int(try reader.integer(UInt32.self))
    maskCount = Int(try reader.integer(UInt32.self))
  }
}

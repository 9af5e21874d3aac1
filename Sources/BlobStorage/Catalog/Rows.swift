/// A value of the catalog's tables, as bytes of known length.
protocol TableValue {
  /// Puts the value's bytes.
  func encode(into sink: inout some ByteSink)
}

extension TableValue {
  /// Bytes of the value.
  var encodedByteCount: Int {
    var counter = ByteCounter()
    encode(into: &counter)
    return counter.byteCount
  }
}

private struct ByteCounter: ByteSink {
  private(set) var byteCount = 0
  mutating func raw(_ bytes: UnsafeRawBufferPointer) { byteCount += bytes.count }
}

/// The greatest count, or offset in a pack, that a row can hold.
private let countMax = Int(UInt32.max)

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
  /// The state of a pack on its way out of the store. Writers deduplicate only onto `live` packs.
  package enum State: UInt8, Sendable {
    case live = 0
    /// gc is about to remove the pack. Writers treat its records as missing; readers still read them.
    case condemned = 1
    /// Its live records lie in other packs; its file may already be gone.
    case retired = 2
  }

  package var name: PackName
  package var created: UInt64
  package var state = State.live
  package var isSealed = false
  /// A part of it cannot be read. gc removes nothing while the store has such a pack.
  package var isDamaged = false
  /// A sync of it failed: records beyond `durableByteCount` cannot be trusted.
  package var isPoisoned = false
  /// Its file is missing from the store. The catalog keeps its rows.
  package var isLost = false
  /// Records are missing in both copies, the records themselves and the footer. They may be refs and drops of unknown
  /// keys.
  package var hasLostRecords = false
  /// The medium could not read a part of it: the next opening tries again.
  package var isUnreadable = false
  /// Records up to here are in the catalog.
  package var appliedByteCount = Int64(PackHeader.byteCount)
  package var recordCount = 0
  /// Records up to here are on the medium, as far as this machine knows.
  package var durableByteCount: Int64 = 0
  /// Records up to here belong to durable changes: a sync follows the commit before its call returns.
  package var promisedByteCount: Int64 = 0

  /// Whether the pack is final: sealed, on the medium or published, and not lost.
  package var isSettled: Bool { isSealed && durableByteCount > 0 && !isLost }

  /// Bytes of the pack's records.
  package var recordsByteCount: Int64 { appliedByteCount - Int64(PackHeader.byteCount) }

  package init(name: PackName, created: UInt64) {
    self.name = name
    self.created = created
  }

  func encode(into sink: inout some ByteSink) {
    sink.integer(name.writer)
    sink.integer(name.sequence)
    sink.integer(created)
    sink.integer(state.rawValue)
    var flags: UInt8 = (isSealed ? 1 : 0) | (isDamaged ? 2 : 0) | (isPoisoned ? 4 : 0)
    flags |= (isLost ? 8 : 0) | (hasLostRecords ? 16 : 0) | (isUnreadable ? 32 : 0)
    sink.integer(flags)
    sink.integer(appliedByteCount)
    sink.integer(UInt32(recordCount))
    sink.integer(durableByteCount)
    sink.integer(promisedByteCount)
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
    isUnreadable = flags & 32 != 0
    appliedByteCount = try reader.integer()
    recordCount = Int(try reader.integer(UInt32.self))
    durableByteCount = try reader.integer()
    promisedByteCount = try reader.integer()
    // An object in a pack's place may be longer than any pack.
    guard min(appliedByteCount, durableByteCount, promisedByteCount) >= 0,
      max(durableByteCount, promisedByteCount) <= BlobLimits.maximumBlobByteCount,
      appliedByteCount <= Int64(countMax), recordCount <= BlobLimits.packRecordCountMax
    else { throw BlobStorageError(.catalogDamaged, "The catalog has a pack of an invalid length.") }
  }

  /// Whether this pack is younger. Of two copies of a record, the one in the younger pack counts.
  func isYounger(than other: PackRow) -> Bool {
    created != other.created ? created > other.created : name > other.name
  }
}

/// Where a chunk lies and how to decode it, on its own or as a member of a frame. Another table has the digest of its
/// base, so that all rows have one length.
package struct ChunkRow: Hashable, Sendable, TableValue {
  package var place: Place
  package var plainByteCount: Int
  /// Bytes of its payload, or of a member's part of the frame's record.
  package var storedByteCount: Int
  package var codecNumber: UInt8
  /// Offset of the frame's record, if the chunk is a member of a frame.
  package let frameOffset: Int64?
  package var base: BlobDigest?
  /// A read found it damaged. Writers treat it as missing, so that a put of the same bytes heals it.
  package var isSuspect: Bool
  /// Its record has features in its meta.
  private let hasFeatures: Bool

  package init(place: Place, record: ChunkRecord, storedByteCount: Int, frameOffset: Int64? = nil) {
    self.place = place
    self.frameOffset = frameOffset
    hasFeatures = record.features != nil
    plainByteCount = record.plainByteCount
    self.storedByteCount = storedByteCount
    codecNumber = record.codecNumber
    base = record.base
    isSuspect = false
  }

  /// Where the payload begins in the pack, if it has a record of its own.
  package var payloadOffset: Int64 {
    place.offset
      + RecordHeader.payloadOffset(metaByteCount: metaByteCount, payloadByteCount: storedByteCount)
  }

  /// Where its payload lies in the pack, or its part of a frame's record.
  package var storedRange: Range<Int64> {
    let start = frameOffset == nil ? payloadOffset : place.offset
    return start..<start + Int64(storedByteCount)
  }

  /// Bytes of the whole record, or of its part of a frame's.
  package var recordByteCount: Int {
    if frameOffset != nil { return storedByteCount }
    return RecordHeader.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: storedByteCount)
  }

  private var metaByteCount: Int {
    ChunkRecord.metaByteCount(
      codecNumber: codecNumber, plainByteCount: plainByteCount, hasBase: base != nil,
      hasFeatures: hasFeatures)
  }

  // Bits of the row, the lowest first: pack 32; offset 30, ordinal 23, base 1, unused 1, features 1, codec 8; stored
  // length 24, plain length 24, damaged 1, and 23 for the distance to the frame's record plus 1, or 0 without a frame.
  func encode(into sink: inout some ByteSink) {
    sink.integer(place.pack)
    var word = UInt64(place.offset) | UInt64(place.ordinal) << 30 | (base == nil ? 0 : 1 << 53)
    word |= (hasFeatures ? 1 << 55 : 0) | UInt64(codecNumber) << 56
    sink.integer(word)
    let distance = frameOffset.map { UInt64(place.offset - $0 + 1) } ?? 0
    sink.integer(
      UInt64(storedByteCount) | UInt64(plainByteCount) << 24 | (isSuspect ? 1 << 48 : 0)
        | (distance & 0x7fff) << 49)
    sink.integer(UInt8(distance >> 15))
  }

  /// - Parameter base: looks up the base of a chunk that has one.
  init(
    _ bytes: UnsafeRawBufferPointer, base: (Place) throws(BlobStorageError) -> BlobDigest?
  ) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    let pack: UInt32 = try reader.integer()
    let word: UInt64 = try reader.integer()
    place = Place(pack: pack, offset: Int64(word & 0x3fff_ffff), ordinal: Int(word >> 30 & 0x7f_ffff))
    hasFeatures = word >> 55 & 1 != 0
    codecNumber = UInt8(word >> 56)
    let lengths: UInt64 = try reader.integer()
    storedByteCount = Int(lengths & 0xff_ffff)
    plainByteCount = Int(lengths >> 24 & 0xff_ffff)
    isSuspect = lengths >> 48 & 1 != 0
    let distance = Int64(lengths >> 49) | Int64(try reader.integer(UInt8.self)) << 15
    frameOffset = distance == 0 ? nil : place.offset - distance + 1
    if let frameOffset, frameOffset < Int64(PackHeader.byteCount) {
      throw BlobStorageError(.catalogDamaged, "The catalog has a chunk whose frame lies nowhere.")
    }
    guard plainByteCount <= BlobLimits.chunkByteCountMax,
      storedByteCount <= BlobLimits.recordPayloadByteCountMax
    else { throw BlobStorageError(.catalogDamaged, "The catalog has a chunk that is too long.") }
    self.base = nil
    guard word >> 53 & 1 != 0 else { return }
    guard let base = try base(place) else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a chunk whose base it does not name.")
    }
    self.base = base
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

  /// The manifest's record, made from the row.
  package func packRecord(_ digest: BlobDigest) -> PackRecord {
    let manifest = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: chunkCount, depth: depth, listedCount: listedCount)
    return PackRecord(.manifest(manifest), offset: place.offset, payloadByteCount: payloadByteCount)
  }

  /// Where the payload begins in the pack.
  package var payloadOffset: Int64 {
    place.offset
      + RecordHeader.payloadOffset(
        metaByteCount: ManifestRecord.metaByteCount, payloadByteCount: payloadByteCount)
  }
  package var payloadByteCount: Int { ManifestRecord.payloadByteCount(listing: listedCount, depth: depth) }
  /// Bytes of the whole record.
  package var recordByteCount: Int { ManifestRecord.recordByteCount(listing: listedCount, depth: depth) }

  func encode(into sink: inout some ByteSink) {
    sink.integer(place.pack)
    sink.integer(UInt32(place.offset))
    sink.integer(UInt32(place.ordinal))
    sink.integer(UInt32(listedCount))
    sink.integer(depth)
    sink.integer(byteCount)
    sink.integer(chunkCount)
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
    guard listedCount <= BlobLimits.manifestListCountMax, depth <= 1,
      place.ordinal <= BlobLimits.packRecordCountMax,
      0...BlobLimits.maximumBlobByteCount ~= byteCount, 0...BlobLimits.maximumBlobByteCount ~= chunkCount
    else { throw BlobStorageError(.catalogDamaged, "The catalog has a manifest of an invalid length.") }
  }
}

/// A visible version.
package struct VersionRow: Hashable, Sendable {
  package var digest: BlobDigest
  package var byteCount: Int64
  package var created: UInt64
  /// Where its ref record lies. The ordinal is not kept, because gc does not track refs one by one.
  package var place: Place
  /// Bytes of the ref, as its part of a commit record.
  package var recordByteCount: Int
  /// Number of copies of its ref record in packs.
  package var copyCount: Int
  package var metadata: [UInt8]

  package init(place: Place, record: RefRecord, recordByteCount: Int) {
    self.recordByteCount = recordByteCount
    digest = record.digest
    byteCount = record.byteCount
    created = record.created
    self.place = Place(pack: place.pack, offset: place.offset, ordinal: 0)
    copyCount = 1
    metadata = record.metadata
  }

  // Bits in the first byte for the fields that most versions do not need.
  private static let hasCreated: UInt8 = 1
  private static let hasCopyCount: UInt8 = 2

  /// Milliseconds from the stamp's time to the put of the version, as an unsigned number for a varint.
  private func delay(_ stamp: Stamp) -> UInt64 {
    Varint.unsigned(Int64(bitPattern: created &- stamp.time >> 16))
  }

  fileprivate func encode(_ stamp: Stamp, into sink: inout some ByteSink) {
    let delay = delay(stamp)
    sink.integer((delay != 0 ? Self.hasCreated : 0) | (copyCount != 1 ? Self.hasCopyCount : 0))
    digest.withUnsafeBytes { sink.raw($0) }
    sink.varint(UInt64(byteCount))
    // Pack numbers start at random, so that most would take five bytes as varints.
    sink.integer(place.pack)
    sink.varint(UInt64(place.offset))
    sink.varint(recordByteCount)
    if delay != 0 { sink.varint(delay) }
    if copyCount != 1 { sink.varint(copyCount) }
    sink.raw(metadata)
  }

  fileprivate init(
    _ reader: inout ByteReader, _ stamp: Stamp, _ algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) {
    let flags: UInt8 = try reader.integer()
    digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
    byteCount = Int64(try reader.varint(atMost: .max))
    let pack: UInt32 = try reader.integer()
    place = Place(pack: pack, offset: Int64(try reader.varint(atMost: countMax)), ordinal: 0)
    recordByteCount = try reader.varint(atMost: countMax)
    let delay = flags & Self.hasCreated == 0 ? 0 : Varint.signed(try reader.varint())
    created = stamp.time >> 16 &+ UInt64(bitPattern: delay)
    copyCount = flags & Self.hasCopyCount == 0 ? 1 : try reader.varint(atMost: countMax)
    metadata = Array(try reader.bytes(reader.remainingByteCount))
    // The rows of another machine may have any values. A ref with these would make the pack that it is copied to
    // unreadable.
    guard stamp.time < Stamp.timeMax, stamp != .none, byteCount <= BlobLimits.maximumBlobByteCount,
      metadata.count <= BlobLimits.maximumMetadataByteCount
    else { throw BlobStorageError(.catalogDamaged, "The catalog has a version that no record can have.") }
  }
}

/// A version with its stamp, which gives its order.
package struct StampedVersion: Hashable, Sendable, TableValue {
  package let stamp: Stamp
  package var row: VersionRow

  package init(stamp: Stamp, row: VersionRow) {
    self.stamp = stamp
    self.row = row
  }

  // Its stamp is in the row's key.
  func encode(into sink: inout some ByteSink) { row.encode(stamp, into: &sink) }

  init(
    _ stamp: Stamp, _ bytes: UnsafeRawBufferPointer, algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    self.init(stamp: stamp, row: try VersionRow(&reader, stamp, algorithm))
  }
}

/// A hidden version: the number of copies of its ref, and the number of records that name it as gone.
///
/// The row is removed when both are zero. A record that names the version may go only when there is no copy.
package struct MaskRow: Hashable, Sendable, TableValue {
  package var copyCount: Int
  package var maskerCount: Int

  /// Whether the version has copies and no record hides it.
  var isOrphaned: Bool { copyCount > 0 && maskerCount <= 0 }

  func encode(into sink: inout some ByteSink) {
    // The rows of another machine may have any count.
    sink.integer(UInt32(clamping: copyCount))
    sink.integer(UInt32(clamping: maskerCount))
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

/// The row of a key, or of the first part of a long key.
package struct NameRow: Hashable, Sendable, TableValue {
  /// The number under which a key's archived versions and masks are found; 0 if it has none.
  var number: UInt64 = 0
  /// The number under which the rest of longer keys is found; 0 if there are none.
  var child: UInt64 = 0
  /// Numbers of visible and of hidden versions.
  package var versionCount = 0
  package var maskCount = 0
  /// The newest visible version; nil if there is none.
  package var current: StampedVersion?

  init() {}

  /// Whether the row belongs to a key itself, and not only to longer keys that begin with it.
  var isKey: Bool { versionCount > 0 || maskCount > 0 }

  private static let hasCurrent: UInt8 = 1
  private static let hasNumber: UInt8 = 2
  private static let hasChild: UInt8 = 4

  func encode(into sink: inout some ByteSink) {
    var flags: UInt8 = (current != nil ? Self.hasCurrent : 0) | (number != 0 ? Self.hasNumber : 0)
    flags |= child != 0 ? Self.hasChild : 0
    sink.integer(flags)
    if number != 0 {
      sink.varint(number)
      sink.varint(versionCount)
      sink.varint(maskCount)
    }
    if child != 0 { sink.varint(child) }
    guard let current else { return }
    sink.integer(current.stamp.time)
    sink.integer(current.stamp.writer)
    current.encode(into: &sink)
  }

  init(_ bytes: UnsafeRawBufferPointer, algorithm: BlobDigest.Algorithm) throws(BlobStorageError) {
    self.init()
    var reader = ByteReader(bytes)
    let flags: UInt8 = try reader.integer()
    versionCount = flags & Self.hasCurrent != 0 ? 1 : 0
    if flags & Self.hasNumber != 0 {
      number = try reader.varint()
      versionCount = try reader.varint(atMost: countMax)
      maskCount = try reader.varint(atMost: countMax)
      guard (versionCount > 0) == (flags & Self.hasCurrent != 0) else {
        throw BlobStorageError(.catalogDamaged, "The catalog has a key with a wrong number of versions.")
      }
    }
    if flags & Self.hasChild != 0 { child = try reader.varint() }
    guard flags & Self.hasCurrent != 0 else { return }
    let time: UInt64 = try reader.integer()
    let stamp = Stamp(time: time, writer: try reader.integer())
    current = StampedVersion(stamp: stamp, row: try VersionRow(&reader, stamp, algorithm))
  }
}

/// Encodes the keys of the catalog's rows, so that they sort in the order of what they identify.
enum RowKey {
  static func pack(_ name: PackName) -> (UInt64, UInt32) {
    (name.writer.bigEndian, name.sequence.bigEndian)
  }

  // MARK: Names

  /// LMDB keys have at most 511 bytes, and names up to 4,096. So a long name is cut into parts of this length, each
  /// stored under the number of the part before. Only the last part is shorter, so walking parts in byte order walks
  /// names in byte order.
  static let namePartByteCount = 480

  /// Calls `body` with the key of one part of a name: the byte count of the parent's number, the number in big-endian
  /// order, and the part.
  static func withName<T>(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>,
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let numberByteCount = (71 - parent.leadingZeroBitCount) / 8
    return try withUnsafeTemporaryAllocation(byteCount: 1 + numberByteCount + part.count, alignment: 8) {
      (memory) throws(BlobStorageError) in
      var filler = ByteFiller(memory)
      filler.integer(UInt8(numberByteCount))
      for index in 0..<numberByteCount {
        filler.integer(UInt8(truncatingIfNeeded: parent >> (8 * UInt64(numberByteCount - 1 - index))))
      }
      key.withUnsafeBytes { filler.raw(UnsafeRawBufferPointer(rebasing: $0[part])) }
      return try body(UnsafeRawBufferPointer(memory))
    }
  }

  // MARK: Versions and chunks

  /// Stores stamps inverted, so that the newest version comes first.
  static func version(_ key: UInt64, _ stamp: Stamp) -> (UInt64, UInt64, UInt64) {
    (key.bigEndian, (~stamp.time).bigEndian, (~stamp.writer).bigEndian)
  }

  static func numberAndStamp(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) -> (
    UInt64, Stamp
  ) {
    guard bytes.count == 24 else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a version without a stamp.")
    }
    func field(_ offset: Int) -> UInt64 {
      UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }
    return (field(0), Stamp(time: ~field(8), writer: ~field(16)))
  }

  /// The place of the record of a chunk with a base.
  static func base(_ place: Place) -> (UInt32, UInt32) {
    (place.pack.bigEndian, UInt32(place.offset).bigEndian)
  }
}

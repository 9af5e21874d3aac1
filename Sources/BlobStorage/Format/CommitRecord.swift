/// A commit record: the refs and drops of a commit, in order. Format.md, "Commit".
///
/// Entries are delta-encoded: keys share a prefix with the key before, and times are differences. A ref to a chunk or
/// manifest of the same commit has its place instead of its digest. A record of several entries compresses them
/// together if that saves enough.
package enum CommitRecord {
  package enum Entry: Sendable {
    case ref(RefRecord)
    case drop(DropRecord)

    /// The blob of a ref; nil for a drop.
    package var blob: BlobDigest? {
      switch self {
      case .ref(let ref): ref.digest
      case .drop: nil
      }
    }

    /// The approximate size of the entry in memory. The sum for a record is limited.
    package var memoryByteCount: Int {
      switch self {
      case .ref(let ref): 128 + ref.key.count + ref.metadata.count
      case .drop(let drop): 128 + drop.key.count + drop.versions.count * Stamp.byteCount
      }
    }

    /// The most bytes that the entry takes on disk.
    var byteCountMax: Int {
      switch self {
      case .ref(let ref): CommitRecord.fixedByteCountMax + ref.key.count + ref.metadata.count
      case .drop(let drop):
        CommitRecord.fixedByteCountMax + drop.key.count + drop.versions.count * CommitRecord.stampByteCountMax
      }
    }
  }

  /// The place of a chunk or manifest that refs of the same commit may name.
  package struct Target: Sendable {
    package var digest: BlobDigest
    package var byteCount: Int64
    package var offset: Int64
    /// The end of its record, or of its part of a frame's record.
    package var end: Int64
  }

  /// The size at which a writer ends a record.
  package static let byteCountTarget = 1 << 20
  /// The size in memory at which a writer ends a record: keys with a shared prefix take few bytes on disk.
  package static let memoryByteCountTarget = 4 << 20

  /// The most bytes of an entry without key, metadata and dropped versions.
  static let fixedByteCountMax = 128
  /// The usual number of these bytes, with those before the first entry.
  static let typicalByteCount = 12
  /// The most bytes of a time, a byte for the kind of writer, and a writer's number.
  static let stampByteCountMax = Varint.byteCountMax + 9

  /// Bits of the first byte.
  enum Flags {
    static let isCompressed: UInt8 = 1
    static let saysSynced: UInt8 = 2
    static let known: UInt8 = 3
  }

  /// Bits of an entry's first byte.
  enum EntryFlags {
    /// How a ref names its blob.
    static let blobBits: UInt8 = 3
    static let blobByDigest: UInt8 = 0
    /// The blob is the record that ends where the commit record begins.
    static let blobBefore: UInt8 = 1
    static let blobByPlace: UInt8 = 2
    static let hasWriter: UInt8 = 4
    static let hasReplaced: UInt8 = 8
    static let hasCreated: UInt8 = 16
    static let hasMetadata: UInt8 = 32
    /// Reserved for refs to something other than a blob of plain bytes. A second byte then says what.
    static let isExtended: UInt8 = 64
    static let isDrop: UInt8 = 128
    static let ofDrop: UInt8 = isDrop | hasWriter
  }

  /// The writer of a further stamp: the pack's, the one whose number follows, or that of the stamp before.
  enum Writer {
    static let packs: UInt8 = 0
    static let own: UInt8 = 1
    static let before: UInt8 = 2
  }

  /// What an encoder and a decoder remember of the entry before.
  struct State {
    let writer: UInt64
    let offset: Int64
    var key: [UInt8] = []
    var time: UInt64?
    var target: Int64

    init(writer: UInt64, at offset: Int64) {
      self.writer = writer
      self.offset = offset
      target = offset
    }
  }

  /// The milliseconds in a clock time.
  static func milliseconds(_ time: UInt64) -> UInt64 { time >> 16 }
}

/// Encodes the content of one commit record, entry by entry.
struct CommitEncoder {
  /// The most bytes before the first entry of an uncompressed record.
  static let beginningByteCountMax = 1 + Varint.byteCountMax

  private var state: CommitRecord.State
  private let syncedByteCount: Int64

  /// - Parameters:
  ///   - offset: the offset of the record.
  ///   - synced: the bytes of the pack that are known to be on the medium.
  init(pack: PackName, offset: Int64, synced: Int64) {
    state = CommitRecord.State(writer: pack.writer, at: offset)
    syncedByteCount = synced
  }

  private var flags: UInt8 { syncedByteCount > 0 ? CommitRecord.Flags.saysSynced : 0 }

  /// Bytes before the first entry.
  var beginningByteCount: Int {
    syncedByteCount > 0 ? 1 + Varint.byteCount(UInt64(syncedByteCount)) : 1
  }

  /// The bytes before compressed entries.
  func compressedBeginning(plainByteCount: Int) -> [UInt8] {
    var writer = ByteWriter(capacity: 16)
    writer.integer(flags | CommitRecord.Flags.isCompressed)
    if syncedByteCount > 0 { writer.varint(UInt64(syncedByteCount)) }
    writer.varint(plainByteCount)
    return writer.bytes
  }

  /// Encodes an entry. Before the first one, encodes the beginning of the record.
  ///
  /// - Parameters:
  ///   - target: the place of a ref's blob, if the ref may name it.
  ///   - filler: has room for ``beginningByteCountMax`` bytes and the entry's ``CommitRecord/Entry/byteCountMax``.
  mutating func put(
    _ entry: CommitRecord.Entry, _ target: CommitRecord.Target?, into filler: inout ByteFiller
  ) {
    if state.time == nil {
      filler.integer(flags)
      if syncedByteCount > 0 { filler.varint(UInt64(syncedByteCount)) }
    }
    switch entry {
    case .ref(let ref): put(ref, target, into: &filler)
    case .drop(let drop): put(drop, into: &filler)
    }
  }

  private mutating func put(
    _ ref: RefRecord, _ target: CommitRecord.Target?, into filler: inout ByteFiller
  ) {
    typealias Flags = CommitRecord.EntryFlags
    let isThere = target.map { $0.digest == ref.digest && $0.byteCount == ref.byteCount } ?? false
    let target = isThere ? target : nil
    let created = ref.created &- CommitRecord.milliseconds(ref.version.time)
    var flags = target.map { $0.end == state.offset ? Flags.blobBefore : Flags.blobByPlace } ?? 0
    if ref.version.writer != state.writer { flags |= Flags.hasWriter }
    if ref.replaced != .none { flags |= Flags.hasReplaced }
    if created != 0 { flags |= Flags.hasCreated }
    if !ref.metadata.isEmpty { flags |= Flags.hasMetadata }
    filler.integer(flags)
    put(key: ref.key, ref.version, into: &filler)
    if ref.replaced != .none { put(ref.replaced, after: ref.version, into: &filler) }
    if created != 0 { filler.varint(Varint.unsigned(Int64(bitPattern: created))) }
    if let target {
      if target.end != state.offset {
        filler.varint(Varint.unsigned(target.offset - state.target))
        state.target = target.offset
      }
    } else {
      ref.digest.withUnsafeBytes { filler.raw($0) }
      filler.varint(UInt64(ref.byteCount))
    }
    if !ref.metadata.isEmpty {
      filler.varint(ref.metadata.count)
      filler.raw(ref.metadata)
    }
  }

  private mutating func put(_ drop: DropRecord, into filler: inout ByteFiller) {
    typealias Flags = CommitRecord.EntryFlags
    filler.integer(Flags.isDrop | (drop.stamp.writer != state.writer ? Flags.hasWriter : 0))
    put(key: drop.key, drop.stamp, into: &filler)
    filler.varint(drop.versions.count)
    var last = drop.stamp
    for version in drop.versions {
      put(version, after: last, into: &filler)
      last = version
    }
  }

  /// Encodes the key and the entry's own stamp.
  private mutating func put(key: [UInt8], _ stamp: Stamp, into filler: inout ByteFiller) {
    var shared = 0
    if let time = state.time {
      let end = min(key.count - 1, state.key.count)
      while shared < end, key[shared] == state.key[shared] { shared += 1 }
      filler.varint(shared)
      filler.varint(key.count - shared)
      key.withUnsafeBytes { filler.raw(UnsafeRawBufferPointer(rebasing: $0[shared...])) }
      filler.varint(Varint.unsigned(Int64(bitPattern: stamp.time &- time)))
    } else {
      filler.varint(key.count)
      filler.raw(key)
      filler.varint(CommitRecord.milliseconds(stamp.time))
      filler.varint(stamp.time & 0xffff)
    }
    if stamp.writer != state.writer { filler.integer(stamp.writer) }
    (state.key, state.time) = (key, stamp.time)
  }

  /// Encodes a further stamp of an entry.
  private func put(_ stamp: Stamp, after last: Stamp, into filler: inout ByteFiller) {
    filler.varint(Varint.unsigned(Int64(bitPattern: stamp.time &- last.time)))
    switch stamp.writer {
    case state.writer: filler.integer(CommitRecord.Writer.packs)
    case last.writer: filler.integer(CommitRecord.Writer.before)
    default:
      filler.integer(CommitRecord.Writer.own)
      filler.integer(stamp.writer)
    }
  }
}

/// Decodes the entries of one commit record.
struct CommitDecoder {
  private var state: CommitRecord.State
  private var reader: ByteReader
  private let algorithm: BlobDigest.Algorithm

  init(
    _ entries: UnsafeRawBufferPointer, pack: PackName, offset: Int64, algorithm: BlobDigest.Algorithm
  ) {
    state = CommitRecord.State(writer: pack.writer, at: offset)
    reader = ByteReader(entries)
    self.algorithm = algorithm
  }

  /// Decodes all entries.
  ///
  /// - Parameters:
  ///   - countMax: the most entries that the record may have.
  ///   - target: finds the chunk or manifest whose record begins at `place`, or ends there if `isEnd`. Returns nil if
  ///     that record could not be read.
  mutating func entries(
    countMax: Int, target: (_ place: Int64, _ isEnd: Bool) -> CommitRecord.Target?
  ) throws(BlobStorageError) -> [CommitRecord.Entry] {
    var entries: [CommitRecord.Entry] = []
    var memoryByteCount = 0
    while reader.remainingByteCount > 0 {
      let entry = try entry(target)
      memoryByteCount += entry.memoryByteCount
      guard entries.count < countMax, memoryByteCount <= BlobLimits.commitRecordMemoryByteCountMax else {
        throw BlobStorageError(.corrupted, "A commit record has too many entries.")
      }
      entries.append(entry)
    }
    guard !entries.isEmpty else { throw BlobStorageError(.corrupted, "A commit record has no entry.") }
    return entries
  }

  private mutating func entry(
    _ target: (_ place: Int64, _ isEnd: Bool) -> CommitRecord.Target?
  ) throws(BlobStorageError) -> CommitRecord.Entry {
    typealias Flags = CommitRecord.EntryFlags
    let flags: UInt8 = try reader.integer()
    let isDrop = flags & Flags.isDrop != 0
    guard flags & Flags.isExtended == 0, !isDrop || flags & ~Flags.ofDrop == 0,
      flags & Flags.blobBits != Flags.blobBits
    else {
      throw BlobStorageError(
        .unsupportedFormat, "A commit has an entry of a kind unknown to this build: use a later one.")
    }
    let (key, stamp) = try keyAndStamp(hasWriter: flags & Flags.hasWriter != 0)
    return try isDrop ? .drop(drop(key, stamp)) : .ref(ref(key, stamp, flags, target))
  }

  private mutating func ref(
    _ key: [UInt8], _ version: Stamp, _ flags: UInt8,
    _ target: (_ place: Int64, _ isEnd: Bool) -> CommitRecord.Target?
  ) throws(BlobStorageError) -> RefRecord {
    typealias Flags = CommitRecord.EntryFlags
    var replaced = Stamp.none
    if flags & Flags.hasReplaced != 0 {
      replaced = try stamp(after: version)
      guard replaced != version, replaced != .none else {
        throw BlobStorageError(.corrupted, "A ref's fields are invalid.")
      }
    }
    var created = CommitRecord.milliseconds(version.time)
    if flags & Flags.hasCreated != 0 {
      created &+= UInt64(bitPattern: Varint.signed(try reader.varint()))
    }
    // The content of a damaged record is unknown. No blob has this digest, so the version counts as lost.
    var blob = (digest: BlobDigest.unknown(algorithm), byteCount: Int64(1))
    switch flags & Flags.blobBits {
    case Flags.blobByDigest:
      blob.digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
      blob.byteCount = Int64(try reader.varint(atMost: Int(BlobLimits.maximumBlobByteCount)))
    case Flags.blobBefore:
      if let found = target(state.offset, true) { blob = (found.digest, found.byteCount) }
    default:
      let (place, isTooFar) = state.target.addingReportingOverflow(Varint.signed(try reader.varint()))
      guard !isTooFar, Int64(PackHeader.byteCount)..<state.offset ~= place else {
        throw BlobStorageError(.corrupted, "A ref names an invalid place.")
      }
      state.target = place
      if let found = target(place, false) { blob = (found.digest, found.byteCount) }
    }
    var metadata: [UInt8] = []
    if flags & Flags.hasMetadata != 0 {
      metadata = Array(try reader.bytes(try reader.varint(atMost: BlobLimits.maximumMetadataByteCount)))
      guard !metadata.isEmpty else { throw BlobStorageError(.corrupted, "A ref's fields are invalid.") }
    }
    return RefRecord(
      key: key, version: version, replaced: replaced, digest: blob.digest, byteCount: blob.byteCount,
      created: created, metadata: metadata)
  }

  private mutating func drop(_ key: [UInt8], _ stamp: Stamp) throws(BlobStorageError) -> DropRecord {
    let count = try reader.varint(atMost: BlobLimits.dropVersionCountMax)
    // A version takes two bytes or more.
    guard count > 0, count <= reader.remainingByteCount else {
      throw BlobStorageError(.corrupted, "A drop's counts are invalid.")
    }
    var versions: [Stamp] = []
    versions.reserveCapacity(count)
    var last = stamp
    for _ in 0..<count {
      last = try self.stamp(after: last)
      guard last != .none else { throw BlobStorageError(.corrupted, "A drop's stamps are invalid.") }
      versions.append(last)
    }
    return DropRecord(key: key, stamp: stamp, versions: versions)
  }

  private mutating func keyAndStamp(hasWriter: Bool) throws(BlobStorageError) -> ([UInt8], Stamp) {
    let shared = state.time == nil ? 0 : try reader.varint(atMost: state.key.count)
    let rest = try reader.varint(atMost: BlobLimits.maximumKeyByteCount - shared)
    let key: [UInt8]
    if shared == 0 {
      key = Array(try reader.bytes(rest))
    } else {
      key = Array(state.key[..<shared]) + (try reader.bytes(rest))
    }
    let time: UInt64
    if let last = state.time {
      time = last &+ UInt64(bitPattern: Varint.signed(try reader.varint()))
    } else {
      let milliseconds = try reader.varint(atMost: Int(Stamp.timeMax >> 16) - 1)
      time = UInt64(milliseconds) << 16 | UInt64(try reader.varint(atMost: 0xffff))
    }
    let stamp = Stamp(time: time, writer: hasWriter ? try reader.integer() : state.writer)
    guard !key.isEmpty, stamp.time < Stamp.timeMax, stamp != .none else {
      throw BlobStorageError(.corrupted, "A key or a stamp of a commit is invalid.")
    }
    (state.key, state.time) = (key, time)
    return (key, stamp)
  }

  private mutating func stamp(after last: Stamp) throws(BlobStorageError) -> Stamp {
    let time = last.time &+ UInt64(bitPattern: Varint.signed(try reader.varint()))
    let writer: UInt64
    switch try reader.integer(UInt8.self) {
    case CommitRecord.Writer.packs: writer = state.writer
    case CommitRecord.Writer.own: writer = try reader.integer()
    case CommitRecord.Writer.before: writer = last.writer
    case let kind:
      throw BlobStorageError(
        .unsupportedFormat, "A stamp has a writer of kind \(kind), unknown to this build: use a later one.")
    }
    guard time < Stamp.timeMax else {
      throw BlobStorageError(.corrupted, "A stamp lies beyond the end of its clock.")
    }
    return Stamp(time: time, writer: writer)
  }
}

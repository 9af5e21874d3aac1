import BlobStorage
import Foundation

/// The record of a state: the metadata of the version under its internal key. That version's blob holds the entries.
/// Format.md, "States".
struct StateRecord: Hashable, Sendable {
  private static let tag: [UInt8] = [0x53, 0x54, 0x41, 0x31]  // STA1
  static let nameByteCountMax = 255

  var state: TreeState
  /// The state that this one's entries change; nil if it has all its entries itself.
  var parent: TreeState.ID?
  /// How many states must be read, this one included.
  var depth = 1
  /// Bytes of entries in all states of the chain that hold changes.
  var changesByteCount: Int64 = 0
  /// Bytes of entries in the whole state that the chain begins with.
  var wholeByteCount: Int64 = 0

  /// Whether it has its time and its place in the series from another program.
  var isTakenOver = false
  /// Its place in its series: 1 more than the greatest that the import knew, whatever the clock said. 0 for a snapshot
  /// that was taken over, and for one of an earlier build.
  var number = 0
  /// The stamp of the version that is its record; none before it is stored.
  var stamp = Stamp.none
  /// Its place in the list of all.
  var index = 0

  var key: [UInt8] { InternalKey.Purpose.state.key(Array(state.id.description.utf8)) }
  var linkKey: [UInt8] { InternalKey.Purpose.link.key(Array(state.id.description.utf8)) }

  private enum Flag {
    static let parent: UInt64 = 1, takenOver: UInt64 = 2, series: UInt64 = 4
    static let all = parent | takenOver | series
  }

  /// The time that orders it among other series: that of its record's stamp, or the time that another program gave it.
  private var time: UInt64 {
    guard isTakenOver else { return stamp.time }
    return UInt64(min(max(0, state.created.timeIntervalSince1970 * 1_000), Double(Stamp.timeMax >> 16))) << 16
  }

  /// Orders records by time, and those of each series among their places by their numbers.
  static func sorted(_ records: [Self]) -> [Self] {
    var records = records.sorted {
      ($0.time, $0.stamp, $0.state.id.number) < ($1.time, $1.stamp, $1.state.id.number)
    }
    for places in Dictionary(grouping: records.indices, by: { records[$0].state.series }).values {
      let members = places.map { records[$0] }
      let order = members.indices.sorted { (members[$0].number, $0) < (members[$1].number, $1) }
      for (place, index) in zip(places, order) { records[place] = members[index] }
    }
    for index in records.indices { records[index].index = index }
    return records
  }

  /// The encoded record, with as many sources and paths of failed files as fit.
  var metadata: [UInt8] {
    var writer = ByteWriter(capacity: 256)
    writer.raw(Self.tag)
    writer.varint((parent == nil ? 0 : Flag.parent) | (isTakenOver ? Flag.takenOver : 0) | Flag.series)
    writer.integer(state.id.number)
    writer.varint(UInt64((max(0, state.created.timeIntervalSince1970) * 1_000).rounded()))
    if let parent { writer.integer(parent.number) }
    writer.varint(depth)
    writer.varint(UInt64(changesByteCount))
    writer.varint(UInt64(wholeByteCount))
    for count in [state.fileCount, state.linkCount, state.folderCount, state.failureCount] {
      writer.varint(count)
    }
    writer.varint(UInt64(state.byteCount))
    for text in [state.name ?? "", state.prefix] { Self.write(Array(text.utf8), &writer) }
    writer.integer(state.series.number)
    writer.varint(number)
    Self.write(Array((state.host ?? "").utf8.prefix(Self.hostByteCountMax)), &writer)
    // Paths of failed files take at most half of the room, so that there is some for sources.
    let room = (BlobLimits.maximumMetadataByteCount - writer.bytes.count) / 2
    var failed = ByteWriter()
    var failedCount = 0
    for path in state.failedPaths.map({ Array($0.utf8) }) where failed.bytes.count + path.count + 4 <= room {
      Self.write(path, &failed)
      failedCount += 1
    }
    writer.varint(failedCount)
    writer.raw(failed.bytes)
    for source in state.sources.map({ Array($0.utf8) }) {
      guard writer.bytes.count + source.count + 2 <= BlobLimits.maximumMetadataByteCount else { break }
      Self.write(source, &writer)
    }
    return writer.bytes
  }

  private static let hostByteCountMax = 64
  static let numberMax = 1 << 50

  private static func write(_ text: [UInt8], _ writer: inout ByteWriter) {
    writer.varint(text.count)
    writer.raw(text)
  }

  init(_ state: TreeState) { self.state = state }

  /// - Throws: `corrupted` for bytes that are no state, `unsupportedFormat` for the record of a later build.
  init(metadata: [UInt8], stamp: Stamp = .none) throws(BlobStorageError) {
    guard metadata.starts(with: Self.tag) else {
      throw BlobStorageError(.unsupportedFormat, "A state was written by a later build.")
    }
    self = try bridge(metadata) { (raw) throws(BlobStorageError) in try Self(fields: raw) }
    self.stamp = stamp
  }

  private init(fields raw: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(raw)
    _ = try reader.bytes(Self.tag.count)
    let flags = try reader.varint()
    guard flags <= Flag.all else {
      throw BlobStorageError(.unsupportedFormat, "A state was written by a later build.")
    }
    isTakenOver = flags & Flag.takenOver != 0
    let id = TreeState.ID(try reader.integer())
    let created = Date(timeIntervalSince1970: Double(try reader.varint(atMost: 1 << 50)) / 1_000)
    state = TreeState(id: id, prefix: "", created: created)
    if flags & Flag.parent != 0 { parent = TreeState.ID(try reader.integer()) }
    depth = try reader.varint(atMost: Int(Int32.max))
    changesByteCount = Int64(try reader.varint(atMost: 1 << 50))
    wholeByteCount = Int64(try reader.varint(atMost: 1 << 50))
    state.fileCount = try reader.varint(atMost: 1 << 50)
    state.linkCount = try reader.varint(atMost: 1 << 50)
    state.folderCount = try reader.varint(atMost: 1 << 50)
    state.failureCount = try reader.varint(atMost: 1 << 50)
    state.byteCount = Int64(try reader.varint(atMost: 1 << 62))
    let name = try Self.text(&reader)
    state.name = name.isEmpty ? nil : name
    state.prefix = try Self.text(&reader)
    state.series = TreeSeries(prefix: state.prefix, number: 0)
    if flags & Flag.series != 0 {
      state.series.number = try reader.integer()
      number = try reader.varint(atMost: Self.numberMax)
      let host = try Self.text(&reader)
      state.host = host.isEmpty ? nil : host
      for _ in 0..<(try reader.varint(atMost: BlobLimits.maximumMetadataByteCount)) {
        state.failedPaths.append(try Self.text(&reader))
      }
    }
    while reader.remainingByteCount > 0 { state.sources.append(try Self.text(&reader)) }
  }

  private static func text(_ reader: inout ByteReader) throws(BlobStorageError) -> String {
    let count = try reader.varint(atMost: BlobLimits.maximumMetadataByteCount)
    return String(decoding: try reader.bytes(count), as: UTF8.self)
  }
}

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

  var key: [UInt8] { InternalKey.Purpose.state.key(Array(state.id.description.utf8)) }
  var linkKey: [UInt8] { InternalKey.Purpose.link.key(Array(state.id.description.utf8)) }

  /// The encoded record, with as many sources as fit.
  var metadata: [UInt8] {
    var writer = ByteWriter(capacity: 256)
    writer.raw(Self.tag)
    writer.varint(UInt64(parent == nil ? 0 : 1))
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
    for text in [state.name ?? "", state.prefix] {
      writer.varint(text.utf8.count)
      writer.raw(Array(text.utf8))
    }
    for source in state.sources {
      let bytes = Array(source.utf8)
      guard writer.bytes.count + bytes.count + 2 <= BlobLimits.maximumMetadataByteCount else { break }
      writer.varint(bytes.count)
      writer.raw(bytes)
    }
    return writer.bytes
  }

  init(_ state: TreeState) { self.state = state }

  /// - Throws: `corrupted` for bytes that are no state, `unsupportedFormat` for the record of a later build.
  init(metadata: [UInt8]) throws(BlobStorageError) {
    guard metadata.starts(with: Self.tag) else {
      throw BlobStorageError(.unsupportedFormat, "A state was written by a later build.")
    }
    self = try bridge(metadata) { (raw) throws(BlobStorageError) in try Self(fields: raw) }
  }

  private init(fields raw: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(raw)
    _ = try reader.bytes(Self.tag.count)
    let flags = try reader.varint()
    guard flags <= 1 else {
      throw BlobStorageError(.unsupportedFormat, "A state was written by a later build.")
    }
    let id = TreeState.ID(try reader.integer())
    let created = Date(timeIntervalSince1970: Double(try reader.varint(atMost: 1 << 50)) / 1_000)
    state = TreeState(id: id, prefix: "", created: created)
    if flags & 1 != 0 { parent = TreeState.ID(try reader.integer()) }
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
    while reader.remainingByteCount > 0 { state.sources.append(try Self.text(&reader)) }
  }

  private static func text(_ reader: inout ByteReader) throws(BlobStorageError) -> String {
    let count = try reader.varint(atMost: BlobLimits.maximumMetadataByteCount)
    return String(decoding: try reader.bytes(count), as: UTF8.self)
  }
}

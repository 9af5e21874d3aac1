import BlobStorage

/// The root of an index: the places of its rows, and the log entry and change that they agree with. Format.md, "The
/// index".
package struct IndexRoot: Hashable, Sendable {
  private static let magic = Array("BLOBINDX".utf8)
  private static let layoutByteCountMax = 64
  private static let checksumByteCount = 4
  package static let filterLineByteCount = 64
  /// The longest part: one put can store it, and one cache file can hold it.
  package static let partByteCountMax: Int64 = 512 << 20
  private static let partCountMax = 1 << 20
  private static let heightMax = 8
  private static let rowCountMax: UInt64 = 1 << 48

  package var storeID: [UInt8]
  /// The layout of the catalog that wrote the rows: `CatalogState.layout`.
  package var layout: String
  /// The last entry of the log and the last change that the rows agree with.
  package var log: UInt32
  package var change: UInt32
  /// The number of records in all packs that the rows agree with.
  package var recordCount: UInt64
  /// The run, which names its parts.
  package var run: UInt64
  package var partByteCounts: [Int64] = []
  /// The place of the topmost block.
  package var top = RunPlace(part: 0, offset: 0, byteCount: 0)
  /// The number of levels above the blocks with the rows.
  package var height: UInt8 = 0
  package var rowCount: UInt64 = 0
  /// The part with the filter, and the filter's number of lines.
  package var filterPart: UInt32 = 0
  package var filterLineCount: UInt64 = 0
}

extension IndexRoot {
  /// - Throws: `corrupted`.
  package init(_ bytes: [UInt8]) throws(BlobStorageError) {
    self = try bridge(bytes) { (bytes) throws(BlobStorageError) in try Self.read(bytes) }
  }

  private static func read(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) -> IndexRoot {
    guard bytes.count > checksumByteCount, bytes.endsWithChecksum else {
      throw BlobStorageError(.corrupted, "The root of the index does not match its checksum.")
    }
    var reader = ByteReader(UnsafeRawBufferPointer(rebasing: bytes.dropLast(checksumByteCount)))
    guard try reader.bytes(magic.count).elementsEqual(magic) else {
      throw BlobStorageError(.corrupted, "The root of the index does not begin like one.")
    }
    let layout = String(
      decoding: try reader.bytes(try reader.varint(atMost: layoutByteCountMax)), as: UTF8.self)
    var root = IndexRoot(
      storeID: Array(try reader.bytes(16)), layout: layout, log: try reader.integer(),
      change: try reader.integer(), recordCount: try reader.integer(), run: try reader.integer())
    root.top = try RunPlace(&reader)
    root.height = try reader.integer()
    root.rowCount = try reader.integer()
    root.filterPart = try reader.integer()
    root.filterLineCount = try reader.integer()
    for _ in 0..<(try reader.varint(atMost: partCountMax)) {
      root.partByteCounts.append(Int64(try reader.varint(atMost: Int(partByteCountMax))))
    }
    try reader.finish()
    try root.check()
    return root
  }

  private func check() throws(BlobStorageError) {
    let filter = Int(filterPart)
    guard height <= Self.heightMax, rowCount > 0, rowCount < Self.rowCountMax, filter < partByteCounts.count,
      filterLineCount > 0, filterLineCount <= UInt64(Self.partByteCountMax),
      Int64(filterLineCount) * Int64(Self.filterLineByteCount) == partByteCounts[filter]
    else { throw BlobStorageError(.corrupted, "The root of the index says what cannot be.") }
  }

  package var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.raw(Self.magic)
    writer.varint(layout.utf8.count)
    writer.raw(Array(layout.utf8))
    writer.raw(storeID)
    writer.integer(log)
    writer.integer(change)
    writer.integer(recordCount)
    writer.integer(run)
    top.encode(into: &writer)
    writer.integer(height)
    writer.integer(rowCount)
    writer.integer(filterPart)
    writer.integer(filterLineCount)
    writer.varint(partByteCounts.count)
    for byteCount in partByteCounts { writer.varint(UInt64(byteCount)) }
    writer.checksum()
    return writer.bytes
  }

  /// The length of all parts together.
  package var byteCount: Int64 { partByteCounts.reduce(0, +) }

  /// The name of a part, in the form of a pack name.
  package func partName(_ part: Int) -> PackName { PackName(writer: run, sequence: UInt32(part) + 1) }
}

/// The place of a block: its part, and the range in that part.
package struct RunPlace: Hashable, Sendable {
  package static let byteCount = 16

  package var part: UInt32
  package var offset: UInt64
  package var byteCount: UInt32
}

extension RunPlace {
  init(_ reader: inout ByteReader) throws(BlobStorageError) {
    part = try reader.integer()
    offset = try reader.integer()
    byteCount = try reader.integer()
  }

  package func encode(into sink: inout some ByteSink) {
    sink.integer(part)
    sink.integer(offset)
    sink.integer(byteCount)
  }
}

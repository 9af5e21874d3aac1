import BlobStorage
import Foundation

/// The metadata that an import stores with a file's ref: enough to recognise the file without reading it, and to
/// restore its time and attributes. Format.md, "Metadata of imported files".
package struct FileMark: Hashable {
  /// The typical length of the metadata in bytes.
  static let byteCountTypical = 30
  private static let tag: [UInt8] = [0x46, 0x49, 0x4c, 0x33]  // FIL3
  private static let tagOfUncertain: [UInt8] = [0x46, 0x49, 0x55, 0x33]  // FIU3

  var byteCount: Int64
  package private(set) var modified: FileTime
  var inode: UInt64
  /// The change time; nil if it cannot show whether the file has changed since.
  package private(set) var changed: FileTime?
  /// Whether the file changed while it was read. The next import reads it again.
  package var isUncertain = false {
    didSet { if isUncertain { changed = nil } }
  }
  /// Nil if the import kept none.
  package var attributes: FileAttributes?

  /// The mark of a file.
  ///
  /// - Parameters:
  ///   - start: before what mappings had changed was written back, and reading began. If the file changed less than a
  ///     tick of the file system's clock before, or by its clock later, another change may leave its times the same.
  ///     The next import then reads it again (git calls such files racy).
  ///   - showsChanges: whether later changes show in the change time.
  package init(
    _ status: FileStatus, readFrom start: FileTime, showsChanges: Bool = true,
    _ attributes: FileAttributes? = nil
  ) {
    self.attributes = attributes
    byteCount = status.byteCount
    modified = status.modified
    inode = status.inode
    changed = showsChanges && start >= Self.settled(status) ? status.changed : nil
  }

  /// The earliest time from which another change is sure to show in the file's change time. A program can set the
  /// modification time, so that says nothing.
  static func settled(_ status: FileStatus) -> FileTime {
    // The kernel's clock ticks every 1 to 10 ms; file systems that keep whole seconds count by 1 (ext4 with short
    // inodes) or 2.
    status.changed.advanced(byMilliseconds: status.changed.nanoseconds == 0 ? 2_001 : 21)
  }

  /// Whether the file seems unchanged; does not read it.
  package func matches(_ status: FileStatus) -> Bool {
    byteCount == status.byteCount && modified == status.modified && inode == status.inode
      && changed == status.changed
  }

  /// Whether length, modification time and attributes agree. The inode counts only for files with several names.
  func isLike(_ other: FileMark) -> Bool {
    byteCount == other.byteCount && modified == other.modified && attributes == other.attributes
      // Device and inode identify a file with several names.
      && (attributes?.device == nil || inode == other.inode)
  }

  /// The mark in a version's metadata; nil if the metadata holds anything else.
  package init?(metadata: [UInt8]) {
    let isUncertain = metadata.starts(with: Self.tagOfUncertain)
    guard isUncertain || metadata.starts(with: Self.tag),
      var mark = try? bridge(metadata, { (raw) throws(BlobStorageError) in try Self(fields: raw) }),
      !isUncertain || mark.changed == nil
    else { return nil }
    mark.isUncertain = isUncertain
    self = mark
  }

  private init(fields raw: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(UnsafeRawBufferPointer(rebasing: raw[Self.tag.count...]))
    let field = try reader.varint()
    byteCount = Int64(field >> 1)
    inode = try reader.varint()
    modified = try reader.time(after: 0)
    if field & 1 != 0 { changed = try reader.time(after: modified.seconds) }
    if reader.remainingByteCount > 0 { attributes = try FileAttributes(&reader) }
    try reader.finish()
  }

  package var metadata: [UInt8] {
    var writer = ByteWriter(capacity: 40)
    writer.raw(isUncertain ? Self.tagOfUncertain : Self.tag)
    writer.varint(UInt64(byteCount) << 1 | (changed == nil ? 0 : 1))
    writer.varint(inode)
    writer.time(modified, after: 0)
    if let changed { writer.time(changed, after: modified.seconds) }
    attributes?.write(to: &writer)
    return writer.bytes
  }
}

extension BlobVersion {
  /// The attributes that an import kept; nil if it kept none, or if no import put the version.
  public var fileAttributes: FileAttributes? { FileMark(metadata: metadata)?.attributes }

  /// Whether the file changed while an import read it: it may never have had these bytes.
  public var isUncertain: Bool { FileMark(metadata: metadata)?.isUncertain ?? false }
}

extension FileMark {
  /// Moves extended attributes that are too long for metadata into a blob. The caller commits it with the version.
  ///
  /// - Parameter omitting: whether to leave them out instead: a cache could not evict their blob.
  /// - Throws: `sourceFailed` for more than 16 MiB of them.
  mutating func moveLongAttributes(
    _ engine: Engine, omitting: Bool = false
  ) throws(BlobStorageError) -> MemoryPut.Item? {
    guard var attributes, !attributes.extended.isEmpty,
      metadata.count > BlobLimits.maximumMetadataByteCount
    else { return nil }
    if omitting {
      self.attributes?.extended = []
      return nil
    }
    let bytes = FileAttributes.bytes(of: attributes.extended)
    guard bytes.count <= FileAttributes.extendedByteCountMax else {
      throw BlobStorageError(.sourceFailed, "its extended attributes have more than 16 MiB")
    }
    let digest = BlobDigest.of(bytes.span.bytes, by: engine.header.digestAlgorithm)
    attributes.extended = []
    attributes.extendedDigest = digest.withUnsafeBytes { Array($0) }
    self.attributes = attributes
    return try engine.memoryPut.prepare(
      InternalKey.Purpose.attributes.key(Array(Hex.text(attributes.extendedDigest ?? []).utf8)), Data(bytes),
      PutOptions())
  }

  /// The extended attributes, from the metadata or from their blob.
  ///
  /// - Throws: `corrupted` if their blob cannot be read.
  package func extendedAttributes(_ engine: Engine) throws(BlobStorageError) -> [FileAttributes.Extended] {
    guard let attributes else { return [] }
    guard let bytes = attributes.extendedDigest else { return attributes.extended }
    let digest = try bridge(bytes) { (raw) throws(BlobStorageError) in
      BlobDigest(algorithm: engine.header.digestAlgorithm, bytes: raw)
    }
    guard let data = try engine.data(digest, atMost: FileAttributes.extendedByteCountMax) else {
      throw BlobStorageError(
        .corrupted, "Extended attributes are missing or too long: blob \(digest).", digest: digest)
    }
    return try FileAttributes.extended(Array(data))
  }
}

extension ByteWriter {
  fileprivate mutating func time(_ time: FileTime, after start: Int64) {
    varint(Varint.unsigned(time.seconds &- start))
    integer(time.nanoseconds)
  }
}

extension ByteReader {
  fileprivate mutating func time(after start: Int64) throws(BlobStorageError) -> FileTime {
    let seconds = start &+ Varint.signed(try varint())
    let nanoseconds: Int32 = try integer()
    guard 0..<1_000_000_000 ~= nanoseconds else {
      throw BlobStorageError(.corrupted, "A time has more nanoseconds than a second.")
    }
    return FileTime(seconds: seconds, nanoseconds: nanoseconds)
  }
}

extension FileTime {
  static let distantPast = FileTime(seconds: .min, nanoseconds: 0)

  /// A time this much later; the same time if the seconds would overflow.
  func advanced(byMilliseconds milliseconds: Int32) -> FileTime {
    let sum = Int64(nanoseconds) + Int64(milliseconds) * 1_000_000
    let (seconds, overflows) = seconds.addingReportingOverflow(sum / 1_000_000_000)
    return overflows ? self : FileTime(seconds: seconds, nanoseconds: Int32(sum % 1_000_000_000))
  }
}

/// What a ref's metadata says of the file that was imported: enough to know it again without reading it, and to
/// restore its time. Format.md, "Metadata of imported files".
package struct FileMark: Hashable {
  static let byteCount = 44
  private static let firstTag: [UInt8] = [0x46, 0x49, 0x4c, 0x31]  // FIL1
  private static let tag: [UInt8] = [0x46, 0x49, 0x4c, 0x32]  // FIL2
  /// In place of nanoseconds: the file is not known again.
  private static let unknown: UInt32 = .max

  var byteCount: Int64
  var modified: FileTime
  var inode: UInt64
  /// When the file last changed; nil if that does not tell whether it has changed since.
  package private(set) var changed: FileTime?

  /// The mark of a file.
  ///
  /// - Parameter start: when its reading began. A file that changed no more than a tick of the file system's clock
  ///   before can change once more without its times telling. The next import reads it again (git calls such files
  ///   racy).
  package init(_ status: FileStatus, readFrom start: FileTime) {
    byteCount = status.byteCount
    modified = status.modified
    inode = status.inode
    changed = start < Self.settled(status) ? nil : status.changed
  }

  /// From when on a change shows in the file's times.
  static func settled(_ status: FileStatus) -> FileTime {
    max(settled(status.modified), settled(status.changed))
  }

  private static func settled(_ time: FileTime) -> FileTime {
    // The kernel's clock ticks every 1 to 10 ms; file systems that keep whole seconds count by 1 (HFS+) or 2 (FAT).
    time.advanced(byMilliseconds: time.nanoseconds == 0 ? 2_001 : 21)
  }

  /// Whether the file is as it was, as far as can be told without reading it.
  package func matches(_ status: FileStatus) -> Bool {
    byteCount == status.byteCount && modified == status.modified && inode == status.inode
      && changed == status.changed
  }

  /// The mark in a version's metadata, or nil when that is something else.
  package init?(metadata: [UInt8]) {
    let isFirst = metadata.count == 32 && metadata.starts(with: Self.firstTag)
    guard isFirst || metadata.count == Self.byteCount && metadata.starts(with: Self.tag) else { return nil }
    func field<T: FixedWidthInteger>(_ offset: Int, _ type: T.Type) -> T {
      metadata.withUnsafeBytes { T(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: T.self)) }
    }
    func time(seconds: Int, nanoseconds: Int) -> FileTime? {
      let nanoseconds = field(nanoseconds, UInt32.self)
      guard nanoseconds < 1_000_000_000 else { return nil }
      return FileTime(seconds: field(seconds, Int64.self), nanoseconds: Int32(nanoseconds))
    }
    guard let modified = time(seconds: 16, nanoseconds: 4) else { return nil }
    self.modified = modified
    byteCount = field(8, Int64.self)
    inode = field(24, UInt64.self)
    if isFirst { return }
    changed = time(seconds: 32, nanoseconds: 40)
    if changed == nil, field(40, UInt32.self) != Self.unknown { return nil }
  }

  package var metadata: [UInt8] {
    var writer = ByteWriter(capacity: Self.byteCount)
    writer.raw(Self.tag)
    writer.integer(modified.nanoseconds)
    writer.integer(byteCount)
    writer.integer(modified.seconds)
    writer.integer(inode)
    writer.integer(changed?.seconds ?? 0)
    writer.integer(changed.map { UInt32(bitPattern: $0.nanoseconds) } ?? Self.unknown)
    return writer.bytes
  }
}

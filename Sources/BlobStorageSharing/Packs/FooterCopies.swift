import BlobStorage
import SystemPackage

/// Keeps copies of headers and footers of published packs on this machine. They suffice to build a catalog, and to
/// remove a removed pack's records from it.
///
/// Each pack has one file: the pack's length, its footer's offset, its header, its footer, and a checksum of all that.
/// A lost or damaged copy is fetched again while its pack exists.
struct FooterCopies: Sendable {
  private let folder: FilePath
  /// The folder of incomplete copies. It is separate, because the folder of footers may have very many entries.
  private let incoming: FilePath
  private let files: any FileSystem

  static let beginByteCount = 16
  /// The most bytes to read, copy or check at once.
  static let stepByteCount = 4 << 20

  init(state: FilePath, files: any FileSystem) {
    folder = state.entry("footers")
    incoming = state.entry("incoming")
    self.files = files
  }

  private func path(_ name: PackName) -> FilePath { folder.entry("\(name).footer") }

  /// Opens the copy of a pack's footer. Returns nil, and deletes the copy, if it is not whole or the medium cannot read
  /// it.
  func open(_ name: PackName) throws(BlobStorageError) -> FooterCopy? {
    guard let found = try files.openIfThere(path(name), .read) else { return nil }
    let file = PackFile(found)
    if let copy = try unlessCorrupted(try checked(file)) ?? nil { return copy }
    file.close()
    forget(name)
    return nil
  }

  private func checked(_ file: any File) throws(BlobStorageError) -> FooterCopy? {
    let byteCount = try file.status().byteCount
    let begin = Self.beginByteCount
    guard byteCount >= Int64(begin + PackHeader.byteCount + 4) else { return nil }
    var checksum: UInt32 = 0
    var offset: Int64 = 0
    while offset < byteCount - 4 {
      let part = try file.bytesThere(at: offset, Int(min(byteCount - 4 - offset, Int64(Self.stepByteCount))))
      guard !part.isEmpty else { return nil }
      checksum = CRC32C.checksum(part.span.bytes, continuing: checksum)
      offset += Int64(part.count)
    }
    let end = try file.bytesThere(at: byteCount - 4, 4)
    let start = try file.bytesThere(at: 0, begin)
    guard end.count == 4, start.count == begin,
      end.withUnsafeBytes({ $0.loadUnaligned(as: UInt32.self) }).littleEndian == checksum
    else { return nil }
    let (packByteCount, footerOffset) = start.withUnsafeBytes {
      (
        Int64(littleEndian: $0.loadUnaligned(as: Int64.self)),
        Int64(littleEndian: $0.loadUnaligned(fromByteOffset: 8, as: Int64.self))
      )
    }
    guard footerOffset >= Int64(PackHeader.byteCount), packByteCount >= footerOffset,
      packByteCount - footerOffset == byteCount - Int64(begin + PackHeader.byteCount + 4)
    else { return nil }
    return FooterCopy(file: file, byteCount: packByteCount, footerOffset: footerOffset)
  }

  /// Copies header and footer of a pack through `read`. Makes no copy if the pack's trailer is damaged.
  ///
  /// - Parameter tail: the last bytes of the pack, if already known.
  /// - Throws: also the errors of `read`, such as `packGone`.
  func make(
    _ name: PackName, byteCount: Int64, tail: [UInt8] = [],
    _ read: (Range<Int64>) throws(BlobStorageError) -> [UInt8]
  ) throws(BlobStorageError) {
    let tailStart = byteCount - Int64(tail.count)
    func bytes(_ range: Range<Int64>) throws(BlobStorageError) -> [UInt8] {
      if range.lowerBound >= tailStart {
        return Array(tail[Int(range.lowerBound - tailStart)..<Int(range.upperBound - tailStart)])
      }
      return try read(range)
    }
    let trailerByteCount = Int64(PackFooter.Trailer.byteCount)
    guard byteCount >= Int64(PackHeader.byteCount) + trailerByteCount else { return }
    let last = try bytes(byteCount - trailerByteCount..<byteCount)
    guard let trailer = last.withUnsafeBytes({ PackFooter.Trailer($0, name: name, packByteCount: byteCount) })
    else { return }
    let temporary = incoming.entry("\(name).\(Hex.text(randomUInt64()))")
    let file = try files.open(temporary, .create)
    defer { file.close() }
    do throws(BlobStorageError) {
      var begin = ByteWriter(capacity: Self.beginByteCount)
      begin.integer(byteCount)
      begin.integer(trailer.footerOffset)
      var offset: Int64 = 0
      var checksum: UInt32 = 0
      func append(_ part: [UInt8]) throws(BlobStorageError) {
        checksum = CRC32C.checksum(part.span.bytes, continuing: checksum)
        try file.put(part, at: offset)
        offset += Int64(part.count)
      }
      try append(begin.bytes)
      try append(try bytes(0..<Int64(PackHeader.byteCount)))
      var place = trailer.footerOffset
      while place < byteCount {
        // Stop at `tailStart`, because the rest is in memory.
        let limit = place < tailStart ? tailStart : byteCount
        let part = try bytes(place..<min(limit, place + Int64(Self.stepByteCount)))
        guard !part.isEmpty else { break }
        try append(part)
        place += Int64(part.count)
      }
      var end = ByteWriter(capacity: 4)
      end.integer(checksum)
      try file.put(end.bytes, at: offset)
      try files.rename(temporary, to: path(name))
    } catch {
      files.discard(temporary)
      throw error
    }
  }

  /// The packs with a local copy.
  func names() throws(BlobStorageError) -> Set<PackName> {
    Set(try files.list(folder).compactMap { PackName(fileName: $0, ending: "footer") })
  }

  /// Deletes the copy of a pack's footer. If that fails, the copy stays.
  func forget(_ name: PackName) { files.discard(path(name)) }

  /// Deletes the temporary files of a crash.
  func removeLeftovers() throws(BlobStorageError) {
    // Another process may be writing one of them. It then reads from the object store instead.
    for name in try files.list(incoming) { files.discard(incoming.entry(name)) }
  }
}

/// Header and footer of one pack.
struct FooterCopy: Sendable {
  let file: any File
  let byteCount: Int64
  let footerOffset: Int64

  /// Fills the buffer. Returns false if the range is not all in the header or all in the footer.
  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(BlobStorageError) -> Bool {
    let end = offset + Int64(buffer.count)
    let begin: Int64
    if end <= Int64(PackHeader.byteCount) {
      begin = Int64(FooterCopies.beginByteCount) + offset
    } else if offset >= footerOffset, end <= byteCount {
      begin = Int64(FooterCopies.beginByteCount + PackHeader.byteCount) + offset - footerOffset
    } else {
      return false
    }
    return try file.read(into: buffer, at: begin) == buffer.count
  }
}

import BlobStorage
import SystemPackage

/// Header and footer of published packs, kept on this machine: what a catalog is made of, and what it takes to take a
/// pack out of it after it has gone.
///
/// One file a pack: length of the pack, where its footer begins, its header, its footer, and a checksum over all.
/// Losing or damaging one is harmless as long as the pack is there: it is fetched again.
struct FooterCopies: Sendable {
  let folder: FilePath
  let files: any FileSystem

  static let beginByteCount = 16
  /// So much is read, copied or checked in one go.
  static let stepByteCount = 4 << 20

  private func path(_ name: PackName) -> FilePath { folder.appending("\(name).footer") }

  /// The copy of a pack's footer; nil when there is none that is whole.
  func open(_ name: PackName) throws(BlobStorageError) -> FooterCopy? {
    guard let file = try files.openIfThere(path(name), .read) else { return nil }
    if let copy = try checked(file) { return copy }
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
      checksum = part.withUnsafeBytes { CRC32C.checksum($0, continuing: checksum) }
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
    guard packByteCount - footerOffset == byteCount - Int64(begin + PackHeader.byteCount + 4),
      footerOffset >= Int64(PackHeader.byteCount)
    else { return nil }
    return FooterCopy(file: file, byteCount: packByteCount, footerOffset: footerOffset)
  }

  /// Makes a copy of what `read` gives of a pack; nothing when the pack has no footer that could be told.
  ///
  /// - Parameter tail: the last bytes of the pack, if they are known already.
  /// - Throws: also `packGone`, by `read`.
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
    let temporary = folder.appending("\(name).\(Hex.text(randomUInt64())).new")
    let file = try files.open(temporary, .create)
    defer { file.close() }
    do throws(BlobStorageError) {
      var begin = ByteWriter(capacity: Self.beginByteCount)
      begin.integer(byteCount)
      begin.integer(trailer.footerOffset)
      var offset: Int64 = 0
      var checksum: UInt32 = 0
      func append(_ part: [UInt8]) throws(BlobStorageError) {
        checksum = part.withUnsafeBytes { CRC32C.checksum($0, continuing: checksum) }
        try file.put(part, at: offset)
        offset += Int64(part.count)
      }
      try append(begin.bytes)
      try append(try bytes(0..<Int64(PackHeader.byteCount)))
      var place = trailer.footerOffset
      while place < byteCount {
        // What is known already is not asked for.
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

  /// The packs that there are copies of.
  func names() throws(BlobStorageError) -> Set<PackName> {
    Set(try files.list(folder).compactMap { PackName(fileName: $0, ending: "footer") })
  }

  /// Removes the copy of a pack's footer. One that stays is looked at by nobody.
  func forget(_ name: PackName) { files.discard(path(name)) }

  /// Removes what a crash left half made.
  func removeLeftovers() throws(BlobStorageError) {
    for name in try files.list(folder) where name.hasSuffix(".new") {
      // Another process may be making it: then it makes it again.
      files.discard(folder.appending(name))
    }
  }
}

/// Header and footer of one pack.
struct FooterCopy: Sendable {
  let file: any File
  let byteCount: Int64
  let footerOffset: Int64

  /// Fills the buffer; false when not all of it lies in the header or in the footer.
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

/// The contents of the file `state`: the generation in use, and the evidence that its file can be trusted.
///
/// LMDB trusts its pages: a damaged one can end the process. So LMDB opens only a generation that this boot wrote, or
/// that has the checksum recorded by the last process to close it.
package struct CatalogState: Sendable, Hashable {
  /// The version of the tables and of `state`. A catalog of another layout is rebuilt.
  package static let layout = "10"

  package var generation: String
  /// The boot and the mounts that have written to the generation.
  package var mark: MediumIdentity.Mark
  /// The inode of the catalog's folder. A copy of the store has another, even if hard links share its files.
  package var folder: UInt64
  /// The inode of the database's file. A copy of it has another.
  package var inode: UInt64
  /// The file as the last process to close it left it; nil while processes write to it.
  package var clean: CleanFile?

  package init(
    generation: String, mark: MediumIdentity.Mark, folder: UInt64, inode: UInt64, clean: CleanFile? = nil
  ) {
    self.generation = generation
    self.mark = mark
    self.folder = folder
    self.inode = inode
    self.clean = clean
  }

  /// Fails for text of another layout, and for text that no process wrote.
  package init?(_ text: String) {
    let words = text.split(whereSeparator: { $0 == " " || $0 == "\n" })
    guard words.count == 4 || words.count == 9, words[0] == Self.layout, words[1].hasPrefix("g"),
      words[1].utf8.count <= 32, words[1].allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber) })
    else { return nil }
    let inodes = words[3].split(separator: "/", omittingEmptySubsequences: false)
    guard inodes.count == 2, let folder = UInt64(inodes[0]), let inode = UInt64(inodes[1]) else { return nil }
    self.init(
      generation: String(words[1]), mark: MediumIdentity.Mark(words[2]), folder: folder, inode: inode)
    guard words.count == 9 else { return }
    guard let byteCount = Int64(words[4]), let seconds = Int64(words[5]), let nanoseconds = Int32(words[6]),
      let checksum = UInt32(words[7]), words[8] == "clean"
    else { return nil }
    clean = CleanFile(
      byteCount: byteCount, changed: FileTime(seconds: seconds, nanoseconds: nanoseconds), checksum: checksum)
  }

  /// The contents as one line.
  package var text: String {
    let written = "\(Self.layout) \(generation) \(mark.text) \(folder)/\(inode)"
    guard let clean else { return written + "\n" }
    let changed = clean.changed
    return
      "\(written) \(clean.byteCount) \(changed.seconds) \(changed.nanoseconds) \(clean.checksum) clean\n"
  }
}

/// The database's file as the last process to close it left it.
package struct CleanFile: Sendable, Hashable {
  package var byteCount: Int64
  /// When the system last saw a change of the file (ctime).
  package var changed: FileTime
  /// CRC32C of the whole file.
  package var checksum: UInt32

  package init(byteCount: Int64, changed: FileTime, checksum: UInt32) {
    self.byteCount = byteCount
    self.changed = changed
    self.checksum = checksum
  }

  /// Reads the whole file. No process may write to it meanwhile.
  init(_ file: any File) throws(BlobStorageError) {
    let status = try file.status()
    byteCount = status.byteCount
    changed = status.changed
    checksum = 0
    var offset: Int64 = 0
    while offset < byteCount {
      let bytes = try file.bytesThere(at: offset, 1 << 20)
      // The file was truncated meanwhile, which its length shows.
      guard !bytes.isEmpty else {
        byteCount = offset
        return
      }
      checksum = CRC32C.checksum(bytes.span.bytes, continuing: checksum)
      offset += Int64(bytes.count)
    }
  }
}

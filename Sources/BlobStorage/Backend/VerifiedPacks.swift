import SystemPackage

/// The file `verified` of a store's folder: how much of each pack was last found undamaged, and when. Format.md, "The
/// file verified".
///
/// It only saves reading. A pack is due if the file is missing or damaged, or disagrees with the pack's file.
struct VerifiedPacks {
  struct Entry: Hashable {
    /// The length up to which the file was read.
    var byteCount: Int64
    /// The file's last change.
    var changed: FileTime
    /// When the read began, in milliseconds since 1970.
    var time: UInt64
  }

  private(set) var entries: [PackName: Entry]

  private static let byteCountMax: Int64 = 16 << 20

  init(_ entries: [PackName: Entry] = [:]) { self.entries = entries }

  /// Whether a pack must be read: it was not read since `time`, or its file has changed.
  func isDue(_ pack: PackName, _ status: FileStatus?, since time: UInt64, now: UInt64) -> Bool {
    guard let entry = entries[pack], let status else { return true }
    // A time in the future proves nothing.
    return entry.byteCount != status.byteCount || entry.changed != status.changed || entry.time < time
      || entry.time > now
  }

  /// Reads the file; no entries if it is missing or damaged.
  static func read(_ folder: StoreFolder) -> VerifiedPacks {
    do throws(BlobStorageError) {
      guard let file = try folder.files.openIfThere(folder.verified, .read) else { return VerifiedPacks() }
      defer { file.close() }
      return try read(file)
    } catch { return VerifiedPacks() }
  }

  /// Adds entries to the file, durably, and removes those of packs that are not in `packs`.
  ///
  /// Replaces the file while it holds the lock of the old one.
  static func add(
    _ entries: [PackName: Entry], of packs: Set<PackName>, to folder: StoreFolder
  ) throws(BlobStorageError) {
    guard let file = try folder.files.openLocked(folder.verified, withinSeconds: 10) else {
      throw BlobStorageError(.busy, "Another process holds the lock of \(folder.verified).")
    }
    defer { file.close() }
    let known = try read(file).entries
    // If two processes verify a pack at once, the later entry wins.
    let all = known.filter { packs.contains($0.key) }.merging(entries) { $0.time > $1.time ? $0 : $1 }
    let bytes = VerifiedPacks(all).bytes
    guard bytes.count <= byteCountMax else { return }
    try folder.files.replace(folder.verified, with: bytes).close()
  }

  private static func read(_ file: any File) throws(BlobStorageError) -> VerifiedPacks {
    let byteCount = try file.status().byteCount
    guard byteCount <= byteCountMax else { return VerifiedPacks() }
    return VerifiedPacks(bytes: try file.bytesThere(at: 0, Int(byteCount))) ?? VerifiedPacks()
  }

  // MARK: Text

  var bytes: [UInt8] {
    CheckedLines.bytes(
      entries.sorted { $0.key < $1.key }.map { pack, entry in
        "\(pack) \(entry.byteCount) \(entry.changed.seconds) \(entry.changed.nanoseconds) \(entry.time)"
      })
  }

  init?(bytes: [UInt8]) {
    guard let lines = CheckedLines.words(bytes) else { return nil }
    entries = [:]
    for words in lines {
      guard words.count == 5, let pack = PackName(words[0]), let byteCount = Int64(words[1]),
        let seconds = Int64(words[2]), let nanoseconds = Int32(words[3]), let time = UInt64(words[4])
      else { return nil }
      entries[pack] = Entry(
        byteCount: byteCount, changed: FileTime(seconds: seconds, nanoseconds: nanoseconds), time: time)
    }
  }
}

import SystemPackage

/// Packs as objects, `packs/NAME.pack` each.
///
/// A pack is written into a folder of this machine, the *spool*, sealed there, and published with one put that stores
/// only where no object has its name. From then on it never changes, and everybody reads it by ranges. What was in the
/// spool when its process died is published by whoever opens the state folder next.
package final class RemoteBackend: PublishingBackend {
  package let objects: any ObjectStore
  package let storeID: [UInt8]
  let spool: FolderBackend
  private let spoolFolder: FilePath
  let footers: FooterCopies
  let fetches: RangeFetches
  /// How many requests are under way at once where many are needed; 0 for one after the other on the caller's thread.
  let width: Int
  /// Of packs that are known to have been published.
  private let lengths = Mutex<[PackName: Int64]>([:])

  private static let packsPrefix = "packs/"
  /// So much of a pack's end is asked for at once: most footers are shorter.
  static let tailByteCount = 256 << 10

  /// - Parameters:
  ///   - folder: the state folder; `packs`, `footers` and `ranges` in it exist.
  ///   - asideFolder: where packs go that cannot be published.
  package init(
    objects: any ObjectStore, storeID: [UInt8], folder: FilePath, asideFolder: FilePath,
    files: any FileSystem, cacheByteCountMax: Int64, width: Int = 8, weaknesses: Weaknesses = []
  ) {
    self.objects = objects
    self.storeID = storeID
    self.width = width
    spoolFolder = folder.appending("packs")
    spool = FolderBackend(
      folder: spoolFolder, asideFolder: asideFolder, files: files, weaknesses: weaknesses, synchronizes: false)
    footers = FooterCopies(folder: folder.appending("footers"), files: files)
    fetches = RangeFetches(
      objects: objects,
      cache: RangeCache(folder: folder.appending("ranges"), files: files, byteCountMax: cacheByteCountMax))
  }

  // MARK: Names

  package func localPackNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName]) {
    try spool.packNames()
  }

  package func packNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName]) {
    let local = try spool.packNames()
    let published = try publishedPacks()
    return (local.live + published.keys.filter { !local.live.contains($0) }.sorted(), local.retired)
  }

  package func publishedPacks() throws(BlobStorageError) -> [PackName: Int64] {
    var found: [PackName: Int64] = [:]
    var fences: [UInt64: UInt32] = [:]
    var last: String?
    while true {
      let page = try objects.list(Self.packsPrefix, after: last)
      for entry in page.entries {
        guard let name = PackName(fileName: String(entry.name.dropFirst(Self.packsPrefix.count))) else {
          continue
        }
        if entry.byteCount == Int64(PackFence.byteCount) {
          fences[name.writer] = min(name.sequence, fences[name.writer] ?? .max)
        } else {
          found[name] = entry.byteCount
        }
      }
      guard page.isTruncated, let next = page.entries.last?.name else { break }
      last = next
    }
    if !fences.isEmpty { found = found.filter { $0.key.sequence < fences[$0.key.writer] ?? .max } }
    let known = found
    lengths.withLock { $0 = known }
    return found
  }

  // MARK: Packs

  package func createPack(_ name: PackName, header: [UInt8]) throws(BlobStorageError) -> any File {
    try spool.createPack(name, header: header)
  }

  package func openPack(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    if let file = try spool.openPack(name) { return file }
    let footer = try footers.open(name)
    if let footer {
      return RemoteFile(name: name, byteCount: footer.byteCount, fetches: fetches, footer: footer)
    }
    var known = lengths.withLock { $0[name] }
    if known == nil { known = try fetchFooter(name) }
    guard let byteCount = known else { return nil }
    return RemoteFile(name: name, byteCount: byteCount, fetches: fetches, footer: nil)
  }

  package func adoptPack(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    try spool.adoptPack(name)
  }

  package func synchronizeNames() throws(BlobStorageError) { try spool.synchronizeNames() }

  package func removeLeftovers() throws(BlobStorageError) {
    try spool.removeLeftovers()
    try footers.removeLeftovers()
  }

  package func setAsidePack(_ name: PackName) throws(BlobStorageError) -> String {
    try spool.setAsidePack(name)
  }

  package func retirePacks(_ names: [PackName]) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    throw BlobStorageError(
      .invalidArgument, "A pack in \(objects.place) goes only once all machines know that it will.")
  }

  package func removeRetiredPack(_ name: PackName) throws(BlobStorageError) { forget(name) }

  package func forget(_ name: PackName) {
    lengths.withLock { $0[name] = nil }
    footers.forget(name)
    fetches.cache.forget(name)
  }

  package func allocatedByteCount() throws(BlobStorageError) -> Int64 {
    try lengths.withLock { $0.values.reduce(0, +) } + spool.allocatedByteCount()
  }

  // MARK: Publishing

  package func publish(
    _ name: PackName, _ file: any File, byteCount: Int64
  ) throws(BlobStorageError) -> Publication {
    let object = RangeFetches.objectName(name)
    switch try objects.put(object, .file(file, byteCount: byteCount), ifAbsent: true) {
    case .stored: break
    case .exists:
      // An earlier attempt of our own, or a fence: what is there decides.
      switch try compare(object, name, file, byteCount) {
      case .published: break
      case let other: return other
      }
    }
    lengths.withLock { $0[name] = byteCount }
    do throws(BlobStorageError) {
      try footers.make(name, byteCount: byteCount) { (range) throws(BlobStorageError) in
        try file.part(at: range.lowerBound, Int(range.upperBound - range.lowerBound))
      }
    } catch {
      // It is fetched when it is needed.
    }
    return .published
  }

  private func compare(
    _ object: String, _ name: PackName, _ file: any File, _ byteCount: Int64
  ) throws(BlobStorageError) -> Publication {
    guard let tail = try objects.tail(object, byteCount: Int(min(byteCount, Int64(PackFence.byteCount))))
    else {
      // It was there a moment ago, and a name is never used twice.
      return .taken
    }
    if tail.byteCount == Int64(PackFence.byteCount) { return .fenced }
    guard tail.byteCount == byteCount else { return .taken }
    var offset: Int64 = 0
    while offset < byteCount {
      let range = offset..<min(offset + Int64(FooterCopies.stepByteCount), byteCount)
      guard let theirs = try objects.get(object, range) else { return .taken }
      let ours = try file.part(at: offset, Int(range.upperBound - offset))
      guard !theirs.isEmpty, theirs == ours else { return .taken }
      offset = range.upperBound
    }
    return .published
  }

  package func settle(_ name: PackName) throws(BlobStorageError) {
    guard let file = try spool.openPack(name) else { return }
    defer { file.close() }
    try fetches.cache.take(
      spoolFolder.appending(name.fileName), name, byteCount: try file.status().byteCount)
  }

  // MARK: Footers

  package func forEachPublished(
    _ names: [PackName], _ body: (PackName, (any File)?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let ahead = FetchAhead(count: names.count, width: width) { [self] (index) throws(BlobStorageError) in
      try fetchFooter(names[index])
    }
    defer { ahead.stop() }
    for (index, name) in names.enumerated() {
      guard let byteCount = try ahead.take(index) else {
        try body(name, nil)
        continue
      }
      let file = RemoteFile(
        name: name, byteCount: byteCount, fetches: fetches, footer: try footers.open(name))
      defer { file.close() }
      try body(name, file)
    }
  }

  /// Has header and footer of a pack here, and says how long the pack is; nil when it has gone.
  private func fetchFooter(_ name: PackName) throws(BlobStorageError) -> Int64? {
    if let copy = try footers.open(name) { return copy.byteCount }
    let object = RangeFetches.objectName(name)
    guard let (tail, byteCount) = try objects.tail(object, byteCount: Self.tailByteCount),
      byteCount != Int64(PackFence.byteCount)
    else { return nil }
    do throws(BlobStorageError) {
      try footers.make(name, byteCount: byteCount, tail: tail) { [objects] (range) throws(BlobStorageError) in
        guard let bytes = try objects.get(object, range) else {
          throw BlobStorageError(
            .packGone, "Pack \(name) is not in \(objects.place) any more.", pack: name.description)
        }
        return bytes
      }
    } catch {
      if error.code == .packGone { return nil }
      throw error
    }
    return byteCount
  }
}

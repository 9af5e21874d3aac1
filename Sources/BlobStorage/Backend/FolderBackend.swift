import SystemPackage

/// Keeps packs as files of a folder. A pack's file is `NAME.new` until its header is written, then `NAME.pack`, and
/// `NAME.gone` once retired. It is `NAME.found` while repair renames it.
package struct FolderBackend: Backend {
  private let folder: FilePath
  private let asideFolder: FilePath
  private let files: any FileSystem
  private let weaknesses: Weaknesses
  /// Whether to sync names and headers. False in a spool, because packs are checked before they are published.
  private let synchronizes: Bool
  package let census: any CensusLog
  package var isDurableOnceSynced: Bool { true }

  /// Keeps packs in `folder`, which exists. Moves damaged packs to `asideFolder`, which it creates when needed.
  package init(
    folder: FilePath, asideFolder: FilePath, files: any FileSystem, weaknesses: Weaknesses = [],
    synchronizes: Bool = true, census: any CensusLog
  ) {
    self.census = census
    self.synchronizes = synchronizes
    self.folder = folder
    self.asideFolder = asideFolder
    self.files = files
    self.weaknesses = weaknesses
  }

  /// With less free space than this, open packs allocate nothing ahead.
  private static let freeByteCountMin: Int64 = 64 << 20

  package var hasRoomAhead: Bool {
    do throws(BlobStorageError) {
      return try files.availableByteCount(at: folder) >= Self.freeByteCountMin
    } catch { return false }
  }

  package func packNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName]) {
    var live: [PackName] = []
    var retired: [PackName] = []
    for name in try files.listFiles(folder) {
      if let pack = PackName(fileName: name) {
        live.append(pack)
      } else if let pack = PackName(fileName: name, ending: "gone") {
        retired.append(pack)
      }
    }
    // Read the census after the listing: gc enters a removal before it renames the file.
    let census = try census.read()
    retired += live.filter { census.isRemoved($0) }
    live.removeAll { census.hasLeft($0) }
    return (live, retired)
  }

  package func createPack(_ name: PackName, header: [UInt8]) throws(BlobStorageError) -> any File {
    let (isThere, isRetired) = (try has(name, "pack"), try has(name, "gone"))
    guard !isThere && !isRetired || weaknesses.contains(.reusesPackNames) else {
      throw BlobStorageError(
        .io, "Pack \(name) exists already: names of packs are never reused.", pack: name.description)
    }
    return try OwnedFiles(folder: folder, files: files).create(name.fileName) {
      (file) throws(BlobStorageError) in
      try file.put(header, at: 0)
      // A power cut must not leave the name without the header: that would look like damage.
      if synchronizes { try file.synchronize() }
    }
  }

  package func removeNewPack(_ name: PackName) throws(BlobStorageError) {
    try files.remove(path(name, "pack"))
  }

  package func openPack(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    if let file = try open(path(name, "pack"), .read) { return file }
    return try open(path(name, "gone"), .read)
  }

  /// Opens a pack's file; nil if the path is free or not a regular file.
  private func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> (any File)? {
    try files.openIfRegular(path, intent).map { PackFile($0) }
  }

  package func adoptPack(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    guard let file = try open(path(name, "pack"), .readWrite) else { return nil }
    // Another process may have retired it between opening and locking, or replaced it by a copy.
    let isLocked = try file.lock(.exclusive, wait: false) || weaknesses.contains(.recoversWithoutLock)
    guard isLocked, try files.names(path(name, "pack"), file) else {
      file.close()
      return nil
    }
    return file
  }

  package func ownPack(_ name: PackName, _ file: any File) throws(BlobStorageError) -> any File {
    guard try file.status().linkCount > 1 else { return file }
    let copy = try OwnedFiles(folder: folder, files: files).create(name.fileName) {
      (copy) throws(BlobStorageError) in
      try file.copyBytes(to: copy)
      // Until the sync of the folder, a power cut may keep either file. Both have all records.
      if synchronizes { try copy.synchronize() }
    }
    return PackFile(copy)
  }

  package func retirePacks(_ names: [PackName]) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    // First and durably: no pack may lose its name without a line in the census.
    try census.append(
      names.map { .removed($0.sequence...$0.sequence, writer: $0.writer) }, durably: true)
    for name in names {
      do throws(BlobStorageError) { try files.rename(path(name, "pack"), to: path(name, "gone")) } catch {
        // On a full disk the transaction around this call may run again.
        guard error.isMissingName, try has(name, "gone") else { throw error }
      }
    }
    try files.syncDirectory(folder)
  }

  package func finishLeaving() throws(BlobStorageError) {
    let census = try census.read()
    let names = try files.listFiles(folder).compactMap { PackName(fileName: $0) }.filter {
      census.hasLeft($0)
    }
    guard !names.isEmpty else { return }
    // The process that appended this line may have died before the line was on the medium, or its sync failed. A pack
    // that lost its name without the line would count as lost.
    try self.census.append(
      names.map { name in
        census.isRemoved(name)
          ? .removed(name.sequence...name.sequence, writer: name.writer) : .setAside(name)
      }, durably: true)
    for name in names where census.isRemoved(name) {
      try files.rename(path(name, "pack"), to: path(name, "gone"))
    }
    try files.syncDirectory(folder)
    for name in names where !census.isRemoved(name) { _ = try moveAside(name) }
  }

  package func removeRetiredPack(_ name: PackName) throws(BlobStorageError) {
    try files.removeIfThere(path(name, "gone"))
  }

  package func setAsidePack(_ name: PackName) throws(BlobStorageError) -> String {
    try census.append([.setAside(name)], durably: true)
    return try moveAside(name)
  }

  /// Whether a pack was set aside and its file is still there.
  package func hasAside(_ name: PackName) throws(BlobStorageError) -> Bool {
    try files.status(of: asideFolder.entry(name.fileName)) != nil
  }

  private func moveAside(_ name: PackName) throws(BlobStorageError) -> String {
    if try files.status(of: asideFolder) == nil {
      do throws(BlobStorageError) { try files.createPart(asideFolder) } catch {
        // Another process that opens the folder sets packs aside, too.
        guard error.errno == Errno.fileExists.rawValue else { throw error }
      }
    }
    // Also if another process has made it, which may have been killed before this.
    try files.syncDirectory(asideFolder.folder)
    guard try files.status(of: asideFolder)?.kind == .directory else {
      throw BlobStorageError(
        .notAStore, "\(asideFolder) is not a folder: a damaged pack cannot be set aside.",
        path: asideFolder.string)
    }
    let target = asideFolder.entry(name.fileName)
    try files.rename(path(name, "pack"), to: target)
    try files.syncDirectory(asideFolder)
    try files.syncDirectory(folder)
    return target.string
  }

  package func restoreNames(
    of store: StoreHeader
  ) throws(BlobStorageError) -> (found: Set<PackName>, left: Set<PackName>) {
    let census = try census.read()
    var owners: [PackName: PackName] = [:]
    for name in try files.listFiles(folder).compactMap({ PackName(fileName: $0) }) {
      guard let owner = owner(of: name, store), owner != name, !census.hasLeft(owner) else {
        continue
      }
      owners[name] = owner
    }
    // A copy beside the pack itself keeps its name. Of two copies, one is renamed.
    var found: Set<PackName> = []
    for (name, owner) in owners.sorted(by: { $0.key < $1.key }) where !found.contains(owner) {
      if owners[owner] == nil, try has(owner, "pack") { continue }
      try files.rename(path(name, "pack"), to: path(owner, "found"))
      found.insert(owner)
    }
    let waiting = try files.listFiles(folder).compactMap { PackName(fileName: $0, ending: "found") }
    // A power cut must not keep a later rename without these: it could replace the only name of an exchanged pack.
    if !waiting.isEmpty { try files.syncDirectory(folder) }
    for owner in waiting {
      if try has(owner, "pack") { continue }
      try files.rename(path(owner, "found"), to: path(owner, "pack"))
      found.insert(owner)
    }
    if !found.isEmpty { try files.syncDirectory(folder) }
    let left = Set(owners.keys).subtracting(found)
    var unused: Set<PackName> = []
    for name in left where try !has(name, "pack") { unused.insert(name) }
    return (found, unused)
  }

  /// The pack whose header the named file has; nil if the header is unreadable or another store's.
  private func owner(of name: PackName, _ store: StoreHeader) -> PackName? {
    do throws(BlobStorageError) {
      guard let file = try open(path(name, "pack"), .read) else { return nil }
      defer { file.close() }
      let bytes = try file.bytesThere(at: 0, PackHeader.byteCount)
      let header = try bridge(bytes) { (raw) throws(BlobStorageError) in try PackHeader(raw) }
      return header.storeID == store.storeID ? header.name : nil
    } catch {
      // The medium is bad, or a later build wrote the pack. The repair goes on and reports the pack.
      return nil
    }
  }

  package func synchronizeNames() throws(BlobStorageError) {
    if synchronizes { try files.syncDirectory(folder) }
  }

  package func removeLeftovers() throws(BlobStorageError) {
    let names = try files.list(folder).filter { $0.hasSuffix(".new") }
    do throws(BlobStorageError) {
      for name in names {
        // A living writer holds the lock until it has renamed the file.
        try OwnedFiles(folder: folder, files: files).visit(name) { (_, isDead) throws(BlobStorageError) in
          if isDead { try files.remove(folder.entry(name)) }
        }
      }
    } catch { guard error.isRefusal else { throw error } }
  }

  private func path(_ name: PackName, _ ending: String) -> FilePath { folder.entry("\(name).\(ending)") }

  private func has(_ name: PackName, _ ending: String) throws(BlobStorageError) -> Bool {
    try files.status(of: path(name, ending)) != nil
  }
}

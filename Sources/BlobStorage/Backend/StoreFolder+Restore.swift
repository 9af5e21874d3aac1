import SystemPackage

/// Restoring the file `store`.
extension StoreFolder {
  /// Puts the file `store` back where it is missing, damaged, or another store's: from its copy in the census, or else
  /// from what all packs' headers say, with `defaults` for the rest. What was there goes to `set-aside`.
  ///
  /// - Returns: whether it was put back.
  /// - Throws: what ``readHeader()`` throws when nothing tells what it was; `corrupted` when packs are of several
  ///   stores.
  package func restoreHeader(defaults: StoreHeader) throws(BlobStorageError) -> Bool {
    var current: StoreHeader?
    var failure = BlobStorageError(.noStore, "There is no store at \(path).", path: path.string)
    do throws(BlobStorageError) { current = try readHeader() } catch { failure = error }
    let isFolder = try files.status(of: path)?.kind == .directory
    let hasCensus = isFolder ? try files.status(of: censusPath) != nil : false
    let hasPacks = try holdsPacks()
    // The state of a store elsewhere is not a store.
    let isState = isFolder ? try files.status(of: members) != nil : false
    guard hasCensus || hasPacks, !isState, current.map({ !$0.flags.contains(.stateOnly) }) ?? true
    else {
      if current != nil { return false }
      throw failure
    }
    let copy = try census.read().store.flatMap { bytes in
      bytes.withUnsafeBytes { (raw) -> StoreHeader? in try? StoreHeader(raw) }
    }
    if current == nil, failure.code == .unsupportedFormat, try !isCopy(copy) { throw failure }
    let owner = try ownerOfPacks()
    func fits(_ header: StoreHeader) -> Bool {
      owner.map { $0.storeID == header.storeID && $0.digestAlgorithm == header.digestAlgorithm } ?? true
    }
    if let current, fits(current), copy == nil || copy == current || copy.map(fits) == false { return false }
    let restored: StoreHeader
    if let copy, fits(copy) {
      restored = copy
    } else if let owner {
      restored = StoreHeader(
        flags: defaults.flags, digestAlgorithm: owner.digestAlgorithm, codecNumber: defaults.codecNumber,
        level: defaults.level, chunkByteCountAverage: defaults.chunkByteCountAverage, storeID: owner.storeID,
        created: owner.created >> 16)
    } else {
      throw failure
    }
    try write(restored)
    return true
  }

  /// Whether the file is its copy but for the format version, whose check comes before the checksum's.
  private func isCopy(_ copy: StoreHeader?) throws(BlobStorageError) -> Bool {
    guard let copy else { return false }
    let file = try files.open(header, .read)
    defer { file.close() }
    let bytes = try file.bytesThere(at: 0, StoreHeader.byteCount)
    return bytes.prefix(8) == copy.encoded().prefix(8) && bytes.dropFirst(10) == copy.encoded().dropFirst(10)
  }

  /// What the packs say of their store: the header of the oldest; nil when none can be read.
  private func ownerOfPacks() throws(BlobStorageError) -> PackHeader? {
    guard try files.status(of: packs)?.kind == .directory else { return nil }
    var oldest: PackHeader?
    for name in try files.list(packs) {
      guard let pack = PackName(fileName: name) else { continue }
      let file = try files.open(packs.appending(name), .read)
      defer { file.close() }
      let bytes = try file.bytesThere(at: 0, PackHeader.byteCount)
      guard let header = bytes.withUnsafeBytes({ (raw) -> PackHeader? in try? PackHeader(raw) }),
        header.name == pack
      else { continue }
      guard let known = oldest else {
        oldest = header
        continue
      }
      guard known.storeID == header.storeID, known.digestAlgorithm == header.digestAlgorithm else {
        throw BlobStorageError(
          .corrupted, "Packs \(known.name) and \(header.name) in \(path) are of different stores: part them.",
          path: path.string)
      }
      if header.created < known.created { oldest = header }
    }
    return oldest
  }

  private func write(_ restored: StoreHeader) throws(BlobStorageError) {
    if try files.status(of: header) != nil {
      try makePart(aside)
      try files.rename(header, to: aside.appending("store"))
    }
    try files.replace(header, with: restored.encoded()).close()
  }
}

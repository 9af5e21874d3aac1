/// Applies records as rows, and retracts them.
///
/// Invariants, whatever the order in which packs and their records are applied:
/// 1. Every record of every pack counts once: a pack's row says how far the pack has been applied.
/// 2. A version is visible if and only if a pack has a copy of its ref and no record names it as gone.
/// 3. The row of a chunk or manifest points at the copy in the youngest pack. A chunk's copy without a base has
///    priority. A new copy replaces one in a condemned pack. Exception: a copy with a base that another machine
///    published does not, because chunks may still be encoded against the old copy.
extension WriteTransaction {
  /// Applies the next record of the pack `number`; the caller stores the changed `pack` row.
  ///
  /// - Parameters:
  ///   - isTakenIn: whether it comes from a pack that another machine may have published.
  ///   - isRebuilding: whether some packs of the store may not have been applied yet.
  package func apply(
    _ record: PackRecord, from number: UInt32, _ pack: inout PackRow,
    isTakenIn: Bool = false, isRebuilding: Bool = false
  ) throws(BlobStorageError) {
    precondition(record.offset == pack.appliedByteCount, "records are applied in order, each once")
    let place = Place(pack: number, offset: record.offset, ordinal: pack.recordCount)
    switch record.content {
    case .chunk(let chunk):
      if let base = chunk.base { try countBase(base, by: 1) }
      try apply(
        chunk, at: place, storedByteCount: record.storedByteCount, frameOffset: record.frameOffset, in: pack,
        isTakenIn: isTakenIn, isRebuilding: isRebuilding)
    case .manifest(let manifest):
      try apply(manifest, at: place, in: pack)
    case .ref(let ref):
      try apply(ref, at: place, byteCount: record.byteCount, in: pack)
    case .drop(let drop):
      try raiseClock(drop.stamp.time)
      try updateName(drop.key) { (name) throws(BlobStorageError) in
        for version in drop.versions { try addMasker(&name, version) }
      }
    case .skipped:
      break
    }
    pack.appliedByteCount += Int64(record.byteCount)
    pack.recordCount += 1
  }

  /// Applies a chunk or manifest again after its pack was pardoned. While the pack was condemned, any other copy could
  /// take the row.
  func applyAgain(_ record: PackRecord, at place: Place, in pack: PackRow) throws(BlobStorageError) {
    switch record.content {
    case .chunk(let chunk):
      try apply(
        chunk, at: place, storedByteCount: record.storedByteCount, frameOffset: record.frameOffset, in: pack,
        isTakenIn: false)
    case .manifest(let manifest): try apply(manifest, at: place, in: pack)
    case .ref, .drop, .skipped: break
    }
  }

  private func apply(
    _ manifest: ManifestRecord, at place: Place, in pack: PackRow
  ) throws(BlobStorageError) {
    // As for chunks, a copy in a condemned, poisoned or lost pack does not count.
    if let old = try manifestRow(manifest.digest), try isTrusted(old.place.pack),
      try isOlder(pack, than: old.place.pack)
    {
      return
    }
    try setManifestRow(manifest.digest, ManifestRow(place: place, record: manifest))
  }

  /// Sets the row of a chunk to a copy, unless another copy has priority. For a chunk without a base this is the whole
  /// effect of its record, and it is idempotent.
  package func apply(
    _ chunk: ChunkRecord, at place: Place, storedByteCount: Int, frameOffset: Int64? = nil, in pack: PackRow,
    isTakenIn: Bool = true, isRebuilding: Bool = false
  ) throws(BlobStorageError) {
    let row = ChunkRow(
      place: place, record: chunk, storedByteCount: storedByteCount, frameOffset: frameOffset)
    let old = try chunkRow(chunk.digest)
    if let old, !old.isSuspect,
      try counts(old, over: row, of: chunk.digest, from: pack, isTakenIn, isRebuilding: isRebuilding)
    {
      return
    }
    try setChunkRow(chunk.digest, row, insteadOf: old)
    if let features = chunk.features, chunk.base == nil { try insert(features, of: chunk.digest) }
  }

  /// Whether the old copy has priority. A copy without a base has priority over one with a base, so that chunks encoded
  /// against it can be read in one hop. Otherwise the copy in the younger pack has priority.
  ///
  /// A rebuild does not check whether bases exist, because it may find them later.
  private func counts(
    _ old: ChunkRow, over new: ChunkRow, of digest: BlobDigest, from pack: PackRow, _ isTakenIn: Bool,
    isRebuilding: Bool
  ) throws(BlobStorageError) -> Bool {
    // A copy that no writer may share, because its pack is condemned or its base is gone, gives way to any other. It
    // stays if chunks encoded against it can be read only with it.
    guard try isRebuilding ? isTrusted(old.place.pack) : chunkToShare(digest) != nil else {
      guard old.base == nil, new.base != nil else { return false }
      if try isBase(digest) { return true }
      guard isTakenIn else { return false }
      return try packRow(old.place.pack)?.state == .condemned
    }
    if (old.base == nil) != (new.base == nil) { return old.base == nil }
    return try isOlder(pack, than: old.place.pack)
  }

  private func isOlder(_ pack: PackRow, than other: UInt32) throws(BlobStorageError) -> Bool {
    guard let row = try packRow(other) else { return false }
    return row.isYounger(than: pack)
  }

  private func apply(
    _ ref: RefRecord, at place: Place, byteCount: Int, in pack: PackRow
  ) throws(BlobStorageError) {
    try raiseClock(ref.version.time)
    let new = VersionRow(place: place, record: ref, recordByteCount: byteCount)
    try updateName(ref.key) { (name) throws(BlobStorageError) in
      // First, so that a replaced version leaves the key's row and is not archived.
      if ref.replaced != .none { try addMasker(&name, ref.replaced) }
      if var mask = try maskRow(of: name, ref.version) {
        mask.copyCount += 1
        try setMaskRow(&name, ref.version, mask)
      } else if var row = try versionRow(of: name, ref.version) {
        row.copyCount += 1
        // One of two copies may name a chunk by a place that cannot be read any more.
        if row.digest.isUnknown, !ref.digest.isUnknown {
          try countVersion(of: row.digest, by: -1)
          (row.digest, row.byteCount) = (ref.digest, ref.byteCount)
          try countVersion(of: row.digest, by: 1)
        }
        // As for chunks, a copy in a condemned, poisoned, lost or removed pack does not count.
        let isOlder = try isTrusted(row.place.pack) ? isOlder(pack, than: row.place.pack) : false
        if !isOlder {
          (row.place, row.recordByteCount) = (new.place, new.recordByteCount)
        }
        try setVersion(&name, StampedVersion(stamp: ref.version, row: row))
      } else {
        try setVersion(&name, StampedVersion(stamp: ref.version, row: new))
        name.versionCount += 1
        try countVersion(of: ref.digest, by: 1)
      }
    }
  }

  private func addMasker(_ name: inout NameRow, _ version: Stamp) throws(BlobStorageError) {
    var mask = MaskRow(copyCount: 0, maskerCount: 0)
    if let known = try maskRow(of: name, version) {
      mask = known
      try count(.orphanedMasks, known.isOrphaned, false)
    } else if let row = try versionRow(of: name, version) {
      mask.copyCount = row.copyCount
      try removeVersion(&name, version)
      name.versionCount -= 1
      try countVersion(of: row.digest, by: -1)
      name.maskCount += 1
    } else {
      name.maskCount += 1
    }
    mask.maskerCount += 1
    try setMaskRow(&name, version, mask)
  }

  /// Removes the effects of a record whose pack has left the store for good. Called from the pack's last record to its
  /// first.
  package func retract(_ record: PackRecord, from number: UInt32)
    throws(BlobStorageError)
  {
    switch record.content {
    case .chunk(let chunk):
      if let base = chunk.base { try countBase(base, by: -1) }
      if let row = try chunkRow(chunk.digest), row.place.pack == number, row.place.offset == record.offset {
        try setChunkRow(chunk.digest, nil, insteadOf: row)
        if let features = chunk.features { try remove(features, of: chunk.digest) }
      }
    case .manifest(let manifest):
      if let row = try manifestRow(manifest.digest), row.place.pack == number,
        row.place.offset == record.offset
      {
        try setManifestRow(manifest.digest, nil)
      }
    case .ref(let ref):
      try updateName(ref.key) { (name) throws(BlobStorageError) in
        if let mask = try maskRow(of: name, ref.version) {
          try keepMask(
            &name, ref.version, mask,
            as: MaskRow(copyCount: mask.copyCount - 1, maskerCount: mask.maskerCount))
        } else if var row = try versionRow(of: name, ref.version) {
          row.copyCount -= 1
          if row.copyCount > 0 {
            try setVersion(&name, StampedVersion(stamp: ref.version, row: row))
          } else {
            try removeVersion(&name, ref.version)
            name.versionCount -= 1
            try countVersion(of: row.digest, by: -1)
          }
        }
        if ref.replaced != .none { try removeMasker(&name, ref.replaced) }
      }
    case .drop(let drop):
      try updateName(drop.key) { (name) throws(BlobStorageError) in
        for version in drop.versions { try removeMasker(&name, version) }
      }
    case .skipped:
      break
    }
  }

  private func removeMasker(_ name: inout NameRow, _ version: Stamp) throws(BlobStorageError) {
    guard let mask = try maskRow(of: name, version) else { return }
    // Records are retracted from the last on, so the record that hides a version goes before the version itself. Until
    // the version is gone too, the row stays and hides it.
    try keepMask(
      &name, version, mask, as: MaskRow(copyCount: mask.copyCount, maskerCount: mask.maskerCount - 1))
  }

  /// Sets a mask, or removes it when it has neither copies nor maskers.
  private func keepMask(
    _ name: inout NameRow, _ version: Stamp, _ old: MaskRow, as mask: MaskRow
  ) throws(BlobStorageError) {
    try count(.orphanedMasks, old.isOrphaned, mask.isOrphaned)
    let isNeeded = mask.copyCount > 0 || mask.maskerCount > 0
    try setMaskRow(&name, version, isNeeded ? mask : nil)
    if !isNeeded { name.maskCount -= 1 }
  }
}

extension WriteTransaction {
  /// Applies records that were appended to open packs.
  ///
  /// - Parameter isPromised: whether a sync follows before the operation that appended them returns.
  func apply(
    _ pending: [(header: PackHeader, record: PackRecord)], isPromised: Bool = false
  ) throws(BlobStorageError) {
    var index = 0
    while index < pending.count {
      let header = pending[index].header
      var row = PackRow(name: header.name, created: header.created)
      let number: UInt32
      if let known = try pack(header.name) {
        number = known.number
        row = known.row
      } else {
        number = try addPack(row)
      }
      while index < pending.count, pending[index].header.name == header.name {
        // A rebuild by another process may have applied it.
        if pending[index].record.offset >= row.appliedByteCount {
          if pending[index].record.offset > row.appliedByteCount {
            // A rebuild by another process could not read these bytes. Or another program removed the catalog,
            // and this process settled what it published into the old one.
            row.isDamaged = true
            row.hasLostRecords = true
            row.appliedByteCount = pending[index].record.offset
          }
          try apply(pending[index].record, from: number, &row)
        }
        index += 1
      }
      if isPromised { row.promisedByteCount = row.appliedByteCount }
      try setPackRow(number, row)
    }
  }
}

import BlobStorage

/// Chooses the packs to remove next, and the keys to evict for it.
///
/// Among the keys that were unused for longest, evicts those whose packs free most for the bytes that must be copied. A
/// pack frees its garbage and what would become garbage. An exact LRU would empty no pack and copy each byte many
/// times. Choosing among the coldest twenty-fifth (twice a step of a fiftieth of the limit) costs next to no hits.
struct CacheChoice {
  var packs: Set<UInt32> = []
  /// Whether copying from one of them exceeds what a step may copy.
  var hasLarge = false
  var keys: [(id: CachedKeyRow.ID, row: CachedKeyRow)] = []

  private struct Pack {
    var byteCount: Int64
    var garbageByteCount: Int64
    var coldByteCount: Int64 = 0
    /// Cold blobs with a part in it, and how many bytes of those that are not evicted yet lie in other packs.
    var digests: [BlobDigest] = []
    var elsewhereByteCount: Int64 = 0

    var freedByteCount: Int64 { min(byteCount, max(0, garbageByteCount) + coldByteCount) }
    var keptByteCount: Int64 { byteCount - freedByteCount }
    /// Packs that free about the same share of themselves rank equal, and then the older goes. Otherwise packs of small
    /// values, whose refs weigh more, would stay forever.
    var rank: Int { Int((share * 12).rounded()) }
    /// Whether it would evict far more than it frees, for example because it has the lists of many long blobs.
    var isCostly: Bool { elsewhereByteCount / 3 > freedByteCount }
    private var share: Double { byteCount > 0 ? Double(freedByteCount) / Double(byteCount) : 1 }
  }

  /// Chooses packs that free `goal` bytes, or as many as possible.
  ///
  /// - Parameter copiesLarge: whether to copy from a pack that is larger than those of a cache, beyond the limit of a
  ///   step. Such a pack is older than the limit; removing it without copying would empty the cache.
  static func make(
    _ cache: CacheCore, goal: Int64, _ limits: CacheLimits, copiesLarge: Bool
  ) throws(BlobStorageError) -> CacheChoice {
    // About the bytes that the cold keys to choose among take: the least recently used ones of the lowest priorities.
    var coldByteCount = goal * 2
    while true {
      let (choice, freed, isAll) = try make(cache, goal: goal, coldByteCount, limits, copiesLarge)
      // Seven eighths are enough: a wider choice would include warmer keys.
      if isAll || choice.hasLarge || freed >= goal - goal / 8 { return choice }
      // Rows may claim any lengths: in the end all keys are cold.
      coldByteCount = coldByteCount > .max / 3 ? .max : coldByteCount * 3
    }
  }

  private static func make(
    _ cache: CacheCore, goal: Int64, _ coldByteCountMax: Int64, _ limits: CacheLimits, _ copiesLarge: Bool
  ) throws(BlobStorageError) -> (CacheChoice, freed: Int64, isAll: Bool) {
    let engine = cache.engine
    var cold: [(id: CachedKeyRow.ID, row: CachedKeyRow)] = []
    var coldCounts: [BlobDigest: Int] = [:]
    var coldByteCount: Int64 = 0
    var isAll = true
    var packs: [UInt32: Pack] = [:]
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      // It runs again if it finds the catalog damaged.
      (cold, coldCounts, coldByteCount, isAll, packs) = ([], [:], 0, true, [:])
      for (number, row) in try transaction.packRows()
      where row.isSealed && !row.isDamaged && row.state == .live {
        packs[number] = Pack(
          byteCount: row.recordsByteCount, garbageByteCount: try transaction.garbageByteCount(number))
      }
      try transaction.forEachCachedKey { id, row in
        cold.append((id, row))
        coldCounts[row.digest, default: 0] += 1
        // The records of tiny values are longer than these. Without them, nearly all rows would be in memory.
        coldByteCount = coldByteCount.addingClamped(row.byteCount).addingClamped(recordByteCount(row))
        isAll = coldByteCount < coldByteCountMax || coldByteCountMax == .max
        return isAll
      }
    }
    let long = try cache.longBlobs(coldCounts.keys)
    let placesByDigest = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [BlobDigest: [(pack: UInt32, byteCount: Int64)]] = [:]
      for (digest, count) in coldCounts where try transaction.versionCount(of: digest) <= count {
        found[digest] = try transaction.places(of: digest, chunks: long[digest])
      }
      return found
    }
    for (digest, places) in placesByDigest {
      for (pack, byteCount) in places { packs[pack]?.coldByteCount += byteCount }
      for (pack, byteCount) in Self.elsewhere(places) {
        packs[pack]?.digests.append(digest)
        packs[pack]?.elsewhereByteCount += byteCount
      }
    }
    var choice = CacheChoice()
    var freed: Int64 = 0
    var kept: Int64 = 0
    let sorted = packs.sorted { ($0.value.rank, $1.key) > ($1.value.rank, $0.key) }
    let largeByteCount = limits.packByteCountTarget * 8
    var rest = Array(sorted.map(\.key).reversed())
    var evicted: Set<BlobDigest> = []
    while freed < goal, let number = removeBest(of: &rest, packs), let pack = packs[number] {
      // As a whole, a large one would take far more keys along than necessary: the next loop copies from it.
      if copiesLarge, pack.byteCount >= largeByteCount, freed + pack.freedByteCount > goal { continue }
      // A pack without records frees nothing but its file.
      guard pack.freedByteCount > 0 || pack.byteCount == 0, !pack.isCostly || !copiesLarge,
        kept + pack.keptByteCount <= limits.copiedByteCountMax
      else { continue }
      choice.packs.insert(number)
      freed += pack.freedByteCount
      kept += pack.keptByteCount
      for digest in pack.digests where evicted.insert(digest).inserted {
        for (pack, byteCount) in Self.elsewhere(placesByDigest[digest] ?? []) {
          packs[pack]?.elsewhereByteCount -= byteCount
        }
      }
    }
    for (number, pack) in sorted where copiesLarge && pack.byteCount >= largeByteCount {
      // One at a time, and only if that frees at least a sixteenth of it.
      guard freed < goal - goal / 8, pack.freedByteCount >= pack.byteCount / 16 else { break }
      guard choice.packs.insert(number).inserted else { continue }
      choice.hasLarge = true
      freed += pack.freedByteCount
      break
    }
    choice.addSmall(packs.mapValues(\.byteCount), limits)
    let chosen = choice.packs
    choice.keys = cold.filter { _, row in
      placesByDigest[row.digest]?.contains { chosen.contains($0.pack) } ?? false
    }
    if choice.hasLarge {
      // The rest is copied anyway, so only as many keys go as necessary.
      var byteCount = goal
      choice.keys = Array(
        choice.keys.prefix { _, row in
          defer { byteCount -= row.byteCount }
          return byteCount > 0
        })
    }
    return (choice, freed, isAll)
  }

  /// About the bytes of a key's records, apart from its value's.
  private static func recordByteCount(_ row: CachedKeyRow) -> Int64 { Int64(128 + row.key.count) }

  /// For each pack that holds a part of a blob, the bytes of the other parts.
  private static func elsewhere(_ places: [(pack: UInt32, byteCount: Int64)]) -> [UInt32: Int64] {
    let whole = places.reduce(0) { $0 + $1.byteCount }
    return Dictionary(places.map { ($0.pack, $0.byteCount) }, uniquingKeysWith: +).mapValues { whole - $0 }
  }

  /// Removes the best pack from a list that ends with it. Among packs that free the same share, the best is the one
  /// whose blobs have least in other packs. So neighbours go together where long blobs lie in several packs.
  private static func removeBest(of rest: inout [UInt32], _ packs: [UInt32: Pack]) -> UInt32? {
    guard let last = rest.last.flatMap({ packs[$0] }) else { return nil }
    let equal = rest.indices.reversed().prefix { packs[rest[$0]]?.rank == last.rank }
    let best = equal.min {
      (packs[rest[$0]]?.elsewhereByteCount ?? 0) < (packs[rest[$1]]?.elsewhereByteCount ?? 0)
    }
    return best.map { rest.remove(at: $0) }
  }

  private static let smallPackCountMax = 12

  /// Adds nearly empty packs when there are many. A step that copies only some drop records leaves one, and each file
  /// takes a block.
  private mutating func addSmall(_ byteCounts: [UInt32: Int64], _ limits: CacheLimits) {
    guard !packs.isEmpty else { return }
    let small = byteCounts.filter { $0.value < limits.packByteCountTarget / 32 && !packs.contains($0.key) }
    if small.count > Self.smallPackCountMax { packs.formUnion(small.keys) }
  }
}

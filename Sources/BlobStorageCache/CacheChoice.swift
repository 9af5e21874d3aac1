import BlobStorage

/// Which packs to take away next, and which keys to evict for it.
///
/// Of the keys that were not used for longest, those go whose packs free most for what has to be copied. A pack counts
/// with the garbage it has and with what would become garbage. An exact LRU would empty no pack and copy each byte
/// many times; choosing among the coldest tenth costs next to no hits.
struct CacheChoice {
  var packs: Set<UInt32> = []
  /// Whether one of them takes more to copy than a step may.
  var hasLarge = false
  var keys: [(id: CachedKeyRow.ID, row: CachedKeyRow)] = []

  private struct Pack {
    var byteCount: Int64
    var garbageByteCount: Int64
    var coldByteCount: Int64 = 0
    /// Cold blobs that it holds a part of, and how much of those that are not evicted yet lies in other packs.
    var digests: [BlobDigest] = []
    var elsewhereByteCount: Int64 = 0

    var freedByteCount: Int64 { min(byteCount, max(0, garbageByteCount) + coldByteCount) }
    var keptByteCount: Int64 { byteCount - freedByteCount }
    /// Packs that free about the same share of themselves are equal, and then the older goes: else packs of small
    /// values, whose refs weigh more, would stay for ever.
    var rank: Int { Int((share * 12).rounded()) }
    /// Whether far more would be evicted for it than it frees: it has the lists of many long blobs, for example.
    var isCostly: Bool { elsewhereByteCount / 3 > freedByteCount }
    private var share: Double { byteCount > 0 ? Double(freedByteCount) / Double(byteCount) : 1 }
  }

  /// Chooses packs that free `goal` bytes, or as many as can be.
  ///
  /// - Parameter copiesLarge: whether a pack that is larger than those of a cache may be copied from, beyond what a step
  ///   copies else. It was made before there was a limit; to take it away without copying would empty the cache.
  static func make(
    _ cache: CacheCore, goal: Int64, _ limits: CacheLimits, copiesLarge: Bool
  ) throws(BlobStorageError) -> CacheChoice {
    // Plain bytes of the least recently used keys of the lowest priorities, among which those go whose packs free most.
    var coldByteCount = goal * 2
    while true {
      let (choice, freed, isAll) = try make(cache, goal: goal, coldByteCount, limits, copiesLarge)
      // An eighth less is enough: more cold keys would be less cold.
      if isAll || choice.hasLarge || freed >= goal - goal / 8 { return choice }
      coldByteCount *= 3
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
      for (number, row) in try transaction.packRows()
      where row.isSealed && !row.isDamaged && row.state == .live {
        packs[number] = Pack(
          byteCount: row.recordsByteCount, garbageByteCount: try transaction.garbageByteCount(number))
      }
      try transaction.forEachCachedKey { id, row in
        cold.append((id, row))
        coldCounts[row.digest, default: 0] += 1
        coldByteCount = coldByteCount.addingClamped(row.byteCount)
        isAll = coldByteCount < coldByteCountMax
        return isAll
      }
    }
    let long = try cache.longBlobs(coldCounts.keys)
    var placesByDigest: [BlobDigest: [(pack: UInt32, byteCount: Int64)]] = [:]
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for (digest, count) in coldCounts where try transaction.versionCount(of: digest) <= count {
        let places = try transaction.places(of: digest, chunks: long[digest])
        placesByDigest[digest] = places
        for (pack, byteCount) in places { packs[pack]?.coldByteCount += byteCount }
        for (pack, byteCount) in Self.elsewhere(places) {
          packs[pack]?.digests.append(digest)
          packs[pack]?.elsewhereByteCount += byteCount
        }
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
      // As a whole, a large one would take far more keys along than have to go: below, it is copied from.
      if copiesLarge, pack.byteCount >= largeByteCount, freed + pack.freedByteCount > goal { continue }
      // Of a pack without records nothing is left to free but its file.
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
      // One at a time, and for a sixteenth of it at least.
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
      // What stays is copied anyway: no more keys go than have to.
      var byteCount = goal
      choice.keys = Array(
        choice.keys.prefix { _, row in
          defer { byteCount -= row.byteCount }
          return byteCount > 0
        })
    }
    return (choice, freed, isAll)
  }

  /// For each pack that holds a part of a blob, the bytes of the other parts.
  private static func elsewhere(_ places: [(pack: UInt32, byteCount: Int64)]) -> [UInt32: Int64] {
    let whole = places.reduce(0) { $0 + $1.byteCount }
    return Dictionary(places.map { ($0.pack, $0.byteCount) }, uniquingKeysWith: +).mapValues { whole - $0 }
  }

  /// Takes a pack out of a list that has the best at its end. Of packs that free the same share, that is the one whose
  /// blobs have least in other packs. So neighbours go, where long blobs lie in several packs.
  private static func removeBest(of rest: inout [UInt32], _ packs: [UInt32: Pack]) -> UInt32? {
    guard let last = rest.last.flatMap({ packs[$0] }) else { return nil }
    let equal = rest.indices.reversed().prefix { packs[rest[$0]]?.rank == last.rank }
    let best = equal.min {
      (packs[rest[$0]]?.elsewhereByteCount ?? 0) < (packs[rest[$1]]?.elsewhereByteCount ?? 0)
    }
    return best.map { rest.remove(at: $0) }
  }

  private static let smallPackCountMax = 12

  /// Adds packs of next to nothing when there are many: what a step copies can be some drop records, and a file
  /// takes a block.
  private mutating func addSmall(_ byteCounts: [UInt32: Int64], _ limits: CacheLimits) {
    guard !packs.isEmpty else { return }
    let small = byteCounts.filter { $0.value < limits.packByteCountTarget / 32 && !packs.contains($0.key) }
    if small.count > Self.smallPackCountMax { packs.formUnion(small.keys) }
  }
}

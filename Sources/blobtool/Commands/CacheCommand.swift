import ArgumentParser
import BlobStorage
import BlobStorageCache

/// `cache`: shows and sets the limits of a store that is a cache.
struct CacheCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cache", abstract: "Shows and sets the limits of a store that is used as a cache.",
    subcommands: [
      CacheStatisticsCommand.self, CacheTrimCommand.self, CacheLimitCommand.self, CacheRemovalCommand.self,
    ])

  func run() async throws {
    throw ValidationError("name a subcommand: stats, trim, set-limit or remove-limit")
  }

  /// Tells the store's cache, if it has one, of a key that was just put, or of all keys for nil. Enforces the limits.
  ///
  /// - Throws: a failure if the limit leaves no room for the key.
  static func hold(_ store: BlobStore, for key: String? = nil) async throws {
    guard let cache = try await store.cache() else { return }
    guard let key else {
      _ = try await cache.trim()
      return
    }
    try await cache.adopt(Self.key(key, in: cache).map { [$0] } ?? [])
    guard try await store.currentVersion(of: key) != nil else {
      throw Failure(
        ExitStatus.failed,
        "“\(key.printable)” is too long for the cache's limit of \(HumanText.size(cache.limits.byteLimit)) and was not kept."
      )
    }
  }

  /// The cache's name for a key of the store; nil if the key is not the cache's.
  static func key(_ key: String, in cache: BlobCache) -> String? {
    // Compare bytes: a prefix may end inside a character.
    guard key.utf8.starts(with: cache.prefix.utf8), key.utf8.count > cache.prefix.utf8.count else {
      return nil
    }
    return String(decoding: key.utf8.dropFirst(cache.prefix.utf8.count), as: UTF8.self)
  }

  /// The cache of a store. The error for other stores says how to make one.
  static func cache(of store: BlobStore) async throws -> BlobCache {
    guard let cache = try await store.cache() else {
      if StorePlace.isInBucket(store.information.path) {
        throw Failure(
          ExitStatus.failed,
          "\(store.information.path.printable) cannot be a cache: a cache is a store in a folder of its own.")
      }
      throw Failure(
        ExitStatus.failed,
        "The store at \(store.information.path.printable) is not a cache; `blobtool cache set-limit SIZE` makes it one."
      )
    }
    return cache
  }
}

/// `cache stats`: shows the limits and sizes of a cache.
struct CacheStatisticsCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "stats", abstract: "Shows the limits of the cache and what it takes.")

  @OptionGroup var shared: SharedOptions

  func perform(on store: BlobStore) async throws {
    let statistics = try await CacheCommand.cache(of: store).statistics()
    if shared.json { return try JSONText.print(statistics) }
    try statistics.facts().print()
  }
}

/// `cache trim`: drops expired keys, and keys beyond the limits.
struct CacheTrimCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "trim", abstract: "Drops expired values and brings the store below its limits.")

  @OptionGroup var shared: SharedOptions

  func perform(on store: BlobStore) async throws {
    let report = try await CacheCommand.cache(of: store).trim()
    if shared.json { return try JSONText.print(report) }
    var facts = FactTable()
    facts.add("keys expired", report.expiredKeyCount)
    facts.add("keys evicted", report.evictedKeyCount)
    facts.add("freed", byteCount: report.freedByteCount)
    facts.add("limit", byteCount: report.byteLimit)
    facts.add("on disk", byteCount: report.diskByteCount)
    facts.add("time", HumanText.duration(report.duration))
    try facts.print()
  }
}

/// `cache set-limit`: sets how much space the folder may take.
struct CacheLimitCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "set-limit",
    abstract: "Makes the store a cache that takes at most SIZE, or changes its limits, and trims it.",
    discussion: """
      The store then evicts the least recently used keys when it needs room. With --prefix it evicts only keys below \
      PREFIX/ (default: those of the existing cache, else all); the limit still covers the whole folder. A store with keys needs --evict, which allows evicting \
      them. Without it the command says how many would be evicted at once, and changes nothing. To get, list, info, \
      versions, export, mount and copy, an expired value is missing; get, export and mount count as uses of what they \
      read. remove-limit ends the cache.
      """)

  @Argument(
    help: ArgumentHelp(
      "How much all files of the store may take: a number of bytes, or one with K, M, G or T.",
      valueName: "size"))
  var byteCount: ByteCountArgument

  @Option(help: ArgumentHelp("The maximum number of keys (default: no limit).", valueName: "n"))
  var count: Int?

  @Option(
    help: ArgumentHelp(
      "The time after which a value expires: 90s, 30m, 2h, 1d (default: never).", valueName: "duration"))
  var lifetime: DurationArgument?

  @OptionGroup var prefixes: PrefixOptions

  @Flag(help: "Allow evicting the keys that the store has.")
  var evict = false

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    guard byteCount.value >= CacheLimits.smallestByteLimit else {
      throw ValidationError("a cache needs \(HumanText.size(CacheLimits.smallestByteLimit)) or more")
    }
    guard count ?? 1 > 0 else { throw ValidationError("--count is 1 or more") }
  }

  func perform(on store: BlobStore) async throws {
    let limits = CacheLimits(
      byteLimit: byteCount.value, keyLimit: count, lifetime: lifetime?.value)
    let (known, isDamaged) = try await knownCache(of: store)
    guard !isDamaged || prefixes.value != nil || evict else {
      throw Failure(
        ExitStatus.wrongUsage,
        "The file “cache” of the store is damaged, and the cache's prefix is not known: give --prefix, or --evict to allow"
          + " evicting any key.")
    }
    let prefix: KeyPrefix = prefixes.value ?? .bytes(known?.prefix ?? "")
    let forecast = try await store.cacheForecast(prefix: prefix, limits: limits)
    try checkEviction(forecast, isCache: known != nil || isDamaged)
    let cache: BlobCache
    if let known, known.prefix.utf8.elementsEqual(prefix.start.utf8) {
      cache = known
    } else {
      cache = try await store.cache(prefix: prefix, limits: limits, evictsExistingKeys: evict)
    }
    try await cache.setLimits(limits)
    let statistics = try await cache.statistics()
    if shared.json { return try JSONText.print(statistics) }
    try statistics.facts().print()
  }

  /// The store's cache, and whether its file of limits is damaged instead: new limits take its place.
  private func knownCache(of store: BlobStore) async throws -> (BlobCache?, isDamaged: Bool) {
    do { return (try await store.cache(), false) } catch {
      guard error.code == .corrupted, error.path?.hasSuffix("/cache") == true else { throw error }
      return (nil, true)
    }
  }

  /// Says which keys the limit would evict, and refuses that without --evict.
  private func checkEviction(_ forecast: CacheForecast, isCache: Bool) throws {
    guard forecast.evictedKeyCount > 0 || (!isCache && forecast.keyCount > 0) else { return }
    let whole = "\(HumanText.count(forecast.keyCount, "key")), \(HumanText.size(forecast.byteCount))"
    let evicted =
      forecast.evictedKeyCount > 0
      ? "about \(HumanText.grouped(forecast.evictedKeyCount)) of them,"
        + " \(HumanText.size(forecast.evictedByteCount)), are evicted at once"
      : "none of them is evicted at once, but any can be later"
    guard evict else {
      throw Failure(
        ExitStatus.wrongUsage,
        "The limit would evict keys of the store (\(whole); \(evicted)). Nothing was changed: give --evict to allow it."
      )
    }
    shared.mention("the store has \(whole); \(evicted).")
  }
}

/// `cache remove-limit`: turns a cache into an ordinary store.
struct CacheRemovalCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "remove-limit", abstract: "Turns a cache into an ordinary store: its keys stay.")

  @OptionGroup var shared: SharedOptions

  func perform(on store: BlobStore) async throws {
    // Fails for a store that is not a cache. Removes a damaged file of limits.
    if try await !store.removeCache() { _ = try await CacheCommand.cache(of: store) }
    if shared.json { return try JSONText.print(Output()) }
    try StandardOutput.write("The store is no longer a cache; its keys stay.\n")
  }

  private struct Output: Encodable {
    var isCache = false
  }
}

extension CacheStatistics {
  /// The limits and sizes, for `stats` and `set-limit`.
  func facts() -> FactTable {
    var facts = FactTable()
    if !prefix.isEmpty { facts.add("prefix", prefix.printable) }
    facts.add("limit", byteCount: limits.byteLimit)
    facts.add("on disk", byteCount: diskByteCount)
    if let most = limits.keyLimit { facts.add("keys at most", most) }
    if let lifetime = limits.lifetime { facts.add("lifetime", HumanText.duration(lifetime)) }
    facts.add("keys", keyCount)
    facts.add("packs", packCount)
    facts.add("known garbage", byteCount: garbageByteCount)
    return facts
  }
}

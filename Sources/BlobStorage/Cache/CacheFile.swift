import SystemPackage

/// The file `cache` of a store's folder: which keys are a cache, and its limits. Format.md, "The file cache".
package struct CacheFile: Hashable {
  var prefix: [UInt8]
  var limits: CacheLimits

  private static let byteCountMax: Int64 = 16 << 10

  /// What the folder says; nil when the store has no cache.
  ///
  /// - Throws: `corrupted` for a file that cannot be read.
  static func read(_ folder: StoreFolder) throws(BlobStorageError) -> CacheFile? {
    guard let status = try folder.files.status(of: folder.cache), status.kind == .regular else { return nil }
    let file = try folder.files.open(folder.cache, .read)
    defer { file.close() }
    let bytes = try file.bytes(at: 0, Int(min(file.status().byteCount, byteCountMax)), pack: nil)
    guard let read = CacheFile(text: String(decoding: bytes, as: UTF8.self)) else {
      throw BlobStorageError(
        .corrupted, "\(folder.cache) is damaged: set the cache's limits again.",
        path: folder.cache.string)
    }
    return read
  }

  /// Replaces what the folder says, durably.
  package func write(_ folder: StoreFolder) throws(BlobStorageError) {
    try folder.files.replace(folder.cache, with: Array(text.utf8)).close()
  }

  /// Removes what the folder says, durably.
  static func remove(_ folder: StoreFolder) throws(BlobStorageError) {
    try folder.files.remove(folder.cache)
    try folder.files.syncDirectory(folder.path)
  }

  var text: String {
    let words =
      "1 \(limits.byteCountMax) \(limits.countMax ?? 0) \(limits.lifetime.map(\.milliseconds) ?? 0) "
      + (prefix.isEmpty ? "-" : Hex.text(prefix))
    return "\(words) \(Self.checksum(words))\n"
  }

  package init(prefix: [UInt8], limits: CacheLimits) {
    self.prefix = prefix
    self.limits = limits
  }

  init?(text: String) {
    guard text.hasSuffix("\n") else { return nil }
    let words = text.dropLast().split(separator: " ", omittingEmptySubsequences: false)
    guard words.count == 6, words[0] == "1", let bytes = Int64(words[1]), let count = Int(words[2]),
      count >= 0, let lifetime = UInt64(words[3]), lifetime <= UInt64(Int64.max),
      words[5] == Self.checksum(words[..<5].joined(separator: " "))
    else { return nil }
    prefix = []
    if words[4] != "-" {
      guard let decoded = Hex.bytes(words[4]), decoded.count < Limits.keyByteCountMax else { return nil }
      prefix = decoded
    }
    limits = CacheLimits(
      byteCountMax: bytes, countMax: count == 0 ? nil : count,
      lifetime: lifetime == 0 ? nil : .milliseconds(Int64(lifetime)))
    guard (try? limits.check()) != nil else { return nil }  // nil means: these are no limits
  }

  private static func checksum(_ text: String) -> String {
    Hex.text(CRC32C.checksum(Array(text.utf8).span.bytes))
  }
}

extension Duration {
  /// Whole milliseconds, at least one, at most what fits.
  var milliseconds: UInt64 {
    let (seconds, attoseconds) = components
    guard seconds < 1 << 40 else { return 1 << 50 }
    return UInt64(max(1, seconds * 1_000 + attoseconds / 1_000_000_000_000_000))
  }
}

/// What a cache keeps in a version's metadata: priority and lifetime, so that they come back with the version.
struct CacheMark: Hashable {
  var priority: CachePriority
  /// Milliseconds that the value is good from its put on; 0 for as long as the cache's limits say.
  var lifetime: UInt64

  private static let first: [UInt8] = Array("bc1".utf8)

  init(priority: CachePriority, lifetime: UInt64) {
    self.priority = priority
    self.lifetime = lifetime
  }

  /// What the metadata says; a version that no cache put has normal priority and the lifetime of the limits.
  init(metadata: [UInt8]) {
    self.init(priority: .normal, lifetime: 0)
    guard metadata.count == 12, metadata.starts(with: Self.first),
      let priority = CachePriority(rawValue: metadata[3])
    else { return }
    self.priority = priority
    lifetime = metadata[4...].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  var metadata: [UInt8] {
    Self.first + [priority.rawValue] + withUnsafeBytes(of: lifetime.littleEndian) { Array($0) }
  }

  /// How far a clock may go back without making all that is there too old.
  private static let clockStep: UInt64 = 60_000

  /// Whether a value put at `created` is too old at `now`, both in milliseconds since 1970. A value dated in the future
  /// counts as expired.
  ///
  /// - Parameter otherwise: the lifetime if the put named none; 0 for ever.
  func isExpired(created: UInt64, now: UInt64, otherwise: UInt64) -> Bool {
    let lifetime = lifetime > 0 ? lifetime : otherwise
    guard lifetime > 0 else { return false }
    if now < created { return created - now > min(lifetime, Self.clockStep) }
    return now - created >= lifetime
  }
}

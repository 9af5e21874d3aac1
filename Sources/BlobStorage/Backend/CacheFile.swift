import SystemPackage

/// The file `cache` of a store's folder: which keys are a cache, and its limits. Format.md, "The file cache".
package struct CacheFile: Hashable {
  package var prefix: [UInt8]
  package var limits: CacheLimits

  private static let byteCountMax: Int64 = 16 << 10

  /// Reads the cache's prefix and limits; nil if the store has no cache.
  ///
  /// - Throws: `corrupted` for a damaged file.
  package static func read(_ folder: StoreFolder) throws(BlobStorageError) -> CacheFile? {
    guard try folder.files.status(of: folder.cache)?.kind == .regular,
      let file = try folder.files.openIfThere(folder.cache, .read)
    else { return nil }
    defer { file.close() }
    let bytes = try file.bytes(at: 0, Int(min(file.status().byteCount, byteCountMax)), pack: nil)
    guard let read = CacheFile(text: String(decoding: bytes, as: UTF8.self)) else {
      throw BlobStorageError(
        .corrupted, "\(folder.cache) is damaged: set the cache's limits again.",
        path: folder.cache.string)
    }
    return read
  }

  /// Replaces the file, durably.
  package func write(_ folder: StoreFolder) throws(BlobStorageError) {
    try folder.files.replace(folder.cache, with: Array(text.utf8)).close()
  }

  /// Removes the file, durably.
  package static func remove(_ folder: StoreFolder) throws(BlobStorageError) {
    try folder.files.remove(folder.cache)
    try folder.files.syncDirectory(folder.path)
  }

  var text: String {
    let words =
      "1 \(limits.byteLimit) \(limits.keyLimit ?? 0) \(limits.lifetime.map(\.milliseconds) ?? 0) "
      + (prefix.isEmpty ? "-" : Hex.text(prefix))
    return "\(words) \(CheckedLines.checksum(words))\n"
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
      words[5] == CheckedLines.checksum(words[..<5].joined(separator: " "))
    else { return nil }
    prefix = []
    if words[4] != "-" {
      guard let decoded = Hex.bytes(words[4]), decoded.count < BlobLimits.maximumKeyByteCount else {
        return nil
      }
      prefix = decoded
    }
    limits = CacheLimits(
      byteLimit: bytes, keyLimit: count == 0 ? nil : count,
      lifetime: lifetime == 0 ? nil : .milliseconds(Int64(lifetime)))
    guard (try? limits.check()) != nil else { return nil }  // nil means: the limits are invalid
  }
}

extension Duration {
  /// Whole milliseconds, from 1 to 2⁵⁰.
  package var milliseconds: UInt64 {
    let (seconds, attoseconds) = components
    guard seconds >= 0 else { return 1 }
    guard seconds < 1 << 40 else { return 1 << 50 }
    return UInt64(max(1, seconds * 1_000 + attoseconds / 1_000_000_000_000_000))
  }
}

import BlobStorage

/// Options for copying one store into another.
///
/// Afterwards the target shows every version that the source shows, with the same time and metadata. The ID is the
/// same, unless the target has dropped that version. The copy also drops what the source has dropped. Versions that
/// only the target has stay, and so does what a hold of the target protects.
public struct CopyOptions: Sendable, Hashable {
  /// The prefix of the keys to copy.
  public var prefix: KeyPrefix
  /// Whether to drop versions in the target that the source does not show, including those that it never had.
  ///
  /// The copy refuses a source with known damage (`corrupted`), and to drop more than a tenth of the target's keys with
  /// the prefix (`wouldDropMany`).
  public var isMirror: Bool
  /// Mirrors despite those checks.
  public var isForced: Bool
  /// Examines everything but changes nothing.
  public var isDryRun: Bool
  /// The average number of stored bytes of chunks to send per second; nil for no limit.
  public var maximumByteRate: Int64?

  public init(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, isMirror: Bool = false, isForced: Bool = false,
    isDryRun: Bool = false,
    maximumByteRate: Int64? = nil
  ) {
    self.prefix = prefix.keyPrefix
    self.isMirror = isMirror
    self.isForced = isForced
    self.isDryRun = isDryRun
    self.maximumByteRate = maximumByteRate
  }
}

/// A version that was not copied: the source cannot read it, or its time lies too far ahead.
public struct UncopiedVersion: Sendable, Hashable, Codable {
  public var key: String
  /// Its ID in the source.
  public var version: BlobVersion.ID
  public var digest: BlobDigest
  public var reason: String

  public init(key: String, version: BlobVersion.ID, digest: BlobDigest, reason: String) {
    self.key = key
    self.version = version
    self.digest = digest
    self.reason = reason
  }
}

/// The result of a copy or dry run.
public struct CopyReport: Sendable, Hashable, Codable {
  public var isDryRun = false
  /// Keys and versions that the source shows, and their bytes.
  public var keyCount = 0
  public var versionCount = 0
  public var byteCount: Int64 = 0
  /// Versions that the target did not show before.
  public var newVersionCount = 0
  /// Versions that the target already showed.
  public var unchangedVersionCount = 0
  /// Versions that the target no longer shows.
  public var droppedVersionCount = 0
  /// Keys that the target no longer shows. A dry run also names the first hundred.
  public var droppedKeyCount = 0
  public var droppedKeys: [String] = []
  /// In a dry run, why the copy would be refused.
  public var refusal: String?
  /// Chunks that the target did not have, and their plain bytes.
  public var chunkCount = 0
  public var newByteCount: Int64 = 0
  /// Bytes that the copy added to packs; in a dry run, those of the chunks alone.
  public var storedByteCount: Int64 = 0
  public var damaged: [UncopiedVersion] = []
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case byteCount, refusal, newByteCount, storedByteCount, damaged
    case isDryRun = "dryRun"
    case keyCount = "keys"
    case versionCount = "versions"
    case newVersionCount = "newVersions"
    case unchangedVersionCount = "unchangedVersions"
    case droppedVersionCount = "droppedVersions"
    case droppedKeyCount = "droppedKeys"
    case droppedKeys = "droppedKeyNames"
    case chunkCount = "chunks"
    case duration = "seconds"
  }
}

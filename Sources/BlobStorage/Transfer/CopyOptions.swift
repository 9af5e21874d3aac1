/// How one store is copied into another.
///
/// Afterwards the target shows every version that the source shows, under the same ID, with the same time and metadata;
/// what the source knows as dropped is dropped there too. What only the target has stays.
public struct CopyOptions: Sendable, Hashable {
  /// Only keys that begin with it.
  public var prefix: String
  /// Whether versions are dropped in the target that the source does not show, also those that it never had.
  public var isMirror: Bool

  public init(prefix: String = "", isMirror: Bool = false) {
    self.prefix = prefix
    self.isMirror = isMirror
  }
}

/// A version that could not be copied because the source cannot read it.
public struct UncopiedVersion: Sendable, Hashable {
  public var key: String
  /// In the source.
  public var version: BlobVersion.ID
  public var digest: Digest
  public var reason: String
}

/// What a copy did.
public struct CopyReport: Sendable, Hashable {
  /// Keys and versions that the source shows, and their bytes.
  public var keyCount = 0
  public var versionCount = 0
  public var byteCount: Int64 = 0
  /// Versions that the target did not show before.
  public var newVersionCount = 0
  /// Versions that the target showed already.
  public var unchangedVersionCount = 0
  /// Versions that the target showed and shows no more.
  public var droppedVersionCount = 0
  /// Chunks that the target did not have, and their plain bytes.
  public var chunkCount = 0
  public var newByteCount: Int64 = 0
  /// Bytes that they took in packs.
  public var storedByteCount: Int64 = 0
  public var damaged: [UncopiedVersion] = []
  public var seconds = 0.0
}

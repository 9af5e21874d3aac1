import BlobStorage

/// The holders of a key's blobs, a blob or a chunk. Also the keys that share parts of it, and the bytes that dropping
/// it would free.
public struct BlobUsage: Sendable, Hashable, Codable {
  /// The subject of the question.
  public enum Subject: Sendable, Hashable {
    /// A key with all its versions.
    case key(String)
    /// A blob or a chunk, whichever has that digest.
    case digest(BlobDigest)
  }

  /// The kind of thing that was found.
  public enum Kind: String, Sendable, Hashable, Codable {
    case key, blob, chunk
  }

  /// A version that holds the subject.
  public struct Holder: Sendable, Hashable, Codable {
    public var version: BlobVersion
    /// Whether it is the key's newest version.
    public var isCurrent: Bool

    private enum CodingKeys: String, CodingKey { case isCurrent = "current" }

    public init(version: BlobVersion, isCurrent: Bool) {
      self.version = version
      self.isCurrent = isCurrent
    }

    public init(from decoder: any Decoder) throws {
      version = try BlobVersion(from: decoder)
      isCurrent = try decoder.container(keyedBy: CodingKeys.self).decode(Bool.self, forKey: .isCurrent)
    }

    /// Encodes the fields of the version, and `current` beside them.
    public func encode(to encoder: any Encoder) throws {
      try version.encode(to: encoder)
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(isCurrent, forKey: .isCurrent)
    }
  }

  /// Another key that needs some of the same chunks.
  public struct Sharer: Sendable, Hashable, Codable {
    public var key: String
    /// Stored bytes of the chunks that both need.
    public var sharedByteCount: Int64

    public init(key: String, sharedByteCount: Int64) {
      self.key = key
      self.sharedByteCount = sharedByteCount
    }
  }

  public var kind: Kind
  /// Plain bytes; for a key, those of all its versions, counting each.
  public var byteCount: Int64 = 0
  /// Distinct chunks, including lists and the bases that chunks are encoded against. For a key, also those of versions
  /// that imports have replaced and keep for states: deleting the key drops them.
  public var chunkCount = 0
  /// Their stored bytes.
  public var storedByteCount: Int64 = 0
  /// The first versions that hold the subject, by key and from new to old.
  public var holders: [Holder] = []
  public var holderCount = 0
  /// Keys that share chunks with the subject but do not hold it, those that share most first.
  public var sharers: [Sharer] = []
  public var sharerCount = 0
  /// Stored bytes that the next collection would free if the key was deleted, or all holders were dropped. Bytes
  /// without a holder are garbage.
  public var exclusiveByteCount: Int64 = 0
  /// Why some blobs could not be followed to their chunks, so that these do not count. Only the first reasons.
  public var unreadable: [String] = []

  public init(kind: Kind) { self.kind = kind }

  private enum CodingKeys: String, CodingKey {
    case kind, byteCount, storedByteCount, holderCount, sharerCount, exclusiveByteCount, unreadable
    case chunkCount = "chunks"
    case holders = "heldBy"
    case sharers = "sharedWith"
  }
}

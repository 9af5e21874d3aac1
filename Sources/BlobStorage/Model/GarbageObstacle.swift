/// Why a collection kept garbage.
public struct GarbageObstacle: Sendable, Hashable, Codable, CustomStringConvertible {
  /// A stable name for a kind of obstacle. Later builds may add more: switch over them with a default.
  public struct Code: RawRepresentable, Sendable, Hashable, Codable {
    /// The file of a pack is missing: run repair.
    public static let missingPack = Self(rawValue: "missingPack")
    /// A pack has places that cannot be read: run repair.
    public static let damagedPack = Self(rawValue: "damagedPack")
    /// A version needs a chunk or manifest that is missing: run verify.
    public static let missingChunk = Self(rawValue: "missingChunk")
    /// A version needs a chunk or manifest that a read found damaged: run verify.
    public static let damagedChunk = Self(rawValue: "damagedChunk")
    /// A record cannot be read, and might need anything: run verify.
    public static let unreadable = Self(rawValue: "unreadable")
    /// Copies of an earlier collection are not published yet: collect again once the bucket can be reached.
    public static let unpublished = Self(rawValue: "unpublished")

    public let rawValue: String

    public init(rawValue: String) { self.rawValue = rawValue }
  }

  public var code: Code
  /// One sentence for a person, with the remedy.
  public var message: String
  /// The pack it is about.
  public var pack: String?
  /// The chunk, manifest or blob it is about.
  public var digest: BlobDigest?

  public init(_ code: Code, _ message: String, pack: String? = nil, digest: BlobDigest? = nil) {
    self.code = code
    self.message = message
    self.pack = pack
    self.digest = digest
  }

  public var description: String { message }
}

extension GarbageObstacle {
  package static func missing(_ pack: String) -> Self {
    Self(.missingPack, "Pack \(pack) is missing: run repair.", pack: pack)
  }

  package static func damaged(_ pack: String) -> Self {
    Self(.damagedPack, "Pack \(pack) is damaged: run repair.", pack: pack)
  }

  static func unreadable(_ error: BlobStorageError) -> Self {
    Self(.unreadable, error.message, pack: error.pack, digest: error.digest)
  }
}

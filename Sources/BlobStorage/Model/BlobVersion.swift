import Foundation

/// One immutable value that a key has or had.
public struct BlobVersion: Sendable, Hashable, Identifiable, Codable {
  /// Names a version permanently: it never changes and is never reused.
  public struct ID: Sendable, Hashable, LosslessStringConvertible, Codable {
    package let stamp: Stamp

    package init(_ stamp: Stamp) { self.stamp = stamp }

    /// The version that 32 hexadecimal digits name, or nil for any other text.
    public init?(_ description: String) {
      guard let stamp = Stamp(text: description) else { return nil }
      self.stamp = stamp
    }

    /// 32 hexadecimal digits. Of two versions of a key, the newer has the greater text.
    public var description: String { stamp.text }

    public init(from decoder: any Decoder) throws {
      let container = try decoder.singleValueContainer()
      guard let id = ID(try container.decode(String.self)) else {
        throw DecodingError.dataCorruptedError(in: container, debugDescription: "not the ID of a version")
      }
      self = id
    }

    public func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encode(description)
    }
  }

  public let key: String
  public let id: ID
  /// The digest of its bytes.
  public let digest: BlobDigest
  public let byteCount: Int64
  /// When it was put, by the writer's wall clock.
  public let created: Date
  /// The metadata of the put.
  public let metadata: [UInt8]
  /// The media type of the put.
  public let mediaType: String?

  /// A strong entity tag for HTTP: equal for equal bytes, whatever their key.
  public var entityTag: String { "\"\(digest.hex)\"" }

  /// A version with these values, for tests of code that shows or decides about versions.
  public init(
    key: String, id: ID, digest: BlobDigest, byteCount: Int64, created: Date, metadata: [UInt8] = [],
    mediaType: String? = nil
  ) {
    self.key = key
    self.id = id
    self.digest = digest
    self.byteCount = byteCount
    self.created = created
    self.metadata = metadata
    self.mediaType = mediaType
  }

  private enum CodingKeys: String, CodingKey {
    case key, digest, byteCount, created, metadata, mediaType
    case id = "version"
  }

  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    key = try container.decode(String.self, forKey: .key)
    id = try container.decode(ID.self, forKey: .id)
    digest = try container.decode(BlobDigest.self, forKey: .digest)
    byteCount = try container.decode(Int64.self, forKey: .byteCount)
    created = try container.decode(Date.self, forKey: .created)
    metadata = try container.decodeIfPresent(Data.self, forKey: .metadata).map { Array($0) } ?? []
    mediaType = try container.decodeIfPresent(String.self, forKey: .mediaType)
  }

  /// Leaves out metadata and media type if there are none.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(key, forKey: .key)
    try container.encode(id, forKey: .id)
    try container.encode(digest, forKey: .digest)
    try container.encode(byteCount, forKey: .byteCount)
    try container.encode(created, forKey: .created)
    if !metadata.isEmpty { try container.encode(Data(metadata), forKey: .metadata) }
    try container.encodeIfPresent(mediaType, forKey: .mediaType)
  }
}

/// A key with its current version.
public struct KeyEntry: Sendable, Hashable, Codable {
  public let current: BlobVersion
  /// How many versions the key has, the current one included.
  public let versionCount: Int

  public var key: String { current.key }

  public init(current: BlobVersion, versionCount: Int) {
    self.current = current
    self.versionCount = versionCount
  }

  private enum CodingKeys: String, CodingKey { case versionCount }

  public init(from decoder: any Decoder) throws {
    current = try BlobVersion(from: decoder)
    versionCount = try decoder.container(keyedBy: CodingKeys.self).decode(Int.self, forKey: .versionCount)
  }

  /// The fields of the current version, and the count beside them.
  public func encode(to encoder: any Encoder) throws {
    try current.encode(to: encoder)
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(versionCount, forKey: .versionCount)
  }
}

/// The result of a put.
public struct PutResult: Sendable, Hashable, Codable {
  public let version: BlobVersion
  /// Plain bytes of chunks that were not in the store before.
  public let newByteCount: Int64
  /// Bytes added to packs, for chunks, manifest and ref. The ref shares a record with those of the same commit, so its
  /// part is an estimate.
  public let storedByteCount: Int64
  /// How the file changed while it was read; nil if it did not. See ``PutOptions/storesChangingFiles``.
  public internal(set) var sourceChange: SourceChange?

  public init(
    version: BlobVersion, newByteCount: Int64, storedByteCount: Int64, sourceChange: SourceChange? = nil
  ) {
    self.version = version
    self.newByteCount = newByteCount
    self.storedByteCount = storedByteCount
    self.sourceChange = sourceChange
  }

  private enum CodingKeys: String, CodingKey { case newByteCount, storedByteCount, sourceChange }

  public init(from decoder: any Decoder) throws {
    version = try BlobVersion(from: decoder)
    let container = try decoder.container(keyedBy: CodingKeys.self)
    newByteCount = try container.decode(Int64.self, forKey: .newByteCount)
    storedByteCount = try container.decode(Int64.self, forKey: .storedByteCount)
    sourceChange = try container.decodeIfPresent(SourceChange.self, forKey: .sourceChange)
  }

  /// The fields of the version, and the counts beside them.
  public func encode(to encoder: any Encoder) throws {
    try version.encode(to: encoder)
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(newByteCount, forKey: .newByteCount)
    try container.encode(storedByteCount, forKey: .storedByteCount)
    try container.encodeIfPresent(sourceChange, forKey: .sourceChange)
  }
}

import Foundation

/// One immutable value that a key has or had.
public struct BlobVersion: Sendable, Hashable, Identifiable {
  /// Names a version permanently: it never changes and is never reused.
  public struct ID: Sendable, Hashable, LosslessStringConvertible, Codable {
    package let stamp: Stamp

    package init(_ stamp: Stamp) { self.stamp = stamp }

    /// The version that 32 hexadecimal digits name, or nil for any other text.
    public init?(_ description: String) {
      guard let stamp = Stamp(text: description) else { return nil }
      self.stamp = stamp
    }

    /// 32 hexadecimal digits; of two versions of a key the newer has the greater text.
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
  public let digest: Digest
  public let byteCount: Int64
  /// When it was put, by the writer's wall clock.
  public let created: Date
  /// The metadata of the put.
  public let metadata: [UInt8]
}

/// A key with its current version.
public struct KeyEntry: Sendable, Hashable {
  public let current: BlobVersion
  /// How many versions the key has, the current one included.
  public let versionCount: Int

  public var key: String { current.key }
}

/// The result of a put.
public struct PutResult: Sendable, Hashable {
  public let version: BlobVersion
  /// Plain bytes of chunks that were not in the store before.
  public let newByteCount: Int64
  /// Bytes added to packs, for chunks, manifest and ref. The ref shares a record with those of the same commit, so its
  /// part is an estimate.
  public let storedByteCount: Int64
}

import Foundation

/// Where a store is, and the options that it was created with.
public struct StoreInformation: Sendable, Hashable, Codable {
  public var path: String
  /// 32 hexadecimal digits that never change.
  public var id: String
  public var digestAlgorithm: BlobDigest.Algorithm
  public var chunkSizes: ChunkSizes
  public var codec: CodecKind
  public var level: Int
  public var usesSimilarity: Bool
  public var created: Date
  /// The only machine that may collect garbage, if the object store lacks conditional put; else nil.
  public var collectingMachine: String?

  public init(
    path: String, id: String, digestAlgorithm: BlobDigest.Algorithm, chunkSizes: ChunkSizes,
    codec: CodecKind, level: Int, usesSimilarity: Bool, created: Date, collectingMachine: String? = nil
  ) {
    self.path = path
    self.id = id
    self.digestAlgorithm = digestAlgorithm
    self.chunkSizes = chunkSizes
    self.codec = codec
    self.level = level
    self.usesSimilarity = usesSimilarity
    self.created = created
    self.collectingMachine = collectingMachine
  }

  /// - Throws: `DecodingError`, also for a digest algorithm or a codec that this build does not have.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    func known<Value>(_ key: CodingKeys, _ value: (String) -> Value?) throws -> Value {
      let name = try container.decode(String.self, forKey: key)
      if let value = value(name) { return value }
      throw DecodingError.dataCorruptedError(
        forKey: key, in: container, debugDescription: "“\(name)” is unknown")
    }
    path = try container.decode(String.self, forKey: .path)
    id = try container.decode(String.self, forKey: .id)
    digestAlgorithm = try known(.digestAlgorithm, BlobDigest.Algorithm.init(name:))
    codec = try known(.codec, CodecKind.init(name:))
    let average = try container.decode(Int.self, forKey: .chunkSizes)
    do throws(BlobStorageError) { chunkSizes = try ChunkSizes(average: average) } catch {
      throw DecodingError.dataCorruptedError(
        forKey: .chunkSizes, in: container, debugDescription: error.message)
    }
    level = try container.decode(Int.self, forKey: .level)
    usesSimilarity = try known(.usesSimilarity) { ["on": true, "off": false][$0] }
    created = try container.decode(Date.self, forKey: .created)
    collectingMachine = try container.decodeIfPresent(String.self, forKey: .collectingMachine)
  }

  /// Encodes digest algorithm and codec by name, chunk sizes by their average, and similarity as on or off.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(path, forKey: .path)
    try container.encode(id, forKey: .id)
    try container.encode(digestAlgorithm.name, forKey: .digestAlgorithm)
    try container.encode(chunkSizes.average, forKey: .chunkSizes)
    try container.encode(codec.name, forKey: .codec)
    try container.encode(level, forKey: .level)
    try container.encode(usesSimilarity ? "on" : "off", forKey: .usesSimilarity)
    try container.encode(created, forKey: .created)
    try container.encodeIfPresent(collectingMachine, forKey: .collectingMachine)
  }

  private enum CodingKeys: String, CodingKey {
    case path, id, codec, level, created, collectingMachine
    case usesSimilarity = "similarity"
    case digestAlgorithm = "digest"
    case chunkSizes = "chunkSize"
  }
}

import Foundation

/// Where a store is, and the options that it was created with.
public struct StoreInformation: Sendable, Hashable {
  public let path: String
  /// 32 hexadecimal digits that never change.
  public let id: String
  public let digestAlgorithm: BlobDigest.Algorithm
  public let chunkSizes: ChunkSizes
  public let codec: CodecKind
  public let level: Int
  public let usesSimilarity: Bool
  public let created: Date
  /// The only machine that may collect garbage, if the object store lacks conditional put; else nil.
  public let collectingMachine: String?
}

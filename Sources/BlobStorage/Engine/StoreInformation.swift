import Foundation

/// Where a store is and what was decided when it was created.
public struct StoreInformation: Sendable, Hashable {
  public let path: String
  /// 32 hexadecimal digits, the same for ever.
  public let id: String
  public let digestAlgorithm: Digest.Algorithm
  public let chunkSizes: ChunkSizes
  public let codec: CodecKind
  public let level: Int
  public let usesSimilarity: Bool
  public let created: Date
  /// The one machine that may collect garbage, where the packs' engine does not keep puts of one name apart; else nil.
  public let collectingMachine: String?
}

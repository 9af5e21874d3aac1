/// One of several parts of a store that are verified one at a time: packs by their names, blobs by their digests.
///
/// Shares of the same count, from number 1 to `count`, are the whole store as long as no pack is added or removed.
public struct VerificationShare: Sendable, Hashable, Codable {
  public let number: Int
  public let count: Int

  /// Nil unless `number` is from 1 to `count`.
  public init?(number: Int, count: Int) {
    guard count >= 1, 1...count ~= number else { return nil }
    self.number = number
    self.count = count
  }

  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    let (number, count) = (
      try container.decode(Int.self, forKey: .number), try container.decode(Int.self, forKey: .count)
    )
    guard let share = Self(number: number, count: count) else {
      throw DecodingError.dataCorruptedError(
        forKey: .number, in: container, debugDescription: "not from 1 to the count")
    }
    self = share
  }

  /// Consecutive packs of one writer belong to consecutive shares.
  func contains(_ pack: PackName) -> Bool { contains(pack.writer &+ UInt64(pack.sequence)) }

  func contains(_ digest: BlobDigest) -> Bool {
    contains(digest.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) })
  }

  private func contains(_ hash: UInt64) -> Bool { hash % UInt64(count) == UInt64(number - 1) }
}

import Foundation

/// A named hold that keeps a blob from gc even if no version has it.
public struct BlobHold: Sendable, Hashable, Codable {
  /// 1 to 255 bytes of UTF-8.
  public let name: String
  public let digest: BlobDigest
  public let byteCount: Int64
  public let created: Date

  public init(name: String, digest: BlobDigest, byteCount: Int64, created: Date) {
    self.name = name
    self.digest = digest
    self.byteCount = byteCount
    self.created = created
  }
}

/// Holds a blob before its put becomes visible, for puts without a key.
package struct HeldPut: Sendable, Hashable {
  let name: String
  let hold: @Sendable (BlobDigest, Int64) throws(BlobStorageError) -> Void

  package static func == (one: Self, other: Self) -> Bool {
    one.name.utf8.elementsEqual(other.name.utf8)
  }
  package func hash(into hasher: inout Hasher) { hasher.combine(name) }
}

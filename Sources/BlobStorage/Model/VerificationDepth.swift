/// How much a verification reads.
public enum VerificationDepth: String, Sendable, Hashable, Codable {
  /// The structure only: records, manifests and lists of chunks, but no chunks of data.
  case structure
  /// Every chunk too, compared with its checksum and digest.
  case chunks
  /// Every blob of several chunks too, compared with its own digest. This reads such blobs a second time.
  case blobs
}

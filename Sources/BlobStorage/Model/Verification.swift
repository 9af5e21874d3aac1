/// How the bytes of a blob are verified before they are returned.
public enum Verification: Sendable, Hashable {
  /// The blob's digest. It detects every change of the bytes, even a deliberate one.
  case digest
  /// For a chunk that is stored as it is, the CRC32C of its record: faster, and it detects less.
  ///
  /// The checksum covers the stored bytes, the chunk's name, and the record's place. It detects every change within 32
  /// consecutive bits. Of other accidental changes it misses one in 2³². It does not detect:
  /// - a change made on purpose, with a checksum to match;
  /// - bytes that changed in memory during the put, after their digest was computed and before the checksum was;
  /// - a manifest that names undamaged chunks of another blob, because a blob of several chunks is not compared as a
  ///   whole.
  ///
  /// If a checksum does not match, the digest decides. The digest also decides for every encoded chunk: a checksum of
  /// stored bytes says nothing about what the codec makes of them.
  case checksum
}

/// Identity: the cryptographic hash of plain bytes, with the algorithm that made it.
///
/// 32 bytes, held inline: a digest is copied freely and never allocates. Its text is the algorithm's name,
/// a colon and 64 lower-case hexadecimal digits; `b3sum FILE` prints the same digits for BLAKE3, `sha256sum
/// FILE` for SHA-256.
public struct BlobDigest: Sendable {
  /// How a digest is computed. The number is on disk.
  public enum Algorithm: UInt8, Sendable, CaseIterable {
    case blake3 = 1
    case sha256 = 2
  }

  /// Bytes of every digest, whatever its algorithm.
  public static let byteCount = 32

  /// The algorithm that computed it.
  public let algorithm: Algorithm

  /// The bytes in the order of memory.
  private let words: Words

  typealias Words = (UInt64, UInt64, UInt64, UInt64)

  init(algorithm: Algorithm, words: Words) {
    self.algorithm = algorithm
    self.words = words
  }

  /// A digest from its 32 bytes.
  package init(algorithm: Algorithm, bytes: UnsafeRawBufferPointer) {
    precondition(bytes.count == Self.byteCount, "a digest has 32 bytes, not \(bytes.count)")
    var words: Words = (0, 0, 0, 0)
    Swift.withUnsafeMutableBytes(of: &words) { $0.copyMemory(from: bytes) }
    self.init(algorithm: algorithm, words: words)
  }

  /// Stands for the digest of what cannot be read any more. No bytes are known that have it.
  package static func unknown(_ algorithm: Algorithm) -> BlobDigest {
    BlobDigest(algorithm: algorithm, words: (0, 0, 0, 0))
  }

  /// Whether it stands for the digest of what cannot be read any more.
  package var isUnknown: Bool { words == (0, 0, 0, 0) }

  /// Calls `body` with the 32 bytes, which are valid only during the call.
  public func withUnsafeBytes<Result, Failure: Error>(
    _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try Swift.withUnsafeBytes(of: words, body)
  }
}

extension BlobDigest: Hashable {
  public static func == (left: BlobDigest, right: BlobDigest) -> Bool {
    left.words == right.words && left.algorithm == right.algorithm
  }

  /// Feeds one word only, because the bytes are a hash already.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(words.0)
  }
}

extension BlobDigest: Comparable {
  /// Orders by bytes, and only where these are equal by algorithm.
  public static func < (left: BlobDigest, right: BlobDigest) -> Bool {
    // The first word decides nearly always.
    if left.words.0 != right.words.0 { return left.words.0.bigEndian < right.words.0.bigEndian }
    if left.words != right.words { return left.bigEndianWords < right.bigEndianWords }
    return left.algorithm.rawValue < right.algorithm.rawValue
  }

  private var bigEndianWords: Words {
    (
      UInt64(bigEndian: words.0), UInt64(bigEndian: words.1), UInt64(bigEndian: words.2),
      UInt64(bigEndian: words.3)
    )
  }
}

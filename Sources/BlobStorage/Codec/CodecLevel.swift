/// How hard a codec tries: a word that works for every codec, or the codec's own number.
public enum CodecLevel: Sendable, Hashable, ExpressibleByIntegerLiteral {
  /// The codec's lowest level, for an intake that the codec limits: 1 for zstd and zlib.
  ///
  /// Measured with zstd on an import of a mixed file of 1 GiB: 1.11 times the bytes of the default level, and 0.62
  /// times its processor time.
  case fast
  /// A good balance: 4 for zstd, 6 for zlib.
  case `default`
  /// The highest level: 19 for zstd, 9 for zlib.
  case max
  /// The codec's own number: 1 to 19 for zstd, 1 to 9 for zlib, 0 for none.
  case number(Int)

  /// The codec's own number.
  public init(integerLiteral value: Int) { self = .number(value) }
}

import CBlobKernels

/// Tells noise from what is worth encoding, at a small part of the cost of encoding it.
///
/// First, the histogram of up to 4 KiB taken from all over the chunk. Let s be the sum of the squared shares of its
/// byte values: -log2(s) is the collision entropy, which is at most Shannon's. So if s is below 1/128, each
/// byte has more than 7 bits, no entropy coder saves an eighth, and only repetitions could; whether there
/// are some is found by a trial at a fast level. A chunk of a format that is compressed already has none, and
/// is not even tried.
///
/// Measured on 700 MB of /usr/share and /usr/lib, in chunks of 64 KiB by zstd 3: 0.11 % of what encoding
/// would save is lost, all of it in jars. 64 KiB of noise cost 11 µs, 2 µs with a hint; encoding them costs
/// 15 µs at level 3 and 6,200 µs at level 19.
///
/// With a hint 1 KiB is sampled, at the same 64 places. The same limit is stricter for fewer bytes: by chance
/// alone the sum of n bytes of noise is larger by n, so that s has to be below 1/146 instead of 1/132.
/// Measured on 20,600 files with a hint of a Debian system (jars, PNG, gzip), in 45,256 chunks of 10 KiB: 1 KiB loses
/// 0.96 MB of the 9.72 MB that encoding would save, 4 KiB lost 1.23 MB. It has 160 chunks more encoded in vain, and
/// takes a third of the time.
enum CompressibilityProbe {
  enum Verdict {
    /// It would not pay.
    case noise
    /// It looks like it pays.
    case encode
    /// Only repetitions could make it pay.
    case doubtful
  }

  /// Below this, encoding costs less than worrying.
  static let chunkByteCountMin = 4_096
  static let sampleByteCount = 4_096
  static let compressedSampleByteCount = 1_024
  /// A small image or archive is looked at from here on: encoding 2 KB for nothing took half the time of putting it.
  /// In fewer bytes, even of noise, some values come so often by chance that the histogram says nothing.
  static let compressedByteCountMin = 512
  /// A faster level than any that can be chosen, with literals kept as they are.
  static let trialLevel = -10

  static func verdict(on plain: RawSpan, hint: CompressibilityHint) -> Verdict {
    let isCompressed = hint == .alreadyCompressed
    guard plain.byteCount >= (isCompressed ? compressedByteCountMin : chunkByteCountMin) else {
      return .encode
    }
    let sampleByteCount = isCompressed ? compressedSampleByteCount : sampleByteCount
    let sum = plain.withUnsafeBytes { Int(bs_probe_square_sum($0.baseAddress, $0.count, sampleByteCount)) }
    let sampled = min(plain.byteCount, sampleByteCount)
    guard sum * 128 < sampled * sampled else { return .encode }
    return isCompressed ? .noise : .doubtful
  }

  /// Whether the trial saved a thirty-second; a real level saves a multiple of it.
  static func trialPays(plainByteCount: Int, storedByteCount: Int) -> Bool {
    (plainByteCount - storedByteCount) * 32 >= plainByteCount
  }
}

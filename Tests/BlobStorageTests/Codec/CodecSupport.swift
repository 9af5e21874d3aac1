import BlobStorage
import BlobStorageTestSupport

extension SplitMix64 {
  /// Words of a vocabulary of 2,000, as many as fill the count.
  mutating func text(_ count: Int) -> [UInt8] {
    var bytes: [UInt8] = []
    while bytes.count < count { bytes += Array("word\(next() % 2_000) ".utf8) }
    return Array(bytes.prefix(count))
  }
}

extension ChunkEncoder {
  func encoded(
    _ plain: [UInt8], by choice: CodecChoice, base: [UInt8]? = nil, hint: CompressibilityHint = .unknown
  ) throws -> (kind: CodecKind, bytes: [UInt8]) {
    try plain.withUnsafeBytes { plain in
      try (base ?? []).withUnsafeBytes { bytes in
        try withEncoded(plain, by: choice, base: base == nil ? .none : .prefix(bytes), hint: hint) {
          ($0, Array($1))
        }
      }
    }
  }
}

extension ChunkDecoder {
  func decoded(
    _ stored: [UInt8], by kind: CodecKind, base: [UInt8]? = nil, count: Int
  ) throws(BlobStorageError) -> [UInt8] {
    // A wall behind the output shows an overrun.
    var output = [UInt8](repeating: 0xA5, count: count + 64)
    var failure: BlobStorageError?
    output.withUnsafeMutableBytes { output in
      stored.withUnsafeBytes { stored in
        (base ?? []).withUnsafeBytes { bytes in
          do throws(BlobStorageError) {
            try decode(
              stored, by: kind, base: base == nil ? .none : .prefix(bytes),
              into: UnsafeMutableRawBufferPointer(rebasing: output[..<count]))
          } catch { failure = error }
        }
      }
    }
    precondition(output[count...].allSatisfy { $0 == 0xA5 }, "the decoder wrote past its output")
    if let failure { throw failure }
    return Array(output[..<count])
  }
}

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
    try withEncoded(plain.span.bytes, by: choice, base: base, hint: hint) { ($0, Array($1)) }
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
      do throws(BlobStorageError) {
        try decode(
          stored.span.bytes, by: kind, base: base,
          into: UnsafeMutableRawBufferPointer(rebasing: output[..<count]))
      } catch { failure = error }
    }
    precondition(output[count...].allSatisfy { $0 == 0xA5 }, "the decoder wrote past its output")
    if let failure { throw failure }
    return Array(output[..<count])
  }

  func decodedBeginning(_ stored: [UInt8], count: Int) throws(BlobStorageError) -> [UInt8] {
    var output = [UInt8](repeating: 0xA5, count: count + 64)
    var failure: BlobStorageError?
    output.withUnsafeMutableBytes { output in
      do throws(BlobStorageError) {
        try decodeBeginning(
          stored.span.bytes, into: UnsafeMutableRawBufferPointer(rebasing: output[..<count]))
      } catch { failure = error }
    }
    if let failure { throw failure }
    precondition(output[count...].allSatisfy { $0 == 0xA5 }, "the decoder wrote past its output")
    return Array(output[..<count])
  }
}

import BlobStorage

extension FuzzTarget {
  /// Stored bytes of any codec, with and without a base: a head of four bytes says which, and how long the plain ones.
  static let codec = FuzzTarget("codec", seeds: seedsOfCodec) { input in
    var reader = InputReader(input)
    let kind = CodecKind.allCases[reader.byte() % CodecKind.allCases.count]
    let hasBase = reader.byte() % 2 == 1
    let count = reader.short() << (reader.byte() % 5)
    let base = Array("a base that both sides have, and that is repeated; ".utf8) + FuzzedPack.storeID
    let stored = reader.all()
    // A wall behind the output shows an overrun.
    var output = [UInt8](repeating: 0xA5, count: count + 32)
    output.withUnsafeMutableBytes { output in
      let bytes = base.span.bytes
      let encodingBase: EncodingBase = hasBase ? .prefix(bytes) : .none
      _ = Fuzzing.decode(stored) { raw throws(BlobStorageError) in
        try ChunkDecoder().decode(
          raw.bytes, by: kind, base: encodingBase,
          into: UnsafeMutableRawBufferPointer(rebasing: output[..<count]))
      }
    }
    Fuzzing.require(output[count...].allSatisfy { $0 == 0xA5 }, "the decoder wrote past its output")
  }

  /// Plain bytes through each codec and back, alone and against a base.
  static let encoding = FuzzTarget(
    "encoding",
    seeds: { [[1, 2, 3], Array("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".utf8), [0, 0xff, 0xd8, 0xff]] }
  ) { input in
    let half = input.prefix(input.count / 2)
    for choice in [CodecChoice.zstd, .zlib, .none] {
      for takesBase in [false, true] where choice.kind.takesBase || !takesBase {
        let outcome = Fuzzing.decode(input) { raw throws(BlobStorageError) -> [UInt8] in
          let (encoder, decoder) = (ChunkEncoder(), ChunkDecoder())
          let encodingBase: EncodingBase = takesBase ? .prefix(half.span.bytes) : .none
          return try encoder.withEncoded(raw.bytes, by: choice, base: encodingBase) {
            (kind, stored) throws(BlobStorageError) in
            var plain = [UInt8](repeating: 0, count: raw.count)
            var failure: BlobStorageError?
            plain.withUnsafeMutableBytes { target in
              do throws(BlobStorageError) {
                try decoder.decode(
                  stored.bytes, by: kind, base: kind == .none ? .none : encodingBase, into: target)
              } catch { failure = error }
            }
            if let failure { throw failure }
            return plain
          }
        }
        Fuzzing.require(outcome == input, "\(choice.kind) does not give back what it was given")
      }
    }
  }

  private static func seedsOfCodec() -> [[UInt8]] {
    var seeds: [[UInt8]] = [[0, 0, 3, 0, 0, 1, 2, 3]]
    let plain = Array(String(repeating: "chunk and manifest, ref and drop; ", count: 30).utf8)
    for (index, choice) in [CodecChoice.zstd, .zlib].enumerated() {
      let stored = Fuzzing.decode(plain) { raw throws(BlobStorageError) in
        try ChunkEncoder().withEncoded(raw.bytes, by: choice) { Array($1) }
      }
      let head = [UInt8(index + 1), 0, UInt8(plain.count & 0xff), UInt8(plain.count >> 8), 0]
      seeds.append(head + (stored ?? []))
    }
    return seeds
  }
}

import BlobStorage

extension FuzzTarget {
  /// Containers whose headers say anything: cut the same way however they are handed over, with nothing lost.
  static let parts = FuzzTarget("parts", seeds: seedsOfParts) { input in
    var reader = InputReader(input)
    let stride = 1 + reader.short() % 3_000
    // Short blobs are not looked into, so all are made long enough.
    let bytes = reader.all() + [UInt8](repeating: 0, count: 1_100)
    let sizes = Fuzzing.attempt { () throws(BlobStorageError) in try ChunkSizes(average: 1_024) } ?? .standard
    let whole = chunks(of: bytes, sizes, stride: bytes.count)
    Fuzzing.require(whole.reduce(0, +) == bytes.count, "\(whole) of \(bytes.count) bytes")
    Fuzzing.require(whole.allSatisfy { 1...sizes.maximum ~= $0 }, "a chunk of no or too many bytes: \(whole)")
    // A part that stands alone is as long as an average chunk, and makes three borders at most.
    Fuzzing.require(
      whole.count <= bytes.count / sizes.minimum + 3 * (bytes.count / sizes.average) + 4, "too many chunks")
    let parts = chunks(of: bytes, sizes, stride: stride)
    Fuzzing.require(parts == whole, "\(parts) in strides of \(stride), \(whole) at once")
  }

  /// How long the chunks are when so many bytes come at a time.
  private static func chunks(of bytes: [UInt8], _ sizes: ChunkSizes, stride: Int) -> [Int] {
    var chunker = BlobChunker(sizes: sizes)
    var lengths: [Int] = []
    var start = 0
    var end = 0
    repeat {
      end = min(end + stride, bytes.count)
      let chunks = bytes[start..<end].withUnsafeBytes { chunker.chunks(in: $0, isAtEnd: end == bytes.count) }
      var last = 0
      for chunk in chunks {
        Fuzzing.require(chunk.lowerBound == last, "a chunk begins at \(chunk.lowerBound), not \(last)")
        last = chunk.upperBound
        lengths.append(chunk.count)
      }
      start += last
      Fuzzing.require(
        end - start <= max(sizes.maximum, sizes.average) + BlobChunker.heldByteCountMax,
        "too much is held back")
    } while end < bytes.count
    return lengths
  }

  private static func seedsOfParts() -> [[UInt8]] {
    let short = [UInt8](repeating: 7, count: 300)
    let long = (0..<3_000).map { UInt8(truncatingIfNeeded: $0 * $0 >> 3) }
    let containers = [
      SampleContainer.jpeg(exif: short, picture: long),
      SampleContainer.png(text: short, picture: long, pictureByteCountMax: 700, trailer: short),
      SampleContainer.zip([("a", long), ("b", short), ("c", long)]),
      SampleContainer.zip([("a", long), ("b", short)], hasLongLengths: true),
      SampleContainer.boxes([("moov", short), ("mdat", long), ("free", short)]),
      SampleContainer.boxes([("mdat", long), ("moov", long)], hasLongLengths: true),
    ]
    return containers.enumerated().map { [UInt8($0.offset * 40), 1] + $0.element }
  }
}

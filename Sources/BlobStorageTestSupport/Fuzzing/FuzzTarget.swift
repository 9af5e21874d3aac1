import BlobStorage
import BlobStorageReports
import BlobStorageTransfer
import Foundation

/// A decoder of arbitrary bytes: it must accept them, or refuse them with one of a few codes, and nothing else.
///
/// To add one, make a `static let` of it and name it in ``all``. The daily tests then run it on its seeds, on the files
/// in `Fixtures/fuzz` under its name, and on seeded changes of both. `tools/fuzz` runs it with libFuzzer for any time.
public struct FuzzTarget: Sendable {
  /// Its name on the command line, and the name of its folder in `Fixtures/fuzz`.
  public let name: String
  /// Initial inputs that reach the code in question.
  public let seeds: @Sendable () -> [[UInt8]]
  private let body: @Sendable ([UInt8]) -> Void

  package init(
    _ name: String, seeds: @escaping @Sendable () -> [[UInt8]], _ body: @escaping @Sendable ([UInt8]) -> Void
  ) {
    self.name = name
    self.seeds = seeds
    self.body = body
  }

  /// Runs the decoder; stops the process if the decoder is wrong.
  public func run(_ bytes: [UInt8]) { body(bytes) }

  /// All targets.
  public static let all: [FuzzTarget] = [
    .records, .texts, .patterns, .codec, .encoding, .pack, .packRecords, .footer, .lease, .state, .store,
    .parts,
  ]
}

/// Functions that targets share.
enum Fuzzing {
  /// The codes by which a decoder may refuse arbitrary bytes.
  static let refusals: Set<BlobStorageError.Code> = [
    .corrupted, .unsupportedFormat, .notAStore, .limitExceeded,
  ]

  /// The value; nil if the bytes were refused.
  @discardableResult
  static func attempt<T>(
    also allowed: Set<BlobStorageError.Code> = [], _ body: () throws(BlobStorageError) -> T
  ) -> T? {
    do throws(BlobStorageError) { return try body() } catch {
      require(refusals.contains(error.code) || allowed.contains(error.code), "\(error.code): \(error)")
      return nil
    }
  }

  /// Stops the process, so that the fuzzer notices.
  static func require(_ condition: Bool, _ message: @autoclosure () -> String) {
    guard !condition else { return }
    // Release builds do not print the message.
    FileHandle.standardError.write(Data("Fatal error: \(message())\n".utf8))
    preconditionFailure()
  }

  /// Runs a decoder on borrowed bytes.
  static func decode<T>(
    _ bytes: some Collection<UInt8>, _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) -> T? {
    Array(bytes).withUnsafeBytes { raw in attempt { () throws(BlobStorageError) in try body(raw) } }
  }
}

/// Reads numbers and bytes from an input; zeros after its end.
struct InputReader {
  private var rest: ArraySlice<UInt8>

  init(_ bytes: [UInt8]) { rest = bytes[...] }

  var isEmpty: Bool { rest.isEmpty }

  mutating func byte() -> Int { Int(rest.popFirst() ?? 0) }

  mutating func short() -> Int { byte() | byte() << 8 }

  mutating func bytes(_ count: Int) -> [UInt8] {
    defer { rest = rest.dropFirst(count) }
    return Array(rest.prefix(count))
  }

  mutating func all() -> [UInt8] { bytes(rest.count) }
}

// MARK: Texts, codecs and containers

extension FuzzTarget {
  /// Values that are parsed from text: digests, versions, packs, numbers, keys.
  static let texts = FuzzTarget(
    "texts",
    seeds: {
      let digest = BlobDigest.of([1] as [UInt8])
      return [
        "\(digest)", "sha256:\(digest.hex)", Stamp(time: 1 << 40, writer: 7).text,
        FuzzedPack.name.fileName, "ff00", "blake3:", "é/\u{301}", "zstd",
      ].map { Array($0.utf8) }
    }
  ) { input in
    let text = String(decoding: input, as: UTF8.self)
    if let digest = BlobDigest(text) {
      Fuzzing.require(BlobDigest(digest.description) == digest, "digest \(text)")
    }
    for algorithm in [BlobDigest.Algorithm.blake3, .sha256] {
      guard let digest = BlobDigest(algorithm: algorithm, hex: text) else { continue }
      Fuzzing.require(digest.hex == text.lowercased(), "digits \(text)")
    }
    if let id = BlobVersion.ID(text) {
      Fuzzing.require(id.description == text.lowercased(), "version \(text)")
    }
    if let name = PackName(fileName: text) { Fuzzing.require(name.fileName == text, "pack \(text)") }
    _ = Hex.integer(UInt64.self, text)
    _ = Hex.integer(UInt32.self, text)
    _ = CodecKind(name: text)
    _ = BlobDigest.Algorithm(name: text)
    if let mark = FileMark(metadata: input) {
      Fuzzing.require(FileMark(metadata: mark.metadata) == mark, "metadata of a file")
    }
    if let key = Fuzzing.attempt(
      also: [.invalidArgument], { () throws(BlobStorageError) in try Engine.keyBytes(text) })
    {
      Fuzzing.require(
        key == Array(text.utf8) && 1...BlobLimits.maximumKeyByteCount ~= key.count, "key \(text)")
    }
  }

  /// Shell patterns: a pattern, a NUL and a text.
  static let patterns = FuzzTarget(
    "patterns",
    seeds: {
      ["*.log\0a.log", "[!]a-c]?\\*\0xy*", "a/b/\0a/b", "***a***b\0aaaaaaaaaaab", "[\0[", "\\\0\\"].map {
        Array($0.utf8)
      }
    }
  ) { input in
    let parts = input.prefix(2_000).split(separator: 0, maxSplits: 1, omittingEmptySubsequences: false)
    let pattern = String(decoding: parts.first ?? [], as: UTF8.self)
    let text = String(decoding: parts.dropFirst().first ?? [], as: UTF8.self)
    let matches = KeyPattern(pattern).matches(text)
    _ = IgnoreRules([pattern, "!" + pattern]).excludesPath(text, isFolder: true)
    if !pattern.unicodeScalars.contains(where: { "*?[\\/".unicodeScalars.contains($0) }) {
      Fuzzing.require(
        matches == pattern.utf8.elementsEqual(text.utf8), "\(pattern) is a pattern of itself alone")
    }
    var quoted = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      quoted.append("\\")
      quoted.append(scalar)
    }
    Fuzzing.require(KeyPattern(String(quoted)).matches(text), "quoted \(text)")
    let isName = !text.isEmpty && !text.unicodeScalars.contains("/") && text != "." && text != ".."
    Fuzzing.require(
      !isName || IgnoreRules([String(quoted)]).excludes(text, isFolder: false), "quoted name \(text)")
  }

  /// Stored bytes of any codec, with and without a base. A head of five bytes selects them and the plain length.
  static let codec = FuzzTarget("codec", seeds: seedsOfCodec) { input in
    var reader = InputReader(input)
    let kind = CodecKind.allCases[reader.byte() % CodecKind.allCases.count]
    let hasBase = reader.byte() % 2 == 1
    let count = reader.short() << (reader.byte() % 5)
    let base = Array("a base that both sides have, and that is repeated; ".utf8) + FuzzedPack.storeID
    let stored = reader.all()
    // A wall after the output shows an overrun.
    var output = [UInt8](repeating: 0xA5, count: count + 32)
    output.withUnsafeMutableBytes { output in
      _ = Fuzzing.decode(stored) { raw throws(BlobStorageError) in
        try ChunkDecoder().decode(
          raw.bytes, by: kind, base: hasBase ? base : nil,
          into: UnsafeMutableRawBufferPointer(rebasing: output[..<count]))
      }
    }
    Fuzzing.require(output[count...].allSatisfy { $0 == 0xA5 }, "the decoder wrote past its output")
  }

  /// Encodes plain bytes by each codec and decodes them, alone and against a base.
  static let encoding = FuzzTarget(
    "encoding",
    seeds: { [[1, 2, 3], Array("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".utf8), [0, 0xff, 0xd8, 0xff]] }
  ) { input in
    let half = Array(input.prefix(input.count / 2))
    for choice in [CodecChoice.zstd, .zlib, .none] {
      for takesBase in [false, true] where choice.kind.takesBase || !takesBase {
        let outcome = Fuzzing.decode(input) { raw throws(BlobStorageError) -> [UInt8] in
          let (encoder, decoder) = (ChunkEncoder(), ChunkDecoder())
          let base = takesBase ? half : nil
          return try encoder.withEncoded(raw.bytes, by: choice, base: base) {
            (kind, stored) throws(BlobStorageError) in
            var plain = [UInt8](repeating: 0, count: raw.count)
            var failure: BlobStorageError?
            plain.withUnsafeMutableBytes { target in
              do throws(BlobStorageError) {
                try decoder.decode(
                  stored.bytes, by: kind, base: kind == .none ? nil : base, into: target)
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

  /// Containers with arbitrary headers: the chunks do not depend on how the bytes arrive, and nothing is lost.
  static let parts = FuzzTarget("parts", seeds: seedsOfParts) { input in
    var reader = InputReader(input)
    let stride = 1 + reader.short() % 3_000
    // The chunker does not parse short blobs, so all are made long enough.
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

  /// The lengths of the chunks if `stride` bytes come at a time.
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

import BlobStorage
import BlobStorageTestSupport
import CBlobKernels
import Foundation
import Testing

@Suite("BLAKE3")
struct Blake3Tests {
  struct Vector: Decodable {
    let byteCount: Int
    let digest: String

    /// The inputs of the official vectors.
    var input: [UInt8] { (0..<byteCount).map { UInt8($0 % 251) } }
  }

  static var levels: [Int32] {
    [BS_BLAKE3_PORTABLE, BS_BLAKE3_LANES4, BS_BLAKE3_LANES8, BS_BLAKE3_LANES16].map { Int32($0) }
      .filter { bs_blake3_level_supported($0) }
  }

  static func digest(_ bytes: [UInt8], level: Int32) -> BlobDigest {
    var digest = [UInt8](repeating: 0, count: BlobDigest.byteCount)
    bytes.withUnsafeBytes { bs_blake3_at_level(level, $0.baseAddress, $0.count, &digest) }
    return digest.withUnsafeBytes { BlobDigest(algorithm: .blake3, bytes: $0) }
  }

  @Test("has the digests of the vectors, at every level", arguments: levels)
  func vectors(level: Int32) throws {
    let vectors = try JSONDecoder().decode([Vector].self, from: Fixtures.data("blake3/vectors.json"))
    #expect(vectors.count == 35)
    for vector in vectors {
      #expect(Self.digest(vector.input, level: level).hex == vector.digest, "\(vector.byteCount) bytes")
    }
  }

  @Test(
    "has the digests that are printed in the specification's vectors",
    arguments: [
      (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
      (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
      (1_024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
      (1_025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
      (102_400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"),
    ])
  func specification(byteCount: Int, digest: String) {
    #expect(BlobDigest.of(Vector(byteCount: byteCount, digest: digest).input).hex == digest)
  }

  @Test("is the same at every level, whatever the length")
  func levelsAgree() {
    var random = SplitMix64.announced()
    let bytes = random.bytes(700_000)
    // Round the borders of lanes (4, 8, 16 leaves), of a batch (256 leaves) and of its remainders.
    let borders = [
      2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 20, 24, 28, 31, 33, 64, 255, 256, 257, 384, 512, 513,
    ].map {
      $0 * 1_024
    }
    // A short last leaf beside any number of full ones in the lanes, ending round the borders of a block.
    let short = (0...17).flatMap { leaves in
      [1, 63, 64, 65, 511, 512, 513, 960, 961, 1_023].map { leaves * 1_024 + $0 }
    }
    let lengths =
      borders.flatMap { [$0 - 1, $0, $0 + 1] } + short
      + (0..<40).map { _ in Int.random(in: 0...bytes.count, using: &random) }
    for length in lengths {
      let input = Array(bytes[..<length])
      let expected = Self.digest(input, level: Int32(BS_BLAKE3_PORTABLE))
      for level in Self.levels {
        #expect(Self.digest(input, level: level) == expected, "level \(level), \(length) bytes")
      }
    }
  }

  @Test("reads no byte behind the input, whatever its length and alignment", arguments: levels)
  func staysInside(level: Int32) throws {
    var random = SplitMix64.announced()
    let page = Int(getpagesize())
    let byteCount = 32_768
    let memory = try #require(
      mmap(nil, byteCount + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0))
    try #require(memory != MAP_FAILED)
    defer { munmap(memory, byteCount + page) }
    UnsafeMutableRawBufferPointer(start: memory, count: byteCount).copyBytes(from: random.bytes(byteCount))
    let end = memory + byteCount
    try #require(mprotect(end, page, PROT_NONE) == 0)

    // Every length of a single leaf, and every number of leaves in the lanes with a last one of any length.
    let lengths =
      Array(0...1_025)
      + (1...20).flatMap { leaves in
        [1, 64, 100, 511, 512, 700, 1_023].map { leaves * 1_024 + $0 }
      }
    for length in lengths {
      let input = UnsafeRawBufferPointer(start: end - length, count: length)
      var digest = [UInt8](repeating: 0, count: BlobDigest.byteCount)
      bs_blake3_at_level(level, input.baseAddress, length, &digest)
      let expected = Self.digest(Array(input), level: Int32(BS_BLAKE3_PORTABLE))
      #expect(
        digest.withUnsafeBytes { BlobDigest(algorithm: .blake3, bytes: $0) } == expected, "\(length) bytes")
    }
  }

  @Test("is what b3sum prints")
  func agreesWithB3sum() throws {
    var random = SplitMix64.announced()
    let folder = FileManager.default.temporaryDirectory.appending(path: "b3sum-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }

    let lengths = (0..<12).map { _ in Int.random(in: 0...40_000, using: &random) } + [300_000, 1_500_001]
    var expected: [String] = []
    var names: [String] = []
    for (index, length) in lengths.enumerated() {
      let bytes = random.bytes(length)
      try Data(bytes).write(to: folder.appending(path: "\(index)"))
      expected.append("\(BlobDigest.of(bytes).hex)  \(index)")
      names.append("\(index)")
    }
    #expect(try Self.b3sum(names, in: folder) == expected)
  }

  private static func b3sum(_ names: [String], in folder: URL) throws -> [String] {
    let process = Process()
    let output = Pipe()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["b3sum", "--num-threads", "1"] + names
    process.currentDirectoryURL = folder
    process.standardOutput = output
    try process.run()
    let text = try output.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    try #require(process.terminationStatus == 0, "b3sum is needed: apt install b3sum, or brew install b3sum")
    return String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init)
  }
}

import BlobStorage
import Foundation
import Testing

@Suite("A digest")
struct DigestTests {
  static let ofABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"

  static func digest(
    _ algorithm: BlobDigest.Algorithm = .blake3, first: UInt8, second: UInt8 = 0, last: UInt8 = 0
  ) -> BlobDigest {
    var bytes = [UInt8](repeating: 0, count: BlobDigest.byteCount)
    bytes[0] = first
    bytes[1] = second
    bytes[31] = last
    return bytes.withUnsafeBytes { BlobDigest(algorithm: algorithm, bytes: $0) }
  }

  @Test(
    "by SHA-256 has the known values (FIPS 180-4, examples)",
    arguments: [
      ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
      ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
      (
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
      ),
    ])
  func sha256(text: String, hex: String) {
    #expect(BlobDigest.of(Array(text.utf8), by: .sha256).description == "sha256:" + hex)
    #expect(BlobDigest.of(Data(text.utf8), by: .sha256).hex == hex)
  }

  @Test("is BLAKE3 unless asked otherwise")
  func isBlake3() {
    #expect(BlobDigest.of(Data("abc".utf8)).description == "blake3:" + Self.ofABC)
  }

  @Test("comes back from its text", arguments: BlobDigest.Algorithm.allCases)
  func textRoundTrip(algorithm: BlobDigest.Algorithm) {
    let digest = BlobDigest.of(Array("abc".utf8), by: algorithm)
    #expect(BlobDigest(digest.description) == digest)
    #expect(BlobDigest(algorithm.name + ":" + digest.hex.uppercased()) == digest)
    #expect(BlobDigest(algorithm: algorithm, hex: digest.hex) == digest)
    #expect(BlobDigest.Algorithm(name: algorithm.name) == algorithm)
  }

  @Test(
    "is not read from anything else",
    arguments: [
      "", ":", "blake3", "blake3:", ofABC, "md5:\(ofABC)", "BLAKE3:\(ofABC)", " blake3:\(ofABC)",
      "blake3:\(ofABC)0", "blake3:\(ofABC.dropLast())", "blake3:\(ofABC.dropLast())g",
      "blake3:\(ofABC.dropLast(2))é", "blake3:\(ofABC.dropLast(2))+1", "blake3::\(ofABC.dropLast())",
    ] as [String])
  func refusesOtherText(text: String) {
    #expect(BlobDigest(text) == nil)
  }

  @Test("is its text in JSON")
  func codable() throws {
    let digest = BlobDigest.of(Array("abc".utf8))
    let json = try JSONEncoder().encode([digest])
    #expect(String(decoding: json, as: UTF8.self) == "[\"blake3:\(Self.ofABC)\"]")
    #expect(try JSONDecoder().decode([BlobDigest].self, from: json) == [digest])
    #expect(throws: DecodingError.self) {
      try JSONDecoder().decode([BlobDigest].self, from: Data("[\"blake3:12\"]".utf8))
    }
  }

  @Test("differs by algorithm and by every byte")
  func equality() {
    #expect(Self.digest(first: 1) != Self.digest(.sha256, first: 1))
    let zero = [UInt8](repeating: 0, count: BlobDigest.byteCount)
    var seen: Set<BlobDigest> = [Self.digest(first: 0)]
    for index in 0..<BlobDigest.byteCount {
      var bytes = zero
      bytes[index] = 1
      seen.insert(bytes.withUnsafeBytes { BlobDigest(algorithm: .blake3, bytes: $0) })
    }
    #expect(seen.count == BlobDigest.byteCount + 1)
  }

  @Test("is ordered by its bytes, then by its algorithm")
  func ordering() {
    let ordered = [
      Self.digest(first: 0), Self.digest(first: 0, last: 1), Self.digest(.sha256, first: 0, last: 1),
      Self.digest(first: 0, last: 255), Self.digest(first: 0, second: 2), Self.digest(first: 1),
      Self.digest(first: 1, second: 1), Self.digest(first: 128),
    ]
    #expect(ordered.reversed().sorted() == ordered)
  }

  @Test("gives its bytes in the order of its text")
  func bytes() {
    let digest = BlobDigest(algorithm: .sha256, hex: (0..<32).map { String(format: "%02x", $0) }.joined())
    #expect(digest?.withUnsafeBytes { Array($0) } == Array(0..<32))
  }

  @Test("has 32 bytes, or traps")
  func wrongByteCountTraps() async {
    await #expect(processExitsWith: .failure) {
      let bytes = [UInt8](repeating: 0, count: 31)
      _ = bytes.withUnsafeBytes { BlobDigest(algorithm: .blake3, bytes: $0) }
    }
  }
}

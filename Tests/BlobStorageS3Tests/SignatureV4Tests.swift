import BlobStorageS3
import Testing

@Suite("A signature")
struct SignatureV4Tests {
  /// The credentials of AWS's published examples.
  static let documentation = S3Credentials(
    accessKey: "AKIAIOSFODNN7EXAMPLE", secretKey: S3Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"))
  static let suite = S3Credentials(
    accessKey: "AKIDEXAMPLE", secretKey: S3Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))
  /// 24 May 2013 and 30 August 2015, 12:36.
  static let documentationTime = UTCTime(secondsSince1970: 1_369_353_600)
  static let suiteTime = UTCTime(secondsSince1970: 1_440_938_160)

  struct Example: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var request: SignatureV4.Request
    var signature: String

    init(
      _ name: String, _ method: String, _ path: String, _ query: [(String, String)],
      _ headers: [(String, String)],
      body: String = "", _ signature: String
    ) {
      testDescription = name
      let digest = SignatureV4.bodyDigest(of: Array(body.utf8))
      request = .init(
        method: method, path: path, query: query.map { (name: $0.0, value: $0.1) },
        headers: headers.map { (name: $0.0, value: $0.1) }, bodyDigest: digest)
      self.signature = signature
    }
  }

  // "Signature Calculations for the Authorization Header: Transferring Payload in a Single Chunk", Amazon S3 API.
  static let documentationExamples = [
    Example(
      "GET object with a range", "GET", "/test.txt", [],
      s3Headers([("Range", "bytes=0-9")]),
      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    Example(
      "PUT object", "PUT", "/test%24file.text", [],
      s3Headers(
        [("Date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
        body: "Welcome to Amazon S3."),
      body: "Welcome to Amazon S3.", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
    Example(
      "GET bucket lifecycle", "GET", "/", [("lifecycle", "")], s3Headers([]),
      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    Example(
      "list objects", "GET", "/", [("prefix", "J"), ("max-keys", "2")], s3Headers([]),
      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
  ]

  // The published test suite of Signature Version 4, for a service named "service".
  static let suiteExamples = [
    Example(
      "get-vanilla", "GET", "/", [], suiteHeaders([]),
      "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    Example(
      "get-vanilla-query-order-key-case", "GET", "/", [("Param2", "value2"), ("Param1", "value1")],
      suiteHeaders([]),
      "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
    Example(
      "get-header-value-trim", "GET", "/", [],
      suiteHeaders([("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")]),
      "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"),
    Example(
      "post-vanilla", "POST", "/", [], suiteHeaders([]),
      "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
  ]

  @Test("is that of the examples in the documentation", arguments: documentationExamples)
  func documentation(example: Example) {
    let signature = SignatureV4(credentials: Self.documentation, region: "us-east-1")
    #expect(signature.signature(of: example.request, at: Self.documentationTime) == example.signature)
  }

  @Test("is that of the test suite", arguments: suiteExamples)
  func suite(example: Example) {
    let signature = SignatureV4(credentials: Self.suite, region: "us-east-1", service: "service")
    #expect(signature.signature(of: example.request, at: Self.suiteTime) == example.signature)
  }

  @Test("stands in the header with the credential's scope and the signed headers")
  func header() {
    let signature = SignatureV4(credentials: Self.documentation, region: "us-east-1")
    #expect(
      signature.authorization(for: Self.documentationExamples[0].request, at: Self.documentationTime)
        == "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        + "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        + "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")
  }

  private static func s3Headers(_ more: [(String, String)], body: String = "") -> [(String, String)] {
    [
      ("Host", "examplebucket.s3.amazonaws.com"), ("x-amz-date", "20130524T000000Z"),
      ("x-amz-content-sha256", SignatureV4.bodyDigest(of: Array(body.utf8))),
    ] + more
  }

  private static func suiteHeaders(_ more: [(String, String)]) -> [(String, String)] {
    [("Host", "example.amazonaws.com"), ("X-Amz-Date", "20150830T123600Z")] + more
  }
}

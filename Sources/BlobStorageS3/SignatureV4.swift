import BlobStorage
import Foundation

/// Signs requests with AWS Signature Version 4, in a header.
///
/// It signs the *canonical request*: method, path, query, headers and the SHA-256 of the body, in a normal form. The
/// signature always includes the body's digest, so that the object store checks the body. The path is encoded once and
/// not normalized, as S3 requires.
package struct SignatureV4: Sendable {
  /// The signed parts of a request.
  package struct Request: Sendable {
    package var method: String
    /// The encoded path, beginning with `/`.
    package var path: String
    /// The query, unencoded, in any order.
    package var query: [(name: String, value: String)]
    /// The headers to sign, including `Host`, in any order.
    package var headers: [(name: String, value: String)]
    /// The SHA-256 of the body in hexadecimal.
    package var bodyDigest: String

    package init(
      method: String, path: String, query: [(name: String, value: String)] = [],
      headers: [(name: String, value: String)], bodyDigest: String
    ) {
      self.method = method
      self.path = path
      self.query = query
      self.headers = headers
      self.bodyDigest = bodyDigest
    }

    /// The encoded and sorted query, for the URL and the signature.
    package var queryText: String {
      query.map { (PercentEncoding.encode($0.name), PercentEncoding.encode($0.value)) }
        .sorted { $0 < $1 }.map { "\($0.0)=\($0.1)" }.joined(separator: "&")
    }

    /// The names of the signed headers: lower case, sorted.
    package var headerNames: String { headerValues.map(\.key).joined(separator: ";") }

    /// The canonical request.
    package var canonicalText: String {
      let lines = headerValues.map { "\($0.key):\($0.value)\n" }.joined()
      return [method, path, queryText, lines, headerNames, bodyDigest].joined(separator: "\n")
    }

    /// The headers, sorted: names in lower case, values trimmed, with single spaces between words.
    private var headerValues: [(key: String, value: String)] {
      var values: [String: [String]] = [:]
      for header in headers {
        let words = header.value.split(whereSeparator: { $0 == " " || $0 == "\t" })
        values[header.name.lowercased(), default: []].append(words.joined(separator: " "))
      }
      return values.map { ($0.key, $0.value.joined(separator: ",")) }.sorted { $0.key < $1.key }
    }
  }

  /// The SHA-256 of no bytes: the digest of a request without a body.
  package static let emptyBodyDigest = bodyDigest(of: [])

  package var credentials: S3Credentials
  package var region: String
  package var service: String

  package init(credentials: S3Credentials, region: String, service: String = "s3") {
    self.credentials = credentials
    self.region = region
    self.service = service
  }

  /// The digest of a body in memory, in hexadecimal.
  package static func bodyDigest(of body: [UInt8]) -> String {
    BlobDigest.of(body, by: .sha256).withUnsafeBytes { Hex.text($0) }
  }

  /// The value of the `Authorization` header.
  package func authorization(for request: Request, at time: UTCTime) -> String {
    "\(Self.algorithm) Credential=\(credentials.accessKey)/\(scope(on: time.day)), "
      + "SignedHeaders=\(request.headerNames), Signature=\(signature(of: request, at: time))"
  }

  /// The signature alone.
  package func signature(of request: Request, at time: UTCTime) -> String {
    let digest = Self.bodyDigest(of: Array(request.canonicalText.utf8))
    let text = [Self.algorithm, time.basicText, scope(on: time.day), digest].joined(separator: "\n")
    return Hex.text(BlobDigest.authenticationCode(of: Array(text.utf8), key: signingKey(on: time.day)))
  }

  /// Derives the key for one day, region and service from the secret key.
  package func signingKey(on day: String) -> [UInt8] {
    [day, region, service, "aws4_request"].reduce(Array("AWS4\(credentials.secretKey.text)".utf8)) {
      BlobDigest.authenticationCode(of: Array($1.utf8), key: $0)
    }
  }

  private static let algorithm = "AWS4-HMAC-SHA256"

  private func scope(on day: String) -> String { "\(day)/\(region)/\(service)/aws4_request" }
}

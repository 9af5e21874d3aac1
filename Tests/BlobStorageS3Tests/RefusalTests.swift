import BlobStorage
import BlobStorageS3
import Foundation
import SystemPackage
import Testing

@Suite("A refusal is told in one sentence")
struct RefusalTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var status: Int
    var name: String
    var headers: [(String, String)] = []
    var more = ""
    var code: BlobStorageError.Code
    var phrase: String

    var testDescription: String { "\(status) \(name)" }
  }

  static let cases = [
    Case(
      status: 403, name: "InvalidAccessKeyId", code: .permissionDenied, phrase: "check AWS_ACCESS_KEY_ID"),
    Case(
      status: 403, name: "SignatureDoesNotMatch", code: .permissionDenied, phrase: "AWS_SECRET_ACCESS_KEY"),
    Case(status: 400, name: "ExpiredToken", code: .permissionDenied, phrase: "get new credentials"),
    Case(
      status: 403, name: "AccessDenied", code: .permissionDenied, phrase: "refuses PUT s3://bucket/p/packs/x"),
    Case(status: 404, name: "NoSuchBucket", code: .noBucket, phrase: "There is no bucket 'bucket'"),
    Case(
      status: 301, name: "PermanentRedirect", headers: [("x-amz-bucket-region", "eu-west-3")],
      code: .invalidArgument, phrase: "set AWS_REGION to that"),
    Case(status: 307, name: "TemporaryRedirect", code: .invalidArgument, phrase: "set AWS_REGION and"),
    Case(
      status: 400, name: "AuthorizationHeaderMalformed", more: "<Region>eu-west-3</Region>",
      code: .invalidArgument, phrase: "is in the region 'eu-west-3', not in 'us-east-1'"),
    Case(status: 507, name: "", code: .noSpace, phrase: "is full"),
    Case(status: 403, name: "QuotaExceeded", code: .noSpace, phrase: "is full (403 QuotaExceeded)"),
    Case(
      status: 501, name: "NotImplemented", more: "<Message>What?</Message>", code: .io,
      phrase: "501 NotImplemented: What?"),
    Case(status: 404, name: "NoSuchKey", code: .io, phrase: "404 NoSuchKey"),
    Case(
      status: 401, name: "", code: .permissionDenied, phrase: "the credentials (401): check AWS_ACCESS_KEY_ID"
    ),
    Case(status: 400, name: "InvalidToken", code: .permissionDenied, phrase: "get new credentials"),
    Case(status: 403, name: "", code: .permissionDenied, phrase: "to these credentials (403): they need to"),
    Case(
      status: 403, name: "RequestTimeTooSkewed", code: .permissionDenied,
      phrase: "This machine's clock is too far off the object store's"),
    Case(
      status: 403, name: "RequestTimeTooSkewed", headers: [("Date", "yesterday")], code: .permissionDenied,
      phrase: "This machine's clock is too far off the object store's"),
    Case(
      status: 400, name: "IllegalLocationConstraintException", code: .invalidArgument,
      phrase: "set AWS_REGION and AWS_ENDPOINT_URL to where"),
    Case(
      status: 301, name: "PermanentRedirect", headers: [("x-amz-bucket-region", "us-east-1")],
      code: .invalidArgument, phrase: "set AWS_REGION and AWS_ENDPOINT_URL to where"),
    Case(status: 503, name: "XMinioStorageFull", code: .noSpace, phrase: "is full (503 XMinioStorageFull)"),
    Case(
      status: 400, name: "InsufficientStorage", code: .noSpace, phrase: "is full (400 InsufficientStorage)"),
  ]

  @Test("with the way out", arguments: cases)
  func refusals(example: Case) throws {
    let server = try ScriptedServer { _, _ in
      .refusal(example.status, example.name, example.headers, more: example.more)
    }
    let failure = FaultTests.failure { _ = try FaultTests.put(try Scripted(server).store) }
    #expect(failure?.code == example.code)
    #expect(failure?.message.contains(example.phrase) == true, "\(failure?.message ?? "nothing")")
    #expect(failure?.message.contains("\n") == false)
    #expect(server.requests.count == 1)
  }

  @Test("without the secrets, whatever the object store answers")
  func secrets() throws {
    let server = try ScriptedServer { _, _ in
      .refusal(418, "very-secret", more: "<Message>very-secret and secret-token\n\u{7}</Message>")
    }
    let failure = FaultTests.failure { _ = try FaultTests.put(try Scripted(server).store) }
    #expect(failure?.message.contains("(hidden) and (hidden)") == true)
    #expect(failure.map { "\($0)" + String(reflecting: $0) }?.contains("secret") == false)
    #expect(failure?.message.contains("\n") == false)
  }

  @Test("tells no bucket from no object")
  func noBucket() throws {
    let server = try ScriptedServer { number, _ in .refusal(404, number < 3 ? "NoSuchKey" : "NoSuchBucket") }
    let store = try Scripted(server).store
    #expect(try store.get("packs/x", 0..<1) == nil)
    #expect(try store.tail("packs/x", byteCount: 1) == nil)
    try store.delete("packs/x")
    #expect(FaultTests.failure { _ = try store.get("packs/x", 0..<1) }?.code == .noBucket)
    #expect(FaultTests.failure { _ = try store.tail("packs/x", byteCount: 1) }?.code == .noBucket)
    #expect(FaultTests.failure { try store.delete("packs/x") }?.code == .noBucket)
    #expect(FaultTests.failure { _ = try store.list("", after: nil) }?.code == .noBucket)
  }

  @Test("tells a proxy that knows no object store from no object")
  func proxyAnswer() throws {
    let server = try ScriptedServer { _, _ in .reply(404, [], "404 page not found") }
    let store = try Scripted(server).store
    let requests: [() throws -> Void] = [
      { _ = try store.get("packs/x", 0..<1) }, { _ = try store.tail("packs/x", byteCount: 1) },
      { try store.delete("packs/x") },
    ]
    for request in requests {
      let failure = FaultTests.failure(request)
      #expect(failure?.code == .io)
      #expect(failure?.message.contains("check AWS_ENDPOINT_URL") == true)
    }
  }

  @Test("when the certificate is another host's or untrusted, and there is none when it is right")
  func certificates() throws {
    let server = try ScriptedServer(certificate: .localhost) { _, _ in .reply(204) }
    let path = FilePath(
      FileManager.default.temporaryDirectory.appending(path: "certificate-\(UUID()).pem").path)
    try ServerCertificate.localhost.chain.write(toFile: path.string, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: path.string) }

    try Scripted("https://localhost:\(server.port)", certificates: path).store.delete("x")
    let elsewhere = try Scripted("https://127.0.0.1:\(server.port)", certificates: path)
    let other = FaultTests.failure { try elsewhere.store.delete("x") }
    #expect(other?.message.contains("another host's") == true, "\(other?.message ?? "nothing")")
    let distrusting = try Scripted("https://localhost:\(server.port)")
    let unknown = FaultTests.failure { try distrusting.store.delete("x") }
    // A certificate is the same the next time.
    #expect(elsewhere.pauses.isEmpty && distrusting.pauses.isEmpty)
    #expect(unknown?.message.contains("AWS_CA_BUNDLE") == true, "\(unknown?.message ?? "nothing")")
    #expect(server.requests.count == 1)
    #expect { try Scripted("https://localhost", certificates: "/nonexistent") } throws: {
      ($0 as? BlobStorageError)?.code == .invalidArgument
    }
  }

  @Test("by the proxy that is asked in the object store's place", arguments: [407, 403])
  func proxy(status: Int) throws {
    let server = try ScriptedServer { _, _ in .reply(status) }
    let environment = [
      "http_proxy": "http://user:very-secret@127.0.0.1:\(server.port)",
      "AWS_ENDPOINT_URL": "http://service.invalid",
    ]
    let configuration = try ConfigurationTests.configuration(
      ConfigurationTests.keys.merging(environment) { $1 })
    let scripted = try Scripted("http://service.invalid", proxy: configuration.proxy)
    let failure = FaultTests.failure { try scripted.store.delete("x") }
    #expect(failure?.code == .unreachable)
    #expect(failure?.message.contains("The proxy on the way") == true, "\(failure?.message ?? "nothing")")
    let request = try #require(server.requests.first)
    #expect("\(request.method) \(request.uri)" == "CONNECT service.invalid:80")
    #expect(
      request.header("Proxy-Authorization") == "Basic \(Data("user:very-secret".utf8).base64EncodedString())")
    #expect(server.requests.count == 1)
  }

  @Test("unless the proxy connects: then the object store gets the requests, without the proxy's password")
  func throughProxy() throws {
    // The proxy and, once connected, the object store.
    let server = try ScriptedServer { _, request in .reply(request.method == "CONNECT" ? 200 : 204) }
    let configuration = try ConfigurationTests.configuration(
      ConfigurationTests.keys.merging(
        [
          "http_proxy": "http://user:very-secret@127.0.0.1:\(server.port)",
          "AWS_ENDPOINT_URL": "http://service.invalid",
        ]) { $1 })
    let scripted = try Scripted("http://service.invalid", proxy: configuration.proxy)
    for name in ["x", "y"] { try scripted.store.delete(name) }
    #expect(
      server.requests.map { "\($0.method) \($0.uri)" }
        == ["CONNECT service.invalid:80", "DELETE /bucket/p/x", "DELETE /bucket/p/y"])
    #expect(server.requests.dropFirst().allSatisfy { $0.header("Proxy-Authorization") == nil })
    #expect(server.requests.first?.header("Authorization") == nil)
  }

  @Test(
    "before any connection, for a URL of another protocol than the endpoint's",
    arguments: [(true, "http"), (false, "https"), (false, "ftp")])
  func protocols(isSecure: Bool, scheme: String) throws {
    let server = try ScriptedServer { _, _ in .reply(200) }
    let transport = try HTTPTransport(
      isSecure: isSecure, certificates: nil, proxy: nil, patience: .init(silence: .milliseconds(200)))
    #expect {
      try transport.send(
        method: "GET", url: "\(scheme)://127.0.0.1:\(server.port)/", headers: [], body: nil,
        answerByteCountMax: 100)
    } throws: {
      guard case .cut(let reason)? = $0 as? TransportFailure else { return false }
      return reason.contains("rotocol")
    }
    #expect(server.connectionCount == 0)
  }
}

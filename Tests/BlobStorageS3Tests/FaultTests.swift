import BlobStorage
import BlobStorageS3
import BlobStorageSharing
import BlobStorageTestSupport
import CCurl
import Foundation
import SystemPackage
import Testing

@Suite("An object store that fails")
struct FaultTests {
  static let bytes: [UInt8] = Array("what is stored".utf8)

  static func put(_ store: S3ObjectStore, ifAbsent: Bool = true) throws -> ObjectPutOutcome {
    try store.put("packs/x", .bytes(bytes), ifAbsent: ifAbsent)
  }

  /// What a call throws.
  static func failure(_ body: () throws -> Void) -> BlobStorageError? {
    do { try body() } catch { return error as? BlobStorageError }
    return nil
  }

  @Test("is asked again after a pause that it asked for")
  func retryAfter() throws {
    let server = try ScriptedServer { number, _ in
      number == 0 ? .refusal(503, "SlowDown", [("Retry-After", "7")]) : .reply(200)
    }
    let scripted = try Scripted(server)
    #expect(try Self.put(scripted.store) == .stored)
    #expect(scripted.pauses == [.seconds(7)])
    #expect(server.requests.map(\.body) == [Self.bytes, Self.bytes])
  }

  @Test("is asked again after longer and longer pauses when it is at fault, overloaded, slow or cut off")
  func transient() throws {
    let server = try ScriptedServer { number, _ in
      switch number {
      case 0: .refusal(500, "InternalError")
      case 1: .reply(502, [], "<html>")
      // A kept connection may end at any time: the first of these is no fault.
      case 2, 3: .hangUp
      case 4: .cut(200, byteCount: 100, "<")
      case 5: .reply(429)
      case 6: .refusal(400, "RequestTimeout")
      case 7: .refusal(409, "ConditionalRequestConflict")
      default: .reply(200)
      }
    }
    let scripted = try Scripted(server)
    #expect(try Self.put(scripted.store) == .stored)
    #expect(scripted.pauses == [100, 200, 400, 800, 1600, 3200, 6400].map { .milliseconds($0) })
  }

  @Test("is given up after so many attempts, in a sentence")
  func givenUp() throws {
    let server = try ScriptedServer { _, _ in .refusal(503, "SlowDown", [("Retry-After", "100000")]) }
    let scripted = try Scripted(server, policy: RetryPolicy(attemptCountMax: 4))
    let failure = Self.failure { _ = try Self.put(scripted.store) }
    #expect(failure?.code == .busy)
    #expect(failure?.message.contains("4 times") == true)
    #expect(server.requests.count == 4)
    #expect(scripted.pauses == [.seconds(60), .seconds(60), .seconds(60)])
  }

  @Test("is not asked again for a task that was cancelled")
  func cancelled() throws {
    let server = try ScriptedServer { _, _ in .refusal(503, "SlowDown") }
    let flag = CancellationFlag()
    let scripted = try Scripted("http://127.0.0.1:\(server.port)", whilePausing: { flag.cancel() })
    let failure = CancellationFlag.$current.withValue(flag) {
      Self.failure { _ = try Self.put(scripted.store) }
    }
    #expect(failure?.code == .cancelled)
    #expect(server.requests.count == 1)
  }

  @Test("is waited for no longer by a task that was cancelled")
  func cancelledInFlight() throws {
    let flag = CancellationFlag()
    let server = try ScriptedServer { _, _ in
      flag.cancel()
      return .silence
    }
    let scripted = try Scripted(server)
    let failure = CancellationFlag.$current.withValue(flag) {
      Self.failure { _ = try Self.put(scripted.store) }
    }
    #expect(failure?.code == .cancelled)
    #expect(server.requests.count == 1)
  }

  @Test("has perhaps stored what its lost answer was about: the 412 after it says that there is one")
  func ownPut() throws {
    let server = try ScriptedServer { number, _ in number == 0 ? .hangUp : .refusal(412, "PreconditionFailed")
    }
    let scripted = try Scripted(server)
    #expect(try Self.put(scripted.store) == .exists)
    #expect(server.requests.map { $0.header("If-None-Match") } == ["*", "*"])
  }

  @Test("may not answer 412 to what had no condition")
  func unasked() throws {
    let server = try ScriptedServer { _, _ in .refusal(412, "PreconditionFailed") }
    #expect(Self.failure { _ = try Self.put(try Scripted(server).store, ifAbsent: false) }?.code == .io)
    #expect(server.requests.first?.header("If-None-Match") == nil)
  }

  @Test("may answer before it has read what it is sent")
  func early() throws {
    let server = try ScriptedServer(answersEarly: true) { _, _ in .refusal(412, "PreconditionFailed") }
    let file = ObjectContent.bytes([UInt8](repeating: 7, count: 20 << 20))
    #expect(try Scripted(server).store.put("packs/x", file, ifAbsent: true) == .exists)
  }

  @Test("gets again what it broke off while it answered")
  func cutAnswer() throws {
    let server = try ScriptedServer { number, _ in
      number == 0
        ? .cut(206, byteCount: 10, "01234")
        : .reply(206, [("Content-Range", "bytes 5-14/100")], "0123456789")
    }
    let scripted = try Scripted(server)
    #expect(try scripted.store.get("packs/x", 5..<15) == Array("0123456789".utf8))
    #expect(server.requests.map { $0.header("Range") } == ["bytes=5-14", "bytes=5-14"])
    #expect(scripted.pauses.count == 1)
  }

  @Test(
    "may not answer with another part than was asked for",
    arguments: [
      (206, "bytes 4-13/100", "0123456789"), (206, "bytes 5-13/100", "012345678"),
      (206, "bytes 5-14/100", "01234"), (206, "bytes 5-15/100", "0123456789A"), (206, "", "0123456789"),
      (200, "", "0123456789"), (204, "", ""),
    ])
  func otherPart(status: Int, contentRange: String, body: String) throws {
    let server = try ScriptedServer { _, _ in
      .reply(status, contentRange.isEmpty ? [] : [("Content-Range", contentRange)], body)
    }
    let scripted = try Scripted(server)
    #expect(Self.failure { _ = try scripted.store.get("packs/x", 5..<15) }?.code == .io)
  }

  @Test(
    "may answer with the end of an object, and with nothing else, when that was asked for",
    arguments: [
      (206, "bytes 90-99/100", "0123456789", 100), (206, "bytes 0-4/5", "01234", 5), (200, "", "01234", 5),
      (206, "bytes 0-9/100", "0123456789", nil), (206, "bytes 90-98/100", "012345678", nil),
      (206, "bytes 95-99/100", "01234", nil), (206, "bytes 89-99/100", "0123456789A", nil),
      (206, "", "0123456789", nil), (200, "", "0123456789A", nil),
    ] as [(Int, String, String, Int64?)])
  func tail(status: Int, contentRange: String, body: String, byteCount: Int64?) throws {
    let server = try ScriptedServer { _, _ in
      .reply(status, contentRange.isEmpty ? [] : [("Content-Range", contentRange)], body)
    }
    let scripted = try Scripted(server)
    var tail: (bytes: [UInt8], byteCount: Int64)?
    let failure = Self.failure { tail = try scripted.store.tail("packs/x", byteCount: 10) }
    #expect(tail?.byteCount == byteCount)
    if byteCount == nil {
      #expect(failure?.code == .io)
    } else {
      #expect(tail?.bytes == Array(body.utf8))
    }
    #expect(server.requests.first?.header("Range") == "bytes=-10")
  }

  @Test("may not answer with more than was requested")
  func tooLong() throws {
    let server = try ScriptedServer { _, _ in .reply(206, [], String(repeating: "x", count: 2 << 20)) }
    let scripted = try Scripted(server)
    let failure = Self.failure { _ = try scripted.store.get("packs/x", 0..<10) }
    #expect(failure?.message.contains("more bytes") == true)
    #expect(server.requests.count == 1)
  }

  @Test("may not answer with more headers than any answer has")
  func tooManyHeaders() throws {
    let headers = (0..<100).map { ("x-\($0)", String(repeating: "x", count: 1_000)) }
    let server = try ScriptedServer { _, _ in .reply(200, headers) }
    let failure = Self.failure { _ = try Self.put(Scripted(server).store) }
    #expect(failure?.message.contains("more bytes") == true)
    #expect(server.requests.count == 1)
  }

  @Test("may not answer with something that is no listing")
  func noListing() throws {
    let server = try ScriptedServer { _, _ in .reply(200, [], "<html></html>") }
    #expect(Self.failure { _ = try Scripted(server).store.list("packs/", after: nil) }?.code == .io)
  }

  @Test("that says nothing is given up after a while")
  func silence() throws {
    let server = try ScriptedServer { _, _ in .silence }
    let scripted = try Scripted(server, policy: RetryPolicy(attemptCountMax: 2), silence: .seconds(2))
    #expect(Self.failure { _ = try Self.put(scripted.store) }?.code == .unreachable)
    #expect(server.requests.count == 2)
  }

  @Test("that sends a byte now and then is given up, too")
  func drip() throws {
    let server = try ScriptedServer { _, _ in .drip(byteCount: 500) }
    let scripted = try Scripted(server, policy: RetryPolicy(attemptCountMax: 2), silence: .seconds(2))
    #expect(Self.failure { try scripted.store.delete("packs/x") }?.code == .unreachable)
    #expect(server.requests.count == 2)
  }

  @Test("is not there: few attempts, and a sentence with the address")
  func refused() throws {
    let scripted = try Scripted("http://127.0.0.1:1")
    let failure = Self.failure { try scripted.store.delete("packs/x") }
    #expect(failure?.code == .unreachable)
    #expect(failure?.message.contains("http://127.0.0.1:1 cannot be reached") == true)
    #expect(scripted.pauses.count == 3)
  }

  @Test("ends a connection: it is unknown what has arrived, except if there was no connection")
  func reset() {
    func isBeforeContact(_ code: CURLcode) -> Bool {
      TransportFailure(code, text: "it failed").isBeforeContact
    }
    for code in [CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE] {
      #expect(!isBeforeContact(code))
    }
    for code in [CURLE_COULDNT_CONNECT, CURLE_COULDNT_RESOLVE_HOST] { #expect(isBeforeContact(code)) }
  }

  @Test("hangs up over TLS while it is sent something: this process gets an error and no signal")
  func hangUp() throws {
    let server = try ScriptedServer(certificate: .localhost, answersEarly: true) { _, _ in .hangUp }
    let path = FilePath(
      FileManager.default.temporaryDirectory.appending(path: "certificate-\(UUID()).pem").path)
    try ServerCertificate.localhost.chain.write(toFile: path.string, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: path.string) }
    let scripted = try Scripted("https://localhost:\(server.port)", certificates: path)
    let content = ObjectContent.bytes([UInt8](repeating: 7, count: 20 << 20))
    let failure = Self.failure { _ = try scripted.store.put("packs/x", content, ifAbsent: true) }
    #expect(failure?.code == .unreachable)
    #expect(server.requests.count == 10)
  }

  @Test("goes away: it is waited for as long as for any fault")
  func wentAway() throws {
    let server = try ScriptedServer { number, _ in number == 0 ? .reply(204) : .hangUp }
    let scripted = try Scripted(server)
    try scripted.store.delete("packs/x")
    #expect(Self.failure { try scripted.store.delete("packs/x") }?.code == .unreachable)
    #expect(scripted.pauses.count == 9)
  }

  @Test("with another time is asked again at its time, and from then on")
  func skew() throws {
    let server = try ScriptedServer { number, request in
      number == 0
        ? .refusal(403, "RequestTimeTooSkewed", [("Date", "Fri, 24 May 2013 00:20:00 GMT")]) : .reply(200)
    }
    let scripted = try Scripted(server)
    for _ in 0..<2 { #expect(try Self.put(scripted.store) == .stored) }
    #expect(
      server.requests.map { $0.header("x-amz-date") }
        == ["20130524T000000Z", "20130524T002000Z", "20130524T002000Z"])
    #expect(scripted.pauses.isEmpty)
  }

  @Test("with another time that stays says by how much the clock is off")
  func skewStays() throws {
    let server = try ScriptedServer { _, _ in
      .refusal(403, "RequestTimeTooSkewed", [("Date", "Thu, 23 May 2013 23:40:00 GMT")])
    }
    let failure = Self.failure { _ = try Self.put(try Scripted(server).store) }
    #expect(failure?.code == .permissionDenied)
    #expect(failure?.message.contains("1200 seconds ahead of") == true)
    #expect(server.requests.count == 2)
  }

  @Test("signs what it was sent: another time, another body, another signature")
  func signed() throws {
    let server = try ScriptedServer { _, _ in .reply(200) }
    let scripted = try Scripted(server)
    #expect(try Self.put(scripted.store) == .stored)
    let request = try #require(server.requests.first)
    let digest = SignatureV4.bodyDigest(of: Self.bytes)
    #expect(request.header("x-amz-content-sha256") == digest)
    #expect(request.header("x-amz-security-token") == "secret-token")
    #expect(request.uri == "/bucket/p/packs/x")
    let names = ["Host", "If-None-Match", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"]
    let signed = SignatureV4.Request(
      method: "PUT", path: request.uri, headers: names.map { (name: $0, value: request.header($0) ?? "") },
      bodyDigest: digest)
    #expect(
      request.header("Authorization")
        == SignatureV4(credentials: Scripted.credentials, region: "us-east-1").authorization(
          for: signed, at: UTCTime(secondsSince1970: 1_369_353_600)))
  }

  @Test("sees no half of a file that is shorter than it was said to be")
  func shortFile() throws {
    let server = try ScriptedServer { _, _ in .reply(200) }
    let content = ObjectContent.file(MemoryFile([1, 2, 3]), byteCount: 4)
    let failure = Self.failure { _ = try Scripted(server).store.put("packs/x", content, ifAbsent: true) }
    #expect(failure?.code == .corrupted)
    #expect(server.requests.isEmpty)
  }

  @Test("gets the end of the connection in place of the rest of a file that was cut meanwhile")
  func cutFile() throws {
    let path = FilePath(
      FileManager.default.temporaryDirectory.appending(path: "cut-\(UUID().uuidString)").path)
    try Data(count: 1_000).write(to: URL(filePath: path.string))
    defer { try? FileManager.default.removeItem(atPath: path.string) }
    let file = try SystemFiles().open(path, .readWrite)
    defer { file.close() }
    let server = try ScriptedServer { _, _ in .refusal(503, "SlowDown") }
    let scripted = try Scripted(
      "http://127.0.0.1:\(server.port)", whilePausing: { try? file.truncate(to: 400) })
    let failure = Self.failure {
      _ = try scripted.store.put("packs/x", .file(file, byteCount: 1_000), ifAbsent: true)
    }
    #expect(failure?.code == .corrupted)
    // It is no reason to try again, and what was sent the second time is no request.
    #expect(scripted.pauses.count == 1)
    #expect(server.requests.map(\.body.count) == [1_000])
  }

  @Test("gets requests that follow each other on one connection")
  func connections() throws {
    let server = try ScriptedServer { _, request in .reply(request.method == "GET" ? 206 : 200) }
    let scripted = try Scripted(server)
    #expect(try Self.put(scripted.store) == .stored)
    try scripted.store.delete("packs/x")
    _ = Self.failure { _ = try scripted.store.get("packs/x", 0..<1) }
    #expect(server.requests.map(\.method) == ["PUT", "DELETE", "GET"])
    #expect(server.connectionCount == 1)
  }

  @Test("closes a kept connection: a file is sent again on another, whole and without a pause")
  func keptConnection() throws {
    // Longer than several of curl's buffers.
    let bytes = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 / 7) }
    let server = try ScriptedServer { number, _ in number == 1 ? .hangUp : .reply(200) }
    let scripted = try Scripted(server)
    try scripted.store.delete("packs/x")
    let file = ObjectContent.file(MemoryFile(bytes), byteCount: Int64(bytes.count))
    #expect(try scripted.store.put("packs/x", file, ifAbsent: true) == .stored)
    #expect(server.requests.map { $0.body == ($0.method == "PUT" ? bytes : []) } == [true, true, true])
    #expect(server.connectionCount == 2)
    #expect(scripted.pauses.isEmpty)
  }

  @Test(
    "answers a range with less where the object ends, and with nothing behind its end",
    arguments: [
      (5..<15, "bytes=5-14", 206, "bytes 5-9/10", "56789", "56789"),
      (5..<5, "bytes=5-5", 206, "bytes 5-5/10", "5", ""),
      (20..<30, "bytes=20-29", 416, "", "", ""), (0..<10, "bytes=0-9", 200, "", "0123", "0123"),
      (0..<10, "bytes=0-9", 404, "", "<Error><Code>NoSuchKey</Code></Error>", nil),
    ] as [(Range<Int64>, String, Int, String, String, String?)])
  func parts(
    range: Range<Int64>, asked: String, status: Int, contentRange: String, body: String, expected: String?
  ) throws {
    let server = try ScriptedServer { _, _ in
      .reply(status, contentRange.isEmpty ? [] : [("Content-Range", contentRange)], body)
    }
    let scripted = try Scripted(server)
    #expect(try scripted.store.get("packs/x", range) == expected.map { Array($0.utf8) })
    #expect(server.requests.map { $0.header("Range") } == [asked])
  }

  @Test("is never sent more than one PUT takes")
  func limit() throws {
    let content = ObjectContent.file(MemoryFile([]), byteCount: (1 << 30) + 1)
    let scripted = try Scripted("http://127.0.0.1:1")
    #expect(
      Self.failure { _ = try scripted.store.put("packs/x", content, ifAbsent: true) }?.code == .limitExceeded)
  }
}

import BlobStorage
import BlobStorageS3
import Foundation
import Testing

@Suite("A request is sent again")
struct RetryTests {
  @Test(
    "after a part of a doubling time, or as late as the object store asks, and no later than is allowed",
    arguments: [
      (1, nil, 100), (2, nil, 200), (7, nil, 6_400), (8, nil, 7_500), (100, nil, 7_500), (1, 50, 100),
      (1, 7_000, 7_000), (8, 7_000, 7_500), (1, 60_000, 60_000), (1, 90_000, 60_000),
    ] as [(Int, Int?, Int)])
  func pauses(attempt: Int, asked: Int?, expected: Int) {
    let pause = RetryPolicy().pause(
      after: attempt, asked: asked.map { Duration.milliseconds($0) }, chance: 0.5)
    #expect(pause == .milliseconds(expected))
  }

  @Test(
    "when what is wrong may pass by itself",
    arguments: [
      (400, "BadDigest"), (400, "XAmzContentSHA256Mismatch"), (400, "RequestTimeout"), (400, "SlowDown"),
      (409, "OperationAborted"), (409, "ConditionalRequestConflict"), (429, ""), (500, ""), (502, ""),
      (503, ""), (504, ""),
    ])
  func transient(status: Int, code: String) throws {
    let server = try ScriptedServer { number, _ in number == 0 ? .refusal(status, code) : .reply(200) }
    let scripted = try Scripted(server)
    #expect(try FaultTests.put(scripted.store) == .stored)
    #expect(scripted.pauses.count == 1)
  }

  @Test(
    "not when it stays wrong",
    arguments: [
      (500, "QuotaExceeded"), (503, "XMinioStorageFull"), (400, "InvalidArgument"), (501, "NotImplemented"),
      (505, ""), (409, "BucketNotEmpty"),
    ])
  func lasting(status: Int, code: String) throws {
    let server = try ScriptedServer { _, _ in .refusal(status, code) }
    let scripted = try Scripted(server)
    #expect(FaultTests.failure { _ = try FaultTests.put(scripted.store) } != nil)
    #expect(scripted.pauses.isEmpty)
    #expect(server.requests.count == 1)
  }

  @Test(
    "as if nothing had been asked for, where the object store asks for what is no number of seconds to come",
    arguments: ["-5", "soon", "1.5", "Wed, 21 Oct 2015 07:28:00 GMT", ""])
  func oddPauses(text: String) throws {
    let server = try ScriptedServer { number, _ in
      number == 0 ? .refusal(503, "SlowDown", [("Retry-After", text)]) : .reply(200)
    }
    let scripted = try Scripted(server)
    #expect(try FaultTests.put(scripted.store) == .stored)
    #expect(scripted.pauses == [.milliseconds(100)])
  }

  @Test("after a pause that passes, and that is over at once for a task that was cancelled")
  func system() {
    let surroundings = S3Surroundings.system
    let start = ContinuousClock.now
    surroundings.sleep(.milliseconds(50))
    #expect(ContinuousClock.now - start >= .milliseconds(50))
    let flag = CancellationFlag()
    flag.cancel()
    CancellationFlag.$current.withValue(flag) { surroundings.sleep(.seconds(60)) }
    #expect(ContinuousClock.now - start < .seconds(50))
    #expect(abs(surroundings.now() - Int64(Date().timeIntervalSince1970)) <= 5)
    let chances = (0..<20).map { _ in surroundings.chance() }
    #expect(chances.allSatisfy { (0..<1).contains($0) })
    #expect(Set(chances).count > 1)
  }

  @Test("to no other host, wherever the object store points", arguments: [301, 302, 307, 308])
  func redirected(status: Int) throws {
    let other = try ScriptedServer { _, _ in .reply(200) }
    let elsewhere = "http://127.0.0.1:\(other.port)/bucket/p/packs/x"
    let server = try ScriptedServer { _, _ in .reply(status, [("Location", elsewhere)]) }
    let scripted = try Scripted(server)
    let failure = FaultTests.failure { _ = try scripted.store.get("packs/x", 0..<1) }
    #expect(failure?.code == .invalidArgument)
    #expect(server.requests.count == 1)
    #expect(other.requests.isEmpty)
  }
}

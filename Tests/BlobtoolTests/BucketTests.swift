import Foundation
import Testing

/// Needs an engine: `tools/test` starts a mock of one and names it by `BLOB_STORAGE_S3_MOCK`.
@Suite(
  "A store in a bucket", .enabled(if: ProcessInfo.processInfo.environment["BLOB_STORAGE_S3_MOCK"] != nil))
struct BucketTests {
  let workshop: Workshop
  let prefix = "tool/\(UUID().uuidString)"

  init() async throws { workshop = try await Workshop() }

  /// Runs the tool as on a machine of that name.
  func run(
    _ machine: String, _ arguments: [String], input: Data = Data(), more: [String: String] = [:]
  ) async throws -> Outcome {
    let environment = [
      "AWS_ENDPOINT_URL": ProcessInfo.processInfo.environment["BLOB_STORAGE_S3_MOCK"] ?? "",
      "AWS_ACCESS_KEY_ID": "mock", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_CONFIG_FILE": "/nonexistent",
      "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "BLOBTOOL_STORE": "s3://blob-storage/\(prefix)",
      "XDG_STATE_HOME": workshop.path(machine),
    ]
    return try await workshop.run(
      arguments, input: input, environment: environment.merging(more) { $1 })
  }

  @Test("is created, written and read by machines that have nothing else in common")
  func machines() async throws {
    let missing = try await run("one", ["list"])
    #expect(missing.status == 1)
    #expect(missing.errors.contains("blobtool init --store s3://BUCKET/PREFIX"))
    #expect(try await run("one", ["init"]).status == 0)
    #expect(try await run("one", ["init"]).status == 1)
    let bytes = Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 9) })
    #expect(try await run("one", ["put", "a/b"], input: bytes).status == 0)
    let got = try await run("two", ["get", "a/b"])
    #expect(got.status == 0, "\(got.errors)")
    #expect(got.bytes == bytes)
    #expect(try await run("two", ["put", "c"], input: Data("two".utf8)).status == 0)
    #expect(try await run("one", ["sync"]).status == 0)
    let listed = try await run("one", ["list", "--json"])
    #expect(listed.lines.count == 2)
    let verified = try await run("three", ["verify"])
    #expect(verified.status == 0, "\(verified.errors)")
  }

  @Test("that cannot be had is told in a sentence, without the secret")
  func refusals() async throws {
    let cases: [([String: String], Int32, String)] = [
      (["AWS_ENDPOINT_URL": "http://127.0.0.1:1"], 1, "cannot be reached"),
      (["AWS_ENDPOINT_URL": "http://u:very-secret@x"], 1, "AWS_ENDPOINT_URL"),
      (["BLOBTOOL_STORE": "s3://no-such-bucket-at-all/x"], 1, "There is no bucket 'no-such-bucket-at-all'"),
      (["AWS_ACCESS_KEY_ID": ""], 1, "set AWS_ACCESS_KEY_ID"),
      (["BLOBTOOL_STORE": "s3://x"], 64, "no bucket's name"),
      (["AWS_CA_BUNDLE": "/nonexistent"], 1, "AWS_CA_BUNDLE"),
    ]
    for (environment, status, phrase) in cases {
      let outcome = try await run("one", ["list"], more: environment)
      #expect(outcome.status == status, "\(environment): \(outcome.errors)")
      #expect(outcome.errors.contains(phrase), "\(outcome.errors)")
      #expect(!outcome.errors.contains("very-secret"))
    }
    let folder = try await run("one", ["list", "--state", "x"], more: ["BLOBTOOL_STORE": workshop.storePath])
    #expect(folder.status == 64)
  }
}

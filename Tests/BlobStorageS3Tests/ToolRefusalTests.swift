import Foundation
import Testing

/// What the tool says of an object store that does not do what it is asked for. Each is one sentence and exit code 1.
@Suite("The tool says in a sentence")
struct ToolRefusalTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var arguments: [String]
    var phrase: String
    var answer: @Sendable (ScriptedServer.Request) -> ScriptedServer.Answer
  }

  private static let emptyListing = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
  private static let foreignListing =
    "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/holiday.jpg</Key><Size>3</Size></Contents>"
    + "</ListBucketResult>"

  /// An object store that has `listing`, none of the objects that are asked for, and takes puts as `put` says.
  private static func service(
    _ listing: String, put: ScriptedServer.Answer = .reply(200)
  ) -> @Sendable (ScriptedServer.Request) -> ScriptedServer.Answer {
    { request in
      switch request.method {
      case "PUT": put
      case "GET" where request.uri.contains("list-type"): .reply(200, [], listing)
      default: .refusal(404, "NoSuchKey")
      }
    }
  }

  static let cases = [
    Case(
      testDescription: "an unknown access key", arguments: ["list"],
      phrase: "check AWS_ACCESS_KEY_ID"
    ) {
      _ in .refusal(403, "InvalidAccessKeyId")
    },
    Case(testDescription: "a wrong secret", arguments: ["put", "a"], phrase: "AWS_SECRET_ACCESS_KEY") { _ in
      .refusal(403, "SignatureDoesNotMatch")
    },
    Case(testDescription: "no right", arguments: ["init"], phrase: "need to read, write, list and delete") {
      _ in
      .refusal(403, "AccessDenied")
    },
    Case(testDescription: "no bucket", arguments: ["init"], phrase: "There is no bucket 'bucket'") { _ in
      .refusal(404, "NoSuchBucket")
    },
    Case(
      testDescription: "a place with something else", arguments: ["init"],
      phrase: "s3://bucket/p holds something else (holiday.jpg): name a place that is empty",
      answer: service(foreignListing)),
    Case(
      testDescription: "a place that is no store", arguments: ["list"],
      phrase: "s3://bucket/p holds something that is not a store", answer: service(foreignListing)),
    Case(
      testDescription: "a place with nothing", arguments: ["list"],
      phrase: "There is no store at s3://bucket/p; `blobtool init", answer: service(emptyListing)),
    Case(testDescription: "a clock that is wrong", arguments: ["list"], phrase: "behind the object store's") {
      _ in
      .refusal(403, "RequestTimeTooSkewed", [("Date", later)])
    },
    Case(
      testDescription: "a full object store", arguments: ["init"], phrase: "is full",
      answer: service(emptyListing, put: .refusal(507, "InsufficientStorage"))),
    Case(
      testDescription: "a quota that is used up", arguments: ["init"], phrase: "is full",
      answer: service(emptyListing, put: .refusal(403, "QuotaExceeded"))),
  ]

  /// Twenty minutes from now, as HTTP writes it.
  private static var later: String {
    let formatter = DateFormatter()
    formatter.locale = Locale(identifier: "en_US_POSIX")
    formatter.timeZone = TimeZone(secondsFromGMT: 0)
    formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
    return formatter.string(from: Date().addingTimeInterval(1_200))
  }

  @Test("what is wrong with the object store, or its place", arguments: cases)
  func refusals(example: Case) throws {
    let server = try ScriptedServer { _, request in example.answer(request) }
    let outcome = try Self.run(example.arguments, ["AWS_ENDPOINT_URL": "http://127.0.0.1:\(server.port)"])
    Self.check(outcome, example.phrase)
  }

  @Test("that no server answers, and that the certificate is another's")
  func network() throws {
    Self.check(try Self.run(["list"], ["AWS_ENDPOINT_URL": "http://127.0.0.1:1"]), "cannot be reached")
    Self.check(
      try Self.run(["list"], ["AWS_ENDPOINT_URL": "http://service.invalid"]),
      "check AWS_ENDPOINT_URL and the network")
    let server = try ScriptedServer(certificate: .localhost) { _, _ in .reply(204) }
    let bundle = FileManager.default.temporaryDirectory.appending(path: "certificate-\(UUID()).pem").path
    try ServerCertificate.localhost.chain.write(toFile: bundle, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: bundle) }
    Self.check(
      try Self.run(
        ["list"], ["AWS_ENDPOINT_URL": "https://127.0.0.1:\(server.port)", "AWS_CA_BUNDLE": bundle]),
      "is another host's")
    Self.check(
      try Self.run(["list"], ["AWS_ENDPOINT_URL": "https://localhost:\(server.port)"]), "AWS_CA_BUNDLE")
    #expect(server.requests.isEmpty)
  }

  #if os(Linux)
    @Test("that there is no libcurl")
    func noCurl() throws {
      let folder = FileManager.default.temporaryDirectory.appending(path: "libraries-\(UUID())")
      try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(at: folder) }
      try Data("no library".utf8).write(to: folder.appending(path: "libcurl.so.4"))
      Self.check(
        try Self.run(["list"], ["AWS_ENDPOINT_URL": "http://127.0.0.1:1", "LD_LIBRARY_PATH": folder.path]),
        "install the package libcurl4")
    }
  #endif

  // MARK: Running

  struct Outcome {
    var status: Int32
    var errors: String
    var state: [String]
  }

  private static func check(_ outcome: Outcome, _ phrase: String) {
    #expect(outcome.status == 1, "\(outcome.errors)")
    #expect(outcome.errors.contains(phrase), "\(outcome.errors)")
    #expect(outcome.errors.split(separator: "\n").count == 1, "\(outcome.errors)")
    #expect(!outcome.errors.contains("very-secret"))
    // Nothing is left of what could not be.
    #expect(outcome.state == [])
  }

  /// Runs the tool that was built beside the tests, on s3://bucket/p.
  private static func run(_ arguments: [String], _ environment: [String: String]) throws -> Outcome {
    let folder = FileManager.default.temporaryDirectory.appending(path: "refused-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let process = Process()
    let places =
      [Bundle.main.bundleURL, URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()]
      + Bundle.allBundles.map { $0.bundleURL.deletingLastPathComponent() }
    process.executableURL = places.map { $0.appending(path: "blobtool") }.first {
      FileManager.default.isExecutableFile(atPath: $0.path)
    }
    process.arguments =
      arguments + ["--store", "s3://bucket/p", "--state", folder.appending(path: "state").path]
    process.environment = [
      "PATH": "/usr/bin:/bin", "HOME": folder.path, "AWS_ACCESS_KEY_ID": "key",
      "AWS_SECRET_ACCESS_KEY": "very-secret",
    ].merging(environment) { $1 }
      // Keeps the variables that say how a sanitizer reports. By default it writes to standard error, leaks too.
      .merging(ProcessInfo.processInfo.environment.filter { $0.key.hasSuffix("SAN_OPTIONS") }) { $1 }
    let errors = folder.appending(path: "errors")
    try Data().write(to: errors)
    process.standardError = try FileHandle(forWritingTo: errors)
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = FileHandle.nullDevice
    try process.run()
    process.waitUntilExit()
    return Outcome(
      status: process.terminationStatus,
      errors: String(decoding: try Data(contentsOf: errors), as: UTF8.self),
      state: try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0 == "state" })
  }
}

import BlobStorageTestSupport
import Foundation
import Testing

/// How a run of the tool ended.
struct Outcome: Sendable {
  var status: Int32
  var bytes: Data
  var errors: String
  /// From its start to its end.
  var seconds: Double

  var text: String { String(decoding: bytes, as: UTF8.self) }
  var lines: [String] { text.split(separator: "\n").map(String.init) }

  /// The JSON values on standard output, one a line.
  func json<Value: Decodable>(_ type: Value.Type = Value.self) throws -> [Value] {
    try lines.map { try JSONDecoder().decode(Value.self, from: Data($0.utf8)) }
  }

  /// The names of the fields of the first JSON value.
  func fields() throws -> Set<String> {
    let first = try #require(lines.first)
    let object = try JSONSerialization.jsonObject(with: Data(first.utf8))
    return Set(try #require(object as? [String: Any]).keys)
  }
}

/// A folder of its own with a store in it, and the built tool.
final class Workshop: Sendable {
  let folder: URL
  var storePath: String { path("store") }

  /// A folder, with an empty store unless told otherwise.
  init(hasStore: Bool = true, options: [String] = []) async throws {
    folder = FileManager.default.temporaryDirectory.appending(path: "blobtool-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    if hasStore { try await expect(0, ["init"] + options) }
  }

  deinit { try? FileManager.default.removeItem(at: folder) }

  /// The tool that was built beside the tests.
  static let tool: String = {
    let places =
      [Bundle.main.bundleURL, URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()]
      + Bundle.allBundles.map { $0.bundleURL.deletingLastPathComponent() }
    let found = places.map { $0.appending(path: "blobtool").path }.first {
      FileManager.default.isExecutableFile(atPath: $0)
    }
    precondition(found != nil, "blobtool is not built beside the tests: \(places.map(\.path))")
    return found ?? ""
  }()

  func path(_ name: String) -> String { folder.appending(path: name).path }

  /// Writes a file below the folder.
  @discardableResult
  func write(_ data: Data, to name: String) throws -> String {
    let url = folder.appending(path: name)
    try FileManager.default.createDirectory(
      at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
    try data.write(to: url)
    return url.path
  }

  func contents(_ name: String) -> Data? { FileManager.default.contents(atPath: path(name)) }

  /// Runs the tool and waits for its end.
  @discardableResult
  func run(_ arguments: [String], input: Data = Data(), environment: [String: String] = [:]) async throws
    -> Outcome
  {
    try await start(arguments, input: input, environment: environment).outcome()
  }

  /// Runs the tool, which has to end with that status.
  @discardableResult
  func expect(
    _ status: Int32, _ arguments: [String], input: Data = Data(),
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Outcome {
    let outcome = try await run(arguments, input: input)
    #expect(outcome.status == status, "\(arguments): \(outcome.errors)", sourceLocation: sourceLocation)
    return outcome
  }

  /// Runs shell text, in which `$TOOL` is the tool.
  func shell(_ text: String) async throws -> Outcome {
    try await start(["-c", text], input: Data(), environment: ["TOOL": Self.tool], program: "/bin/bash")
      .outcome()
  }

  /// Starts the tool, or another program, in the folder.
  func start(
    _ arguments: [String], input: Data = Data(), environment: [String: String] = [:],
    program: String = Workshop.tool
  ) async throws -> Running {
    let id = UUID().uuidString
    try input.write(to: folder.appending(path: "\(id).in"))
    let process = Process()
    process.executableURL = URL(fileURLWithPath: program)
    process.arguments = arguments
    process.currentDirectoryURL = folder
    process.environment = ProcessInfo.processInfo.environment
      .merging(["BLOBTOOL_STORE": storePath]) { $1 }.merging(environment) { $1 }
    // Files instead of pipes: they need no reader.
    for name in ["out", "err"] {
      try Data().write(to: folder.appending(path: "\(id).\(name)"))
    }
    let input = try FileHandle(forReadingFrom: folder.appending(path: "\(id).in"))
    let output = try FileHandle(forWritingTo: folder.appending(path: "\(id).out"))
    let errors = try FileHandle(forWritingTo: folder.appending(path: "\(id).err"))
    process.standardInput = input
    process.standardOutput = output
    process.standardError = errors
    // Foundation frees a process, and with it these handles, only after `waitUntilExit`. Thousands of them would reach
    // the limit of descriptors, which `run` reports as a bad descriptor.
    defer { for handle in [input, output, errors] { try? handle.close() } }
    return try Running(process, folder: folder, id: id)
  }
}

/// A process under way.
final class Running: @unchecked Sendable {
  private let process: Process
  private let folder: URL
  private let id: String
  private let ended: AsyncStream<(status: Int32, seconds: Double)>

  fileprivate init(_ process: Process, folder: URL, id: String) throws {
    self.process = process
    self.folder = folder
    self.id = id
    let (stream, continuation) = AsyncStream<(status: Int32, seconds: Double)>.makeStream()
    let begin = ContinuousClock.now
    process.terminationHandler = {
      let status = $0.terminationReason == .exit ? $0.terminationStatus : -$0.terminationStatus
      continuation.yield((status, (ContinuousClock.now - begin) / .seconds(1)))
      continuation.finish()
    }
    ended = stream
    try process.run()
  }

  var isRunning: Bool { process.isRunning }

  /// Sends it a signal, if it is still there.
  func signal(_ number: Int32) {
    if process.isRunning { kill(process.processIdentifier, number) }
  }

  /// Sends it a signal in so many seconds, if it is still there. From a thread: a task may have to wait for other tests.
  func signal(_ number: Int32, inSeconds seconds: Double, completion: (@Sendable () -> Void)? = nil) {
    Thread.detachNewThread { [self] in
      Thread.sleep(forTimeInterval: seconds)
      signal(number)
      completion?()
    }
  }

  /// Returns once it is stopped, in so many seconds, or has ended.
  func stop(inSeconds seconds: Double) async {
    await withCheckedContinuation { done in signal(SIGSTOP, inSeconds: seconds) { done.resume() } }
  }

  /// Where a process writes to: the ends of its files' names.
  enum Stream: String {
    case output = "out"
    case errors = "err"
  }

  /// Waits until `isEnough` says so of what the process has written, or until its end.
  func wait(for stream: Stream, until isEnough: (String) -> Bool) async throws {
    while process.isRunning {
      if isEnough(String(decoding: try Data(contentsOf: file(stream)), as: UTF8.self)) { return }
      try await Task.sleep(for: .milliseconds(2))
    }
  }

  /// Waits for its end.
  func outcome() async throws -> Outcome {
    var end: (status: Int32, seconds: Double) = (-1, 0)
    for await value in ended { end = value }
    // A task that is cancelled waits no longer: what it knows is not how the process ended.
    try Task.checkCancellation()
    return Outcome(
      status: end.status, bytes: try Data(contentsOf: file(.output)),
      errors: String(decoding: try Data(contentsOf: file(.errors)), as: UTF8.self), seconds: end.seconds)
  }

  private func file(_ stream: Stream) -> URL { folder.appending(path: "\(id).\(stream.rawValue)") }
}

/// Bytes that do not compress, the same for the same seed.
func noise(_ byteCount: Int, seed: UInt64) -> Data {
  var random = SplitMix64(seed: seed)
  return Data(random.bytes(byteCount))
}

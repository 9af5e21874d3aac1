import Foundation
import SystemPackage
import Testing

/// The trial that `tools/cache-trial` runs for minutes, for seconds; and the example with images.
@Suite("A cache of several processes")
struct CacheTrialTests {
  /// A program that was built beside the tests.
  private static func program(_ name: String) throws -> String {
    let places =
      [Bundle.main.bundleURL, URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()]
      + Bundle.allBundles.map { $0.bundleURL.deletingLastPathComponent() }
    return try #require(
      places.map { $0.appending(path: name).path }.first { FileManager.default.isExecutableFile(atPath: $0) },
      "\(name) is not built beside the tests")
  }

  private static func run(
    _ name: String, _ arguments: [String], environment: [String: String] = [:]
  ) throws -> (status: Int32, output: String) {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: try program(name))
    process.arguments = arguments
    process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
    let output = Pipe()
    process.standardOutput = output
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    return (process.terminationStatus, text)
  }

  private struct Result: Decodable {
    var excessPercentage: Double
    var hitRate: Double
    var exactHitRate: Double
    var wrongCount: Int
    var sampleCount: Int
    var evictedCount: Int
  }

  @Test("keeps its limit, comes near an exact LRU, and gives what was put")
  func trial() throws {
    let folder = try TemporaryFolder()
    let seed = UInt64.random(in: 0...UInt64.max)
    print("trial: seed \(seed)")
    let (_, output) = try Self.run(
      "CacheTrial",
      ["run", folder.path.appending("store").string, "12000000", "800", "3", "250", "0.9", "\(seed)"])
    let result = try JSONDecoder().decode(Result.self, from: Data(output.utf8))
    #expect(result.excessPercentage < 5)
    #expect(result.wrongCount == 0)
    #expect(result.evictedCount > 0)
    #expect(result.sampleCount > 10)
    // So few requests say little of a rate; two points are for the long trial.
    #expect(result.exactHitRate - result.hitRate < 10)
  }

  @Test("in the example keeps images as they are and makes each thumbnail once")
  func images() throws {
    let folder = try TemporaryFolder()
    let images = folder.path.appending("images").string
    try FileManager.default.createDirectory(atPath: images, withIntermediateDirectories: true)
    var random = SplitMix64(seed: 1)
    for name in ["a.png", "b.jpg"] {
      try Data(random.bytes(50_000)).write(to: URL(filePath: "\(images)/\(name)"))
    }
    let arguments = [folder.path.appending("store").string, "20000000", "\(images)/a.png", "\(images)/b.jpg"]
    let thumbnailer = ["IMAGE_CACHE_THUMBNAILER": "head -c 100"]
    let first = try Self.run("image-cache", arguments, environment: thumbnailer)
    #expect(first.status == 0)
    #expect(first.output.contains("shrinking"))
    let second = try Self.run("image-cache", arguments, environment: ["IMAGE_CACHE_THUMBNAILER": "false"])
    #expect(second.status == 0)
    #expect(!second.output.contains("shrinking"))
    #expect(second.output.contains("a.png: 50000 bytes, thumbnail 100"))
  }
}

import Foundation
import Testing

/// Programs that were built beside the tests.
enum BuiltProgram {
  static func path(_ name: String) throws -> String {
    let places =
      [Bundle.main.bundleURL, URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()]
      + Bundle.allBundles.map { $0.bundleURL.deletingLastPathComponent() }
    return try #require(
      places.map { $0.appending(path: name).path }.first {
        FileManager.default.isExecutableFile(atPath: $0)
      },
      "\(name) is not built beside the tests")
  }
}

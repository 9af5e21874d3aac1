import Foundation

/// The program of the tests, as a process.
struct Program {
  let process = Process()
  private let output = Pipe()

  /// - Parameter isOrdinaryUser: runs it as a user that permissions bind, also where the tests run as root.
  init(_ arguments: [String], environment: [String: String]? = nil, isOrdinaryUser: Bool = false) throws {
    let program = Self.folder.appendingPathComponent("DropInProgram")
    if isOrdinaryUser, geteuid() == 0 {
      process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
      process.arguments =
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program.path] + arguments
    } else {
      process.executableURL = program
      process.arguments = arguments
    }
    process.standardOutput = output
    if let environment {
      // Keeps the variables that say how a sanitizer reports.
      process.environment = environment.merging(
        ProcessInfo.processInfo.environment.filter { $0.key.hasSuffix("SAN_OPTIONS") }
      ) { $1 }
    }
    try process.run()
  }

  /// Waits for the end. Returns the status and the output.
  func result() throws -> (status: Int32, output: String) {
    let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    process.waitUntilExit()
    return (process.terminationStatus, text)
  }

  /// Kills the process once it has written that many lines. Returns all lines that it has written.
  func kill(afterLines count: Int) -> [String] {
    var text = Data()
    var isKilled = false
    while true {
      let part = output.fileHandleForReading.availableData
      if part.isEmpty { break }
      text += part
      if !isKilled, text.count(where: { $0 == UInt8(ascii: "\n") }) >= count {
        Foundation.kill(process.processIdentifier, SIGKILL)
        isKilled = true
      }
    }
    process.waitUntilExit()
    // What follows the last line's end is a line that was not finished.
    return String(decoding: text, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
      .dropLast().map(String.init)
  }

  /// The folder of the build, which holds the tests and the program.
  private static let folder: URL = {
    #if os(Linux)
      let path = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
      return URL(fileURLWithPath: path).deletingLastPathComponent()
    #else
      let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") } ?? Bundle.main
      return bundle.bundleURL.deletingLastPathComponent()
    #endif
  }()
}

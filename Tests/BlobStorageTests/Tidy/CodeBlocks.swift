import Foundation
import Testing

/// A block of Swift on a page, as CONTRIBUTING.md says how blocks are written.
struct CodeBlock: Sendable, CustomTestStringConvertible {
  /// The page's path and the line at which the block begins.
  let place: String
  /// The module that the page belongs to, or the library for pages outside of modules.
  let module: String
  /// What an HTML comment above the block declares.
  let given: String
  let text: String

  var testDescription: String { place }

  /// Whether the block is a Package.swift, or a part of one.
  var isManifest: Bool { text.hasPrefix("// swift-tools-version") || text.hasPrefix(".package(") }

  /// The block as a source file. Errors name lines of the page.
  var source: String {
    let imports = text.hasPrefix("import ") ? "" : "import \(module)\nimport Foundation\n"
    let parts = place.split(separator: ":")
    return imports + given + "\n#sourceLocation(file: \"\(parts[0])\", line: \(parts[1]))\n" + text
  }

  static let root = SourceTree.folder.appending(path: "..").standardizedFileURL

  /// The blocks of README, contributors' pages and articles.
  static let all: [CodeBlock] = {
    var pages = ["README.md"]
    for folder in [".github", "Sources"] {
      let paths = FileManager.default.enumerator(atPath: root.appending(path: folder).path)
      while let path = paths?.nextObject() as? String {
        if path.hasSuffix(".md") { pages.append("\(folder)/\(path)") }
      }
    }
    return pages.sorted().flatMap { page in
      (try? String(contentsOf: root.appending(path: page), encoding: .utf8)).map { blocks(in: $0, page) }
        ?? []
    }
  }()

  /// The blocks of one page.
  static func blocks(in text: String, _ page: String) -> [CodeBlock] {
    let catalog = page.split(separator: "/").first { $0.hasSuffix(".docc") }
    let module = catalog.map { String($0.dropLast(5)) } ?? "BlobStorage"
    var blocks: [CodeBlock] = []
    var given: [Substring]?
    var block: (line: Int, lines: [Substring])?
    var comment = ""
    for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
      if let (start, lines) = block {
        if line == "```" {
          let text = lines.joined(separator: "\n")
          blocks.append(CodeBlock(place: "\(page):\(start)", module: module, given: comment, text: text))
          (block, comment) = (nil, "")
        } else {
          block = (start, lines + [line])
        }
      } else if let lines = given {
        given = line == "-->" ? nil : lines + [line]
        comment = lines.joined(separator: "\n")
      } else if line == "<!-- given:" {
        given = []
      } else if line == "```swift" {
        block = (index + 2, [])
      } else if !line.isEmpty {
        comment = ""
      }
    }
    return blocks
  }
}

/// Checks sources as a program would be compiled that depends on the modules built beside these tests.
struct ProgramCheck {
  private let options: [String]

  init() {
    let program = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
    let places = [program.deletingLastPathComponent(), Bundle.main.bundleURL.resolvingSymlinksInPath()]
    let built =
      places.first { FileManager.default.fileExists(atPath: $0.appending(path: "Modules").path) } ?? places[0]
    var folders = [CodeBlock.root.appending(path: "Sources")]
    let checkouts = built.appending(path: "../../checkouts").standardizedFileURL
    folders += Self.names(in: checkouts).map { checkouts.appending(path: "\($0)/Sources") }
    var maps = Self.names(in: built).filter { $0.hasSuffix(".build") }
      .map { built.appending(path: "\($0)/module.modulemap") }
    for folder in folders {
      for name in Self.names(in: folder) {
        maps += ["", "include/"].map { folder.appending(path: "\(name)/\($0)module.modulemap") }
      }
    }
    options =
      ["swiftc", "-typecheck", "-swift-version", "6", "-warnings-as-errors"]
      + ["-I", built.appending(path: "Modules").path]
      + maps.filter { FileManager.default.fileExists(atPath: $0.path) }
      .flatMap { ["-Xcc", "-fmodule-map-file=\($0.path)"] }
  }

  private static func names(in folder: URL) -> [String] {
    ((try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []).sorted()
  }

  /// What the compiler complains about; empty when the source is right.
  func complaints(about source: String, in folder: URL) throws -> String {
    let file = folder.appending(path: "main.swift")
    try Data(source.utf8).write(to: file)
    let (status, output) = try Self.run(
      options + (source.contains("@main") ? ["-parse-as-library"] : []) + [file.path], readsErrors: true)
    return status == 0 ? "" : output.isEmpty ? "status \(status)" : output
  }

  /// What SwiftPM reads from a manifest, as JSON.
  static func package(_ manifest: String, in folder: URL) throws -> (status: Int32, output: String) {
    try Data(manifest.utf8).write(to: folder.appending(path: "Package.swift"))
    return try run(["swift", "package", "--package-path", folder.path, "dump-package"])
  }

  private static func run(
    _ command: [String], readsErrors: Bool = false
  ) throws -> (status: Int32, output: String) {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = command
    let pipe = Pipe()
    if readsErrors { process.standardError = pipe }
    process.standardOutput = pipe
    try process.run()
    let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    return (process.terminationStatus, String(decoding: output, as: UTF8.self))
  }
}

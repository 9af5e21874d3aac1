import Foundation
import SystemPackage

/// Bind mounts, where this process may make them.
enum Mounts {
  /// Whether this process may mount.
  static let areAllowed: Bool = {
    guard let temporary = try? TemporaryFolder() else { return false }
    defer { end(at: temporary.path.string) }
    return (try? bind(temporary.path.string, at: temporary.path.string)) ?? false
  }()

  /// Shows a folder at another path, too. Returns false if the system refuses.
  static func bind(_ folder: String, at path: String) throws -> Bool {
    try run("mount", "--bind", folder, path) == 0
  }

  static func end(at path: String) { _ = try? run("umount", path) }

  private static func run(_ arguments: String...) throws -> Int32 {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = arguments
    process.standardError = FileHandle.nullDevice
    try process.run()
    process.waitUntilExit()
    return process.terminationStatus
  }
}

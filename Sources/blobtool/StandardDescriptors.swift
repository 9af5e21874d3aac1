import ArgumentParser
import Foundation
import SystemPackage

/// Checks what the process was started with.
enum StandardDescriptors {
  /// Opens `/dev/null` for each closed standard descriptor.
  ///
  /// Otherwise a pack could get the number of standard output, and receive the output. It opens the file for reading,
  /// so that a write to a closed standard output still fails.
  static func fillGaps() {
    for number in Int32(0)...2 where fcntl(number, F_GETFD) == -1 {
      _ = try? FileDescriptor.open("/dev/null", .readOnly)
    }
  }

  /// The arguments after the tool's name.
  ///
  /// - Throws: `ValidationError` for one that is not UTF-8: repaired, it would name another key.
  static func arguments() throws -> [String] {
    var arguments: [String] = []
    for index in 1..<max(1, Int(CommandLine.argc)) {
      guard let bytes = CommandLine.unsafeArgv[index] else { break }
      guard let text = String(validatingCString: bytes) else {
        throw ValidationError("argument \(index) is not UTF-8")
      }
      arguments.append(text)
    }
    return arguments
  }
}

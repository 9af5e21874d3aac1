import ArgumentParser
import Foundation
import SystemPackage

/// What the process was started with.
enum StandardDescriptors {
  /// Puts `/dev/null` in the place of a standard descriptor that is closed.
  ///
  /// Else the store's own files would get numbers 0 to 2, and output would be written into a pack. It is opened for
  /// reading, so that writing to a closed standard output is still noticed.
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

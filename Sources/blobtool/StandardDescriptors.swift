import ArgumentParser
import Foundation
import SystemPackage

/// Checks the descriptors and arguments that the process was started with.
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

  /// The arguments after the tool's name. One that is not UTF-8 is a ``RawText``.
  ///
  /// - Throws: `ValidationError` for such an argument, if the command takes no paths of users' files.
  static func arguments() throws -> [String] {
    var arguments: [String] = []
    for index in 1..<max(1, Int(CommandLine.argc)) {
      guard let argument = CommandLine.unsafeArgv[index] else { break }
      let bytes = UnsafeBufferPointer(start: argument, count: strlen(argument)).map { UInt8(bitPattern: $0) }
      // The name of an option stays readable.
      let end =
        bytes.starts(with: "--".utf8) ? bytes.firstIndex(of: UInt8(ascii: "=")).map { $0 + 1 } ?? 0 : 0
      let text = String(decoding: bytes[..<end], as: UTF8.self) + RawText.text(of: bytes[end...])
      if !RawText.isRaw(text), !text.utf8.contains(0) {
        arguments.append(text)
        continue
      }
      let command = try? CommandLineHabits.resolved(arguments).first
      guard command == ImportCommand._commandName || command == ExportCommand._commandName else {
        throw ValidationError("argument \(index) is not UTF-8")
      }
      arguments.append(text)
    }
    return arguments
  }
}

import Foundation
import SystemPackage

/// A file of texts, such as paths or patterns, which need not be UTF-8.
struct TextList {
  private let name: String
  private let bytes: Data

  /// Reads the file; `-` is standard input.
  init(_ file: String) throws {
    let isInput = file == "-"
    name = isInput ? "standard input" : RawText.path(of: file).string
    do {
      let descriptor: FileDescriptor =
        isInput ? .standardInput : try .open(RawText.path(of: file), .readOnly, options: .closeOnExec)
      defer { if !isInput { try? descriptor.close() } }  // it was only read
      bytes = try DescriptorSource(descriptor, name: name).whole(byteCountMax: .max) ?? Data()
    } catch let error as Errno {
      throw Failure(ExitStatus.failed, "Cannot read \(name.printable): \(error.description).")
    }
  }

  /// The texts that end with a NUL, without empty ones.
  func terminatedItems() -> [[UInt8]] { bytes.split(separator: 0).map { Array($0) } }

  /// The lines that are not empty, without a byte order mark in front and the carriage returns of Windows.
  func lines() -> [[UInt8]] {
    let mark = Array("\u{FEFF}".utf8)
    return (bytes.starts(with: mark) ? bytes.dropFirst(mark.count) : bytes)
      .split(separator: UInt8(ascii: "\n"))
      .map { Array($0.last == UInt8(ascii: "\r") ? $0.dropLast() : $0) }
      .filter { !$0.isEmpty }
  }

  /// The lines that are neither blank nor comments.
  func patterns() -> [[UInt8]] {
    lines().filter { line in
      line.first != UInt8(ascii: "#") && line.contains { $0 != UInt8(ascii: " ") }
    }
  }
}

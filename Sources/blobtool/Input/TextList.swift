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

  /// The texts that end with a byte, without empty ones.
  func items(endedBy end: UInt8) -> [[UInt8]] { bytes.split(separator: end).map { Array($0) } }

  /// The lines that are neither empty nor comments.
  func patterns() -> [[UInt8]] {
    items(endedBy: UInt8(ascii: "\n"))
      .map { $0.last == UInt8(ascii: "\r") ? $0.dropLast() : $0 }
      .filter { !$0.isEmpty && $0.first != UInt8(ascii: "#") }
  }
}

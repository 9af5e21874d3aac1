import Foundation
import SystemPackage

/// A file of texts, such as paths or patterns.
struct TextList {
  private let name: String
  private let bytes: Data

  /// Reads the file; `-` is standard input.
  init(_ file: String) throws {
    let isInput = file == "-"
    name = isInput ? "standard input" : file
    do {
      let descriptor: FileDescriptor = isInput ? .standardInput : try .open(FilePath(file), .readOnly)
      defer { if !isInput { try? descriptor.close() } }  // it was only read
      bytes = try DescriptorSource(descriptor, name: name).whole(byteCountMax: .max) ?? Data()
    } catch let error as Errno {
      throw Failure(ExitStatus.failed, "Cannot read \(name.printable): \(error.description).")
    }
  }

  /// The texts that end with a byte, without empty ones.
  func items(endedBy end: UInt8) throws -> [String] {
    try bytes.split(separator: end).map { item in
      guard let text = String(validating: item, as: UTF8.self) else {
        throw Failure(
          ExitStatus.failed,
          "\(name.printable) has a text that is not UTF-8: “\(String(decoding: item, as: UTF8.self).printable)”."
        )
      }
      return text
    }
  }

  /// The lines that are neither empty nor comments.
  func patterns() throws -> [String] {
    try items(endedBy: UInt8(ascii: "\n"))
      .map { $0.hasSuffix("\r") ? String($0.dropLast()) : $0 }
      .filter { !$0.isEmpty && !$0.hasPrefix("#") }
  }
}

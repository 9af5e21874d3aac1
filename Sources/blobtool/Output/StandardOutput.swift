import Foundation
import SystemPackage

/// Writes results to standard output.
enum StandardOutput {
  /// Writes all bytes.
  ///
  /// - Throws: ``OutputEnded`` if the reader has closed the pipe.
  static func write(_ bytes: UnsafeRawBufferPointer) throws {
    try FileDescriptor.standardOutput.writeWhole(bytes, to: "standard output")
  }

  /// Writes text with terminal controls escaped, after `control`, a sequence of the tool's own.
  static func write(_ text: String, after control: String = "") throws {
    var text = control + TerminalText.safe(text)
    try text.withUTF8 { try write(UnsafeRawBufferPointer($0)) }
  }

  /// Runs `body`, which prints a result. Goes on if the reader has closed the pipe: the command's verdict is still due.
  static func unlessEnded(_ body: () throws -> Void) throws {
    do { try body() } catch is OutputEnded {}
  }
}

/// Buffers the lines of a long result.
struct LineOutput {
  private var buffer = ""
  private var raw: [UInt8] = []
  private static let byteCountMax = 1 << 16

  /// Writes a line for each value, in JSON or as a text.
  static func write<Value: Encodable>(
    _ values: some Sequence<Value>, json: Bool, _ text: (Value) -> String
  ) throws {
    let encoder = JSONText()
    var lines = LineOutput()
    for value in values { try lines.add(json ? encoder.line(value) : text(value)) }
    try lines.flush()
  }

  /// Adds a line.
  mutating func add(_ line: String) throws {
    buffer += line
    buffer += "\n"
    if buffer.utf8.count >= Self.byteCountMax { try flush() }
  }

  /// Adds text as it is, for another program.
  mutating func add(raw text: String) throws {
    raw += text.utf8
    if raw.count >= Self.byteCountMax { try flush() }
  }

  /// Writes the buffered lines. Call it at the end.
  mutating func flush() throws {
    try Interruption.check()
    try StandardOutput.write(buffer)
    try raw.withUnsafeBytes { try StandardOutput.write($0) }
    (buffer, raw) = ("", [])
  }
}

/// Writes messages to standard error.
enum StandardError {
  /// Prints a sentence after the tool's name.
  static func say(_ sentence: String) {
    write("blobtool: " + sentence.split(whereSeparator: \.isNewline).joined(separator: " ") + "\n")
  }

  /// Writes text with terminal controls escaped, after `control`, a sequence of the tool's own.
  static func write(_ text: String, after control: String = "") {
    var text = control + TerminalText.safe(text)
    text.withUTF8 { bytes in
      var rest = UnsafeRawBufferPointer(bytes)
      // A failure here cannot be reported.
      while !rest.isEmpty, let count = try? FileDescriptor.standardError.writeSome(rest) {
        rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      }
    }
  }
}

extension FileDescriptor {
  /// Writes all bytes, unless a signal comes.
  func writeWhole(_ bytes: UnsafeRawBufferPointer, to name: String) throws {
    var rest = bytes
    while !rest.isEmpty {
      try Interruption.check()
      do {
        let count = try writeSome(rest)
        rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      } catch Errno.brokenPipe {
        throw OutputEnded()
      } catch let error as Errno {
        throw Failure(ExitStatus.failed, "Cannot write to \(name.printable): \(error.description).")
      }
    }
  }

  /// Writes some of the bytes, and returns how many. If another program has made a full pipe non-blocking, waits for
  /// room and may write none.
  fileprivate func writeSome(_ bytes: UnsafeRawBufferPointer) throws -> Int {
    do { return try write(bytes) } catch Errno.resourceTemporarilyUnavailable {
      var request = pollfd(fd: rawValue, events: Int16(POLLOUT), revents: 0)
      _ = poll(&request, 1, 100)
      return 0
    }
  }
}

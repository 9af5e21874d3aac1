import BlobStorage
import Foundation

/// The process of a writer, for messages.
package struct WriterProcess: Hashable, Sendable {
  package var machine: String
  /// The process ID; 0 if unknown.
  package var number: UInt32
  /// The program, with the tool's command.
  package var command: String
  /// When it registered, in milliseconds since 1970.
  package var began: UInt64

  package init(machine: String, number: UInt32 = 0, command: String = "", began: UInt64 = 0) {
    self.machine = machine
    self.number = number
    self.command = command
    self.began = began
  }

  /// This process, as of now.
  static func own(_ clock: WallClock) -> WriterProcess {
    let process = ProcessInfo.processInfo
    return WriterProcess(
      machine: process.hostName, number: UInt32(clamping: process.processIdentifier),
      command: command(process.arguments), began: clock.now())
  }

  /// The program's name, with the first argument if it is a word. Other arguments may be secret.
  package static func command(_ arguments: [String]) -> String {
    let program = arguments.first?.split(separator: "/").last.map { String($0) } ?? ""
    guard let word = arguments.dropFirst().first, !word.isEmpty,
      word.utf8.allSatisfy({ UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 })
    else { return program }
    return "\(program) \(word)"
  }

  /// For messages, such as "atlas (process 4711, blobtool import, since 2026-11-25T16:31:25Z)".
  package var text: String {
    guard number > 0 else { return machine }
    let since = Date(timeIntervalSince1970: Double(began / 1_000)).ISO8601Format()
    return "\(machine) (process \(number), \(command.isEmpty ? "" : command + ", ")since \(since))"
  }
}

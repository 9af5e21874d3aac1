import Foundation
import Synchronization
import SystemPackage

/// A program that runs beside the tool, and whose output the tool reads.
final class RunningProgram: Sendable {
  private let name: String
  private let process: pid_t
  /// How it ended; nil before anybody has waited.
  private let status = Mutex<Int32?>(nil)
  /// Its standard output.
  let output: FileDescriptor

  /// Starts a program, which is looked up in `PATH`. It has the tool's standard input and standard error.
  init(_ command: [String]) throws {
    name = command[0]
    let (reading, writing) = try FileDescriptor.pipe()
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, writing.rawValue, 1)
    // The program must not keep the pipe open beyond its standard output.
    for descriptor in [reading, writing] where descriptor.rawValue != 1 {
      posix_spawn_file_actions_addclose(&actions, descriptor.rawValue)
    }
    let variables = ProcessInfo.processInfo.environment.map { "\($0.key)=\($0.value)" }
    let arguments = command.map { strdup($0) } + [nil]
    let environment = variables.map { strdup($0) } + [nil]
    defer { for text in arguments + environment { free(text) } }
    var process = pid_t()
    let failure = posix_spawnp(&process, command[0], &actions, nil, arguments, environment)
    try? writing.close()  // nothing was written
    guard failure == 0 else {
      try? reading.close()  // nothing was read
      throw Failure(
        ExitStatus.failed, "Cannot run \(command[0].printable): \(Errno(rawValue: failure).description).")
    }
    (self.process, output) = (process, reading)
  }

  deinit { try? output.close() }  // it was only read

  /// Waits for the end of the program.
  ///
  /// - Throws: `Failure` unless its exit code is 0.
  func checkSuccess() throws {
    let status = try self.status.withLock { (known) throws -> Int32 in
      if let known { return known }
      var status: Int32 = 0
      while waitpid(process, &status, 0) < 0 {
        guard errno == EINTR else {
          throw Failure(ExitStatus.failed, "Cannot wait for \(name.printable); nothing was stored.")
        }
        try Interruption.check()
      }
      known = status
      return status
    }
    guard status != 0 else { return }
    let (code, signal) = (status >> 8 & 0xff, status & 0x7f)
    let end = signal == 0 ? "exit code \(code)" : "signal \(signal)"
    throw Failure(ExitStatus.failed, "\(name.printable) ended with \(end); nothing was stored.")
  }
}

import ArgumentParser
import Foundation

/// Starts and ends the process: sets up signals and standard descriptors, and chooses the exit code.
@main
enum EntryPoint {
  static func main() async {
    StandardDescriptors.fillGaps()
    signal(SIGPIPE, SIG_IGN)  // a reader that has had enough is then an error of `write`, which ends quietly
    signal(SIGXFSZ, SIG_IGN)  // a file that may not grow is then an error of `write`, too
    if let shortage = ResourceLimits.shortage() {
      StandardError.say(shortage)
      exit(ExitStatus.failed)
    }
    let arguments: [String]
    do { arguments = try CommandLineHabits.resolved(StandardDescriptors.arguments()) } catch {
      exit(report(error, arguments: []))
    }
    let task = Task { await run(arguments) }
    let signals = Interruption.begin { task.cancel() }
    let status = await task.value
    withExtendedLifetime(signals) { exit(status) }
  }

  private static func run(_ arguments: [String]) async -> Int32 {
    do {
      var command = try await Blobtool.asyncParseAsRoot(arguments)
      if var command = command as? any AsyncParsableCommand {
        try await command.run()
      } else {
        try command.run()  // the argument parser's own: help
      }
      return ExitStatus.done
    } catch {
      return report(error, arguments: arguments)
    }
  }

  /// Prints an error in one sentence, and returns the exit code.
  private static func report(_ error: any Error, arguments: [String]) -> Int32 {
    if error is OutputEnded { return ExitStatus.done }
    if let signal = Interruption.signal {
      StandardError.say(interruption(of: command(arguments)))
      return 128 + signal
    }
    if let failure = Failure(error) {
      if let message = failure.message { StandardError.say(message) }
      return failure.exitStatus
    }
    // The argument parser handles the rest: help, the version, a completion script, wrong usage.
    guard Blobtool.exitCode(for: error).rawValue != 0 else {
      do { try StandardOutput.write(Blobtool.fullMessage(for: error) + "\n") } catch {
        return report(error, arguments: arguments)
      }
      return ExitStatus.done
    }
    let help = ([Blobtool._commandName] + (command(arguments).map { [$0._commandName] } ?? []) + ["--help"])
    var message = Blobtool.message(for: error).split(separator: "\n").joined(separator: " ").clause
    // The argument parser takes -1 for an option.
    if let value = message.wholeMatch(of: /Missing value for '(--[^ ']+).*/),
      let option = arguments.firstIndex(of: String(value.1)), arguments.indices.contains(option + 1),
      arguments[option + 1].contains(/^-\d/)
    {
      message = "\(value.1) takes no negative number"
    }
    StandardError.say("\(message); see `\(help.joined(separator: " "))`.")
    return ExitStatus.wrongUsage
  }

  private static func command(_ arguments: [String]) -> (any ParsableCommand.Type)? {
    Blobtool.configuration.subcommands.first { arguments.first.map($0.words.contains) ?? false }
  }

  private static func interruption(of command: (any ParsableCommand.Type)?) -> String {
    switch command {
    case is ImportCommand.Type, is ExportCommand.Type, is CopyCommand.Type:
      "interrupted; what was finished before stays, and the same command goes on from there."
    case is PutCommand.Type, is DeleteCommand.Type, is KeepCommand.Type, is CollectCommand.Type,
      is RepairCommand.Type, is CacheCommand.Type, is SyncCommand.Type:
      "interrupted; what was finished before stays."
    default: "interrupted."
    }
  }
}

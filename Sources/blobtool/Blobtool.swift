import ArgumentParser

/// The tool's root command.
struct Blobtool: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "blobtool",
    abstract: "Keeps blobs by key: deduplicated, compressed, with versions.",
    discussion: """
      Every command but init needs an existing store. Name it by --store PATH, or set BLOBTOOL_STORE. \
      copy takes two stores. A store in a bucket is s3://BUCKET/PREFIX. The usual variables (AWS_ACCESS_KEY_ID, \
      AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_PROFILE) and files say how to reach it.

      Exit codes: 0 done, 1 failed, 3 not in the store, 4 damage found, 5 busy or a condition does not hold, \
      64 wrong usage, \
      130 and 143 interrupted.
      """,
    version: "0.1.0",
    subcommands: [
      InitCommand.self, PutCommand.self, GetCommand.self, ListCommand.self, VersionsCommand.self,
      DeleteCommand.self, KeepCommand.self, ImportCommand.self, ExportCommand.self, CollectCommand.self,
      VerifyCommand.self, RepairCommand.self, StatisticsCommand.self, InformationCommand.self,
      WhyCommand.self, ReportCommand.self, WatchCommand.self, CacheCommand.self, SyncCommand.self,
      CopyCommand.self, StatesCommand.self, DiffCommand.self, FindCommand.self, RestoreCommand.self,
      HoldCommand.self, HoldsCommand.self, MountCommand.self,
      ManualCommand.self,
    ])

  /// Fails without a command, so that a script with an empty variable notices.
  func run() throws {
    throw ValidationError("a command is missing")
  }
}

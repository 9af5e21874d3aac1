import ArgumentParser
import BlobStorage
import BlobStorageTransfer
import Foundation

/// The options for output and progress.
struct OutputOptions: ParsableArguments {
  @Flag(help: "Print the result as JSON.")
  var json = false

  @Option(help: "How to show progress on standard error.")
  var progress: ProgressStyle = .auto

  @Flag(name: .shortAndLong, help: "Print nothing on standard error but errors.")
  var quiet = false

  /// Shows the progress of `body`, as the options say.
  func withProgress<T>(_ body: (ProgressMeter) async throws -> T) async throws -> T {
    let meter = ProgressMeter(quiet ? .none : progress)
    defer { meter.finish() }
    return try await body(meter)
  }

  /// Prints a sentence that is not an error, unless the user wants none.
  func mention(_ sentence: String) {
    if !quiet { StandardError.say(sentence) }
  }
}

/// `--verbose` of commands that store or write files.
struct VerboseOption: ParsableArguments {
  @Flag(name: [.customShort("v"), .customLong("verbose")], help: "Name each file on standard error.")
  var isVerbose = false

  /// Names each file as soon as it is done; nil without the option.
  func handler(
    _ output: OutputOptions, _ meter: ProgressMeter, _ verb: String
  ) -> TransferHandler? {
    guard isVerbose, !output.quiet else { return nil }
    return { file in
      meter.clear()
      StandardError.say("\(file.isUnchanged ? "unchanged" : verb) “\(file.key.printable)”")
    }
  }
}

/// `--bandwidth` of commands that move files or chunks.
struct BandwidthOption: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Move at most RATE bytes a second, on average: a number, or one with K, M, G or T.", valueName: "rate"))
  var bandwidth: ByteCountArgument?

  func validate() throws {
    guard bandwidth?.value ?? 1 > 0 else { throw ValidationError("--bandwidth is 1 or more") }
  }

  var maximumByteRate: Int64? { bandwidth?.value }
}

/// `--utc`: sets how commands show times to a reader. JSON has UTC.
struct TimeOptions: ParsableArguments {
  @Flag(help: "Show times in UTC, as --json does, and not in local time.")
  var utc = false

  func text(_ date: Date) -> String { utc ? date.text : date.localText }
}

/// `--dry-run`.
struct DryRunOption: ParsableArguments {
  @Flag(
    name: [.customShort("n"), .customLong("dry-run")], help: "Say what would be done, and change nothing.")
  var isDryRun = false
}

/// The options of every command on one store.
struct SharedOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "The folder of the store, or s3://BUCKET/PREFIX (default: $BLOBTOOL_STORE).",
      valueName: "path"),
    completion: .directory)
  var store: String?

  @Option(
    help: ArgumentHelp(
      "Where this machine keeps the state of a store in a bucket (default: below $XDG_STATE_HOME or ~/.local/state).",
      valueName: "path"),
    completion: .directory)
  var state: String?

  @Option(
    help: ArgumentHelp(
      "How much of its packs this machine caches for a store in a bucket, at least 64M (default: 4G).",
      valueName: "size"))
  var packCache: ByteCountArgument?

  @Option(
    help: ArgumentHelp(
      "How much of the catalog this machine keeps for a store in a bucket that has an index, at least 64M (default: 1G).",
      valueName: "size"))
  var catalogLimit: ByteCountArgument?

  @OptionGroup var outputOptions: OutputOptions

  var json: Bool { outputOptions.json }

  /// The place of the store.
  ///
  /// - Parameter path: a path that the user gave in another way.
  /// - Throws: `ValidationError` if no store is named, or the named place cannot hold one.
  func place(_ path: String? = nil) throws -> StorePlace {
    let path = try StorePlace.path(path ?? storePath())
    let state = try state.map(StorePlace.path)
    guard StorePlace.isInBucket(path) else {
      guard state == nil, packCache == nil, catalogLimit == nil else {
        throw ValidationError(
          "--state, --pack-cache and --catalog-limit are for a store in a bucket, s3://BUCKET/PREFIX")
      }
      return .folder(path)
    }
    return try StorePlace.bucket(
      path, state: state, packCache: packCache?.value, catalogLimit: catalogLimit?.value)
  }

  private func storePath() throws -> String {
    // Foundation would repair a variable that is not UTF-8, so that it names another store.
    let variable = getenv("BLOBTOOL_STORE").map { text in
      RawText.text(of: UnsafeBufferPointer(start: text, count: strlen(text)).map { UInt8(bitPattern: $0) })
    }
    let path = store ?? variable ?? ""
    try RawText.check([path, state ?? ""])
    guard !path.isEmpty else {
      throw ValidationError("no store is named: give --store PATH or set BLOBTOOL_STORE")
    }
    return path
  }

  /// Shows the progress of `body`, as the options say.
  func withProgress<T>(_ body: (ProgressMeter) async throws -> T) async throws -> T {
    try await outputOptions.withProgress(body)
  }

  func mention(_ sentence: String) { outputOptions.mention(sentence) }
}

/// A command that works on an existing store.
protocol StoreCommand: AsyncParsableCommand {
  var shared: SharedOptions { get }
  /// Whether its answers may be out of date while the store has losses.
  var isReading: Bool { get }
  func perform(on store: BlobStore) async throws
}

extension StoreCommand {
  var isReading: Bool { false }

  func run() async throws { try await runOpened() }

  /// Opens the store, runs the command, and closes the store.
  func runOpened() async throws {
    let store = try await shared.place().open()
    do {
      if isReading {
        try await store.tellingLosses { try await perform(on: store) }
      } else {
        try await perform(on: store)
      }
    } catch {
      try? await store.closeWhole()  // report the first error
      if !isReading, let failure = Failure(error, ofChanging: store) { throw failure }
      throw error
    }
    try await store.closeWhole()
  }
}

extension Failure {
  /// The failure of a change to a store that this user may only read; nil if it was another one.
  fileprivate init?(_ error: any Error, ofChanging store: BlobStore) {
    let folder = store.information.path
    guard let error = error as? BlobStorageError, error.path?.hasPrefix(folder + "/") == true else {
      return nil
    }
    switch error.code {
    case .permissionDenied:
      self.init(
        ExitStatus.failed,
        "\(error.message.clause): this user may only read the store; run the command as its owner, or give this user the"
          + " right to write in \(folder.printable).")
    case .readOnly:
      self.init(
        ExitStatus.failed,
        "\(error.message.clause): the store can only be read there; mount its file system writable to change it."
      )
    default: return nil
    }
  }
}

extension BlobStore {
  /// Runs `body`, which reads from the store. If the store has losses, warns first and ends with exit code 4: the
  /// answer may be out of date.
  func tellingLosses(_ body: () async throws -> Void) async throws {
    let summary = try await losses().summary
    if let summary {
      StandardError.say(
        "warning: \(summary.printable): answers may be out of date; `blobtool repair` saves what it can, and"
          + " `blobtool repair --accept-loss` ends this warning.")
    }
    do { try await body() } catch is OutputEnded where summary != nil {
      // The warning holds for what the reader has read.
    } catch {
      guard summary != nil, let failure = Failure(error), failure.exitStatus == ExitStatus.notFound else {
        throw error
      }
      throw Failure(ExitStatus.damaged, failure.message)
    }
    if summary != nil { throw Failure(ExitStatus.damaged, nil) }
  }

  /// Closes the store, even if the command was cancelled.
  func closeWhole() async throws {
    try await Task.detached { try await self.close() }.value
  }
}

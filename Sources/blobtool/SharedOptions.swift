import ArgumentParser
import BlobStorage
import Foundation

/// The options for output and progress.
struct OutputOptions: ParsableArguments {
  @Flag(help: "Print the result as JSON.")
  var json = false

  @Option(help: "How to show progress on standard error.")
  var progress: ProgressStyle = .auto

  /// Shows how far the work of `body` has come, as the options say.
  func withProgress<T>(_ body: (ProgressMeter) async throws -> T) async throws -> T {
    let meter = ProgressMeter(progress)
    defer { meter.finish() }
    return try await body(meter)
  }
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
      "The most bytes of packs that this machine caches for a store in a bucket, at least 64 MiB (default: 4 GiB).",
      valueName: "bytes"))
  var packCache: Int64?

  @OptionGroup var outputOptions: OutputOptions

  var json: Bool { outputOptions.json }

  /// The place of the store.
  ///
  /// - Throws: `ValidationError` if no store is named, or the named place cannot hold one.
  func place() throws -> StorePlace {
    let path = try StorePlace.path(storePath())
    let state = try state.map(StorePlace.path)
    guard StorePlace.isInBucket(path) else {
      guard state == nil, packCache == nil else {
        throw ValidationError("--state and --pack-cache are for a store in a bucket, s3://BUCKET/PREFIX")
      }
      return .folder(path)
    }
    guard packCache ?? 0 >= 0 else {
      throw ValidationError("--pack-cache is 0 or more; less than 64 MiB counts as 64 MiB")
    }
    return try StorePlace.bucket(path, state: state, packCache: packCache)
  }

  private func storePath() throws -> String {
    let path = store ?? ProcessInfo.processInfo.environment["BLOBTOOL_STORE"] ?? ""
    guard !path.isEmpty else {
      throw ValidationError("no store is named: give --store PATH or set BLOBTOOL_STORE")
    }
    return path
  }

  /// Shows how far the work of `body` has come, as the options say.
  func withProgress<T>(_ body: (ProgressMeter) async throws -> T) async throws -> T {
    try await outputOptions.withProgress(body)
  }
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
      throw error
    }
    try await store.closeWhole()
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
    do { try await body() } catch {
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

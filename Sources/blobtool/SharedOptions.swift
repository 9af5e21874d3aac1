import ArgumentParser
import BlobStorage
import Foundation

/// What every command takes.
struct SharedOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "The folder of the store (default: the environment's BLOBTOOL_STORE).", valueName: "path"),
    completion: .directory)
  var store: String?

  @Flag(help: "Print the result as JSON.")
  var json = false

  @Option(help: "How long work is shown on standard error: auto, bar, plain, json or none.")
  var progress: ProgressStyle = .auto

  /// Where the store is.
  ///
  /// - Throws: `ValidationError` when nobody has said so.
  func storePath() throws -> String {
    let path = store ?? ProcessInfo.processInfo.environment["BLOBTOOL_STORE"] ?? ""
    guard !path.isEmpty else {
      throw ValidationError("no store is named: give --store PATH or set BLOBTOOL_STORE")
    }
    return path
  }

  /// Shows how far the work of `body` has come, as the options say.
  func withProgress<T>(_ body: (ProgressMeter) async throws -> T) async throws -> T {
    let meter = ProgressMeter(progress)
    defer { meter.finish() }
    return try await body(meter)
  }
}

/// A command that works on an existing store.
protocol StoreCommand: AsyncParsableCommand {
  var shared: SharedOptions { get }
  func perform(on store: BlobStore) async throws
}

extension StoreCommand {
  func run() async throws {
    let store = try await StorePath.open(try shared.storePath())
    do { try await perform(on: store) } catch {
      try? await store.closeWhole()  // the first error is the one to tell
      throw error
    }
    try await store.closeWhole()
  }
}

extension BlobStore {
  /// Closes also when the command has been cancelled.
  func closeWhole() async throws {
    try await Task.detached { try await self.close() }.value
  }
}

/// The place of a store as the user named it.
enum StorePath {
  /// Opens the store there; when there is none, the message says what makes one.
  static func open(_ path: String) async throws -> BlobStore {
    try await explaining(path) { () throws(BlobStorageError) in try await BlobStore.open(at: path) }
  }

  /// What is done to the store there; when there is none, the message says what makes one.
  static func explaining<T>(
    _ path: String, _ body: () async throws(BlobStorageError) -> T
  ) async throws -> T {
    do { return try await body() } catch {
      switch error.code {
      case .noStore:
        throw Failure(
          ExitStatus.failed,
          "There is no store at \(path.printable); `blobtool init --store PATH` creates one.")
      case .notAStore:
        throw Failure(
          ExitStatus.failed,
          "\(path.printable) holds something that is not a store; `blobtool init --store PATH` creates one in a"
            + " folder that is empty or missing.")
      default: throw error
      }
    }
  }
}

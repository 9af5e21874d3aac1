import ArgumentParser
import BlobStorage
import BlobStorageTrees

/// The exit codes. Scripts rely on the numbers.
enum ExitStatus {
  static let done: Int32 = 0
  static let failed: Int32 = 1
  static let notFound: Int32 = 3
  static let damaged: Int32 = 4
  static let busy: Int32 = 5
  static let wrongUsage: Int32 = 64
}

/// Ends a command without success, with a sentence and an exit code.
struct Failure: Error {
  var exitStatus: Int32
  /// The sentence to print; nil to print nothing more.
  var message: String?

  init(_ exitStatus: Int32, _ message: String?) {
    self.exitStatus = exitStatus
    self.message = message
  }

  /// Translates an error; nil if it is the argument parser's.
  init?(_ error: any Error) {
    switch error {
    case let failure as Failure: self = failure
    case let error as BlobStorageError where error.underlyingError is Failure:
      // The tool's own source of a put has failed.
      self.init(error.underlyingError ?? error)
    case let error as BlobStorageError:
      let full = error.errno == nil ? nil : error.fullDiskMessage
      self.init(
        Self.exitStatus(of: error.code),
        full.map { "\($0.clause): free space on that disk, and run the command again." } ?? error.message)
    case is CancellationError: self.init(ExitStatus.failed, "The work was cancelled.")
    default: return nil
    }
  }

  /// Throws a failure with the code of damage if blobs could not be followed to their chunks.
  static func check(notFollowed reasons: [String]) throws {
    guard let first = reasons.first else { return }
    throw Failure(ExitStatus.damaged, "The numbers are incomplete (\(first.clause)); run `blobtool verify`.")
  }

  /// The key is not in the store.
  static func noKey(_ key: String) -> Self {
    Self(ExitStatus.notFound, "There is no key “\(key.printable)” in the store.")
  }

  /// No key is of the prefix.
  static func noKeys(of prefix: KeyPrefix) -> Self {
    Self(ExitStatus.notFound, "No key in the store \(prefix.description).")
  }

  /// No key matches the pattern.
  static func noKeys(matching glob: String) -> Self {
    Self(ExitStatus.notFound, "No key in the store matches “\(glob.printable)”.")
  }

  /// The version is not in the store.
  static func noVersion(_ version: String, of key: String) -> Self {
    let isShort = version.count < VersionArgument.digitCountMin && version.allSatisfy(\.isHexDigit)
    let remedy = isShort ? ": give at least the first \(VersionArgument.digitCountMin) digits of its ID" : ""
    return Self(
      ExitStatus.notFound, "The key “\(key.printable)” has no version \(version.printable)\(remedy).")
  }

  private static func exitStatus(of code: BlobStorageError.Code) -> Int32 {
    switch code {
    case .corrupted: ExitStatus.damaged
    case .busy, .conditionFailed: ExitStatus.busy
    case .keysCollide, .ambiguousSnapshot: ExitStatus.wrongUsage
    case .missingVersion: ExitStatus.notFound
    default: ExitStatus.failed
    }
  }
}

/// The reader of the output closed it, which is not a failure.
struct OutputEnded: Error {}

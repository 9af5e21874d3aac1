import Foundation

/// The result of an operation of a ``DataArchive``. The URLs say where the original would have kept the value.
public enum DataArchiveResult: Sendable {
  case success
  /// There is no such key.
  case fileNotFound(URL)
  /// The value or its bytes could not be converted, or the bytes cannot be read whole and right.
  case couldNotConvertFile(URL, String)
  /// Does not occur: the store moves nothing.
  case couldNotMoveFile(URL, URL, any Error)
  /// Archived versions could not be dropped.
  case coludNotDeleteFile(URL, any Error)
  /// The value could not be stored; the key is as it was.
  case couldNotWriteToFile(URL, any Error)
  /// The limit of `keep(upTo:)` was 0 or less; nothing was changed.
  case limitNeedsToBePositiveNumber
  /// The reader has given its last value, or was finished.
  case lockingReaderWasFinished
  /// The key could not be deleted.
  case couldNotDeleteKey(URL, any Error)
  /// Does not occur: the first version of a key is a plain success.
  case couldNotArchiveButCouldSet

  /// Whether the operation succeeded.
  public var isSuccess: Bool {
    if case .success = self { true } else { false }
  }
}

/// Receives the result of a write.
public typealias DataArchiveCompletionHandler = (DataArchiveResult) -> Void

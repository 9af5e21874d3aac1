import Foundation
import SystemPackage

/// A path of the file system as a parameter: a `String`, a `FilePath`, or a `URL` of a file.
public protocol PathConvertible: Sendable {
  /// The path as text. Bytes of a `FilePath` that are not UTF-8 are replaced, so the text then names another file.
  ///
  /// - Throws: `invalidArgument` if this is no path of the file system.
  func pathText() throws(BlobStorageError) -> String
}

extension PathConvertible {
  /// The path as the system has it. That of a `FilePath` need not be UTF-8.
  package func filePath() throws(BlobStorageError) -> FilePath {
    if let path = self as? FilePath { return path }
    return FilePath(try pathText())
  }
}

extension String: PathConvertible {
  public func pathText() throws(BlobStorageError) -> String { self }
}

extension FilePath: PathConvertible {
  public func pathText() throws(BlobStorageError) -> String { string }
}

extension URL: PathConvertible {
  public func pathText() throws(BlobStorageError) -> String {
    guard isFileURL else {
      throw BlobStorageError(
        .invalidArgument, "\(self) does not name a file: use a URL that begins with file://.")
    }
    return path(percentEncoded: false)
  }
}

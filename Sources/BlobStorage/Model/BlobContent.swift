import Foundation

/// The source of a put's bytes.
public enum BlobContent: Sendable {
  /// Bytes in memory.
  case data(Data)
  /// A regular file, and no link to one. If it changes while it is read, the put ends as `sourceFailed`.
  case file(String)
  /// An open descriptor, such as standard input (0), read from its current offset. It is not closed.
  case descriptor(Int32)
  /// The bytes that the closure returns, until it returns nil or no bytes. If it throws an error, the put ends as
  /// `sourceFailed`, or as `cancelled` if that is a `CancellationError`.
  ///
  /// It runs on one of the store's threads, and keeps others from it while it waits: for a slow source, use
  /// ``BlobStore/put(from:forKey:options:progress:)``.
  case stream(@Sendable () throws -> Data?)
}

extension BlobContent {
  /// A regular file, by any kind of path in UTF-8.
  ///
  /// - Throws: `invalidArgument` for a URL that names no file.
  public static func file(at path: some PathConvertible) throws(BlobStorageError) -> BlobContent {
    .file(try path.pathText())
  }
}

/// One put of several that are committed together.
public struct PutItem: Sendable {
  public var key: String
  public var data: Data
  public var metadata: [UInt8]
  public var mediaType: String?

  /// An item with these values.
  public init(key: String, data: Data, metadata: [UInt8] = [], mediaType: String? = nil) {
    self.key = key
    self.data = data
    self.metadata = metadata
    self.mediaType = mediaType
  }
}

import Foundation
import SystemPackage

/// Where the bytes of a put come from.
public enum BlobContent: Sendable {
  /// Bytes in memory.
  case data(Data)
  /// A regular file, read from front to back. A file that changes meanwhile is `sourceFailed`.
  case file(String)
  /// An open descriptor, such as standard input (0), read from where it stands; it is not closed.
  case descriptor(Int32)
  /// Whatever the closure gives, until it gives nil or nothing; it runs on a thread of the store's. What it throws
  /// ends the put as `sourceFailed`.
  case stream(@Sendable () throws -> Data?)
}

extension BlobContent {
  /// How long it is, as far as that can be told beforehand; else 0.
  func knownByteCount() -> Int64 {
    switch self {
    case .data(let data): return Int64(data.count)
    case .file(let path):
      // What is wrong with it is told when it is opened.
      do { return try SystemFiles().status(of: FilePath(path))?.byteCount ?? 0 } catch { return 0 }
    case .descriptor, .stream: return 0
    }
  }
}

/// One put of several that are committed together.
public struct PutItem: Sendable {
  public var key: String
  public var data: Data
  public var metadata: [UInt8]

  /// An item with these values.
  public init(key: String, data: Data, metadata: [UInt8] = []) {
    self.key = key
    self.data = data
    self.metadata = metadata
  }
}

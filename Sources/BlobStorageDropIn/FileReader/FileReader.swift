import BlobStorage
import Dispatch
import Foundation

/// Reads ranges of bytes from a file, or from a stored blob, without blocking.
public final class FileReader: Sendable {
  private let openSource: @Sendable () throws(BlobStorageError) -> (any RangeSource)?
  private let source = IOLock<(any RangeSource)?>(nil)

  /// A reader of a file, not opened yet.
  public init(fileURL: URL) {
    openSource = { () throws(BlobStorageError) in try PlainFile(fileURL) }
  }

  /// A reader of a key's current or named version, not opened yet.
  public init(store: BlobStore, key: String, version: BlobVersion.ID? = nil) {
    openSource = { () throws(BlobStorageError) in
      try store.blocking.reader(forKey: key, version: version).map { StoredBlob(reader: $0) }
    }
  }

  /// A reader of the blob with that digest, not opened yet.
  public init(store: BlobStore, digest: BlobDigest) {
    openSource = { () throws(BlobStorageError) in
      try store.blocking.reader(for: digest).map { StoredBlob(reader: $0) }
    }
  }

  /// Opens the file or blob; false if it is missing or cannot be read. An open reader stays as it is.
  public func open() -> Bool {
    source.withLock { source in
      if source == nil { source = (try? openSource()) ?? nil }
      return source != nil
    }
  }

  /// Closes it. Reads under way still get their bytes.
  public func close() { source.withLock { $0 = nil } }

  /// Reads the bytes of a range, clamped at the end, and hands them over on `queue`, once.
  ///
  /// Hands over nil for a range that begins past the end, for bytes that cannot be read whole and right, and while the
  /// reader is closed.
  ///
  /// - Complexity: of a blob, only the chunks that the range touches are read.
  public func read(
    byteRange: CountableRange<Int>, queue: DispatchQueue = .main,
    completionHandler: @escaping (DispatchData?) -> Void
  ) {
    let handler = Handed(completionHandler)
    guard let source = source.withLock({ $0 }), let byteCount = source.byteCount, byteRange.lowerBound >= 0,
      byteRange.lowerBound <= byteCount
    else { return queue.async { handler.value(nil) } }
    let range = Int64(byteRange.lowerBound)..<min(Int64(byteRange.upperBound), byteCount)
    source.read(range, queue: queue) { handler.value($0) }
  }
}

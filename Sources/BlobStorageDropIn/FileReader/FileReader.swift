import BlobStorage
import Dispatch
import Foundation
import SystemPackage

/// Reads ranges of bytes from a file, or from a stored blob, without blocking.
public final class FileReader: Sendable {
  /// The open file or blob. It closes with its last holder; a read under way is one.
  private enum Source: Sendable {
    case file(any File)
    case blob(BlobReader)
  }

  private let openSource: @Sendable () throws(BlobStorageError) -> Source?
  private let source = IOLock<Source?>(nil)

  /// A reader of a file, not opened yet.
  public init(fileURL: URL) {
    openSource = { () throws(BlobStorageError) in
      Source.file(try SystemFiles().open(FilePath(fileURL.resolvingSymlinksInPath().path), .read))
    }
  }

  /// A reader of a key's current or named version, not opened yet.
  public init(store: BlobStore, key: String, version: BlobVersion.ID? = nil) {
    openSource = { () throws(BlobStorageError) in
      try store.blocking.reader(forKey: key, version: version).map { Source.blob($0) }
    }
  }

  /// A reader of the blob with that digest, not opened yet.
  public init(store: BlobStore, digest: BlobDigest) {
    openSource = { () throws(BlobStorageError) in
      try store.blocking.reader(for: digest).map { Source.blob($0) }
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
  /// Hands over nil while the reader is closed, for a range that begins past the end, and for unreadable or damaged
  /// bytes.
  ///
  /// - Complexity: of a blob, only the chunks that the range touches are read.
  public func read(
    byteRange: CountableRange<Int>, queue: DispatchQueue = .main,
    completionHandler: @escaping (DispatchData?) -> Void
  ) {
    let handler = Handed(completionHandler)
    let source = source.withLock { $0 }
    let byteCount: Int64? =
      switch source {
      // Nil means that its length is unknown.
      case .file(let file): try? file.status().byteCount
      case .blob(let reader): reader.byteCount
      case nil: nil
      }
    guard let byteCount, byteRange.lowerBound >= 0, byteRange.lowerBound <= byteCount else {
      return queue.async { handler.value(nil) }
    }
    let range = Int64(byteRange.lowerBound)..<min(Int64(byteRange.upperBound), byteCount)
    let completion: @Sendable (Result<DispatchData, BlobStorageError>) -> Void = { result in
      withExtendedLifetime(source) { handler.value(try? result.get()) }
    }
    switch source {
    case .file where range.isEmpty: queue.async { handler.value(.empty) }
    case .file(let file):
      file.readThroughDispatch(
        offset: range.lowerBound, byteCount: range.count, queue: queue, completion: completion)
    case .blob(let reader): reader.read(byteRange: range, queue: queue, completionHandler: completion)
    case nil: break
    }
  }
}

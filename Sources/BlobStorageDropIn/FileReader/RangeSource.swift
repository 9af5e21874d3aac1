import BlobStorage
import Dispatch
import Foundation
import SystemPackage

/// The open file or blob of a ``FileReader``. It closes with its last reference; a read under way holds one.
protocol RangeSource: Sendable {
  /// Its current length; nil if it is unknown.
  var byteCount: Int64? { get }

  /// Reads a range that is not longer than the source and calls `handler` once on `queue`.
  func read(
    _ range: Range<Int64>, queue: DispatchQueue, _ handler: @escaping @Sendable (DispatchData?) -> Void)
}

/// A file, through DispatchIO.
final class PlainFile: RangeSource {
  private let file: any File

  init(_ url: URL) throws(BlobStorageError) {
    file = try SystemFiles().open(FilePath(url.resolvingSymlinksInPath().path), .read)
  }

  deinit { file.close() }

  var byteCount: Int64? { try? file.status().byteCount }

  func read(
    _ range: Range<Int64>, queue: DispatchQueue, _ handler: @escaping @Sendable (DispatchData?) -> Void
  ) {
    guard !range.isEmpty else { return queue.async { handler(.empty) } }
    file.readThroughDispatch(offset: range.lowerBound, byteCount: range.count, queue: queue) {
      [self] result in
      withExtendedLifetime(self) { handler(try? result.get()) }
    }
  }
}

/// A stored blob.
struct StoredBlob: RangeSource {
  let reader: BlobReader

  var byteCount: Int64? { reader.byteCount }

  func read(
    _ range: Range<Int64>, queue: DispatchQueue, _ handler: @escaping @Sendable (DispatchData?) -> Void
  ) {
    let reader = reader
    reader.read(byteRange: range, queue: queue) { result in
      // The reader closes with its last holder.
      withExtendedLifetime(reader) { handler(try? result.get()) }
    }
  }
}

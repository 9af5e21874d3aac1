import Dispatch
import Foundation

/// A blob that is open for reading any part of it. Ranges are half-open and count plain bytes.
///
/// It holds a lease: the blob stays readable until ``close()``, until the reader is released, or until the store is
/// closed. Without a lease gc may remove a blob that is dropped meanwhile. A reader has none on a disk that is full or
/// cannot be written, and gc of other machines sees none.
public final class BlobReader: Sendable {
  private let blob: OpenBlob
  private let reads: OperationPool
  private let longWork: OperationPool

  init(blob: OpenBlob, reads: OperationPool, longWork: OperationPool) {
    self.blob = blob
    self.reads = reads
    self.longWork = longWork
  }

  deinit { blob.close() }

  /// The digest of the whole blob.
  public var digest: BlobDigest { blob.layout.digest }
  /// The version that was opened; nil for a blob that was opened by its digest.
  public var version: BlobVersion? { blob.version }
  /// Its length.
  public var byteCount: Int64 { blob.layout.byteCount }

  /// The verified bytes of a range, clamped at the blob's end.
  ///
  /// - Throws: `invalidArgument` for a range that begins past the end or below 0, `corrupted`, `closed`, `cancelled`,
  ///   `io`.
  /// - Complexity: reads only the chunks that the range touches. A chunk in the page cache takes a system call or two,
  ///   others go through DispatchIO. In a bucket, chunks that are not on this machine take requests.
  public func read(_ range: Range<Int64>) async throws(BlobStorageError) -> DispatchData {
    try await reads.run { [blob] () throws(BlobStorageError) in Unchecked(value: try blob.read(range)) }.value
  }

  /// Reads a range like ``read(_:)``, and calls the completion handler exactly once, on `queue`. The program need not
  /// keep the reader until then.
  public func read(
    byteRange: Range<Int64>, queue: DispatchQueue,
    completionHandler: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    reads.submit { [self] in
      let result: Unchecked<Result<DispatchData, BlobStorageError>>
      do throws(BlobStorageError) {
        result = Unchecked(value: .success(try blob.read(byteRange)))
      } catch { result = Unchecked(value: .failure(error)) }
      queue.async { completionHandler(result.value) }
    }
  }

  /// Passes a range's bytes to `sink` in order, chunk by chunk, in bounded memory. Verifies each chunk before passing
  /// it, and the digest of a whole blob at the end.
  ///
  /// The sink runs on one of the store's threads for long work, and keeps other work from it while it waits: for a slow
  /// consumer, use ``chunks(in:)``. An error that it throws ends the reading as `sourceFailed`, unless it is a ``BlobStorageError``.
  ///
  /// - Throws: what ``read(_:)`` throws; `corrupted` after the last byte if the whole blob does not match its digest.
  public func stream(
    _ range: Range<Int64>? = nil, to sink: @escaping @Sendable (UnsafeRawBufferPointer) throws -> Void
  ) async throws(BlobStorageError) {
    try await longWork.run { [blob] () throws(BlobStorageError) in
      try blob.stream(range ?? 0..<blob.layout.byteCount, to: sink)
    }
  }

  /// The bytes of a range in order, part by part; of the whole blob by default. A part ends with the chunk by which it
  /// reaches 1 MiB, so it is shorter than 1 MiB and the longest chunk together.
  ///
  /// Reads each part on request, so a slow consumer occupies neither memory nor a thread. Verifies each chunk but,
  /// unlike ``stream(_:to:)``, not the digest of the whole blob.
  public func chunks(in range: Range<Int64>? = nil) -> BlobChunks {
    BlobChunks(reader: self, range: range ?? 0..<byteCount)
  }

  fileprivate func part(_ range: Range<Int64>) async throws(BlobStorageError) -> Data {
    try await reads.run { [blob] () throws(BlobStorageError) in try blob.firstPart(range) }
  }

  /// Releases the blob. Later reads throw `closed`.
  public func close() { blob.close() }
}

/// The bytes of a range of a blob, part by part.
///
/// Its iterator throws `corrupted`, `io`, `closed`, and `cancelled` if the task is cancelled. It throws
/// `invalidArgument` for a range that begins past the end or below 0 and is not empty.
public struct BlobChunks: AsyncSequence, Sendable {
  fileprivate let reader: BlobReader
  fileprivate let range: Range<Int64>

  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: reader, rest: range) }

  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let reader: BlobReader
    fileprivate var rest: Range<Int64>

    public mutating func next() async throws(BlobStorageError) -> Data? {
      guard !rest.isEmpty else { return nil }
      let part = try await reader.part(rest)
      let end = rest.upperBound
      rest = part.isEmpty ? end..<end : rest.lowerBound + Int64(part.count)..<end
      return part.isEmpty ? nil : part
    }
  }
}

/// The versions that a key had at one moment, newest first. Each stays readable until ``close()``, as a reader's blob
/// does.
public final class VersionHistory: Sendable {
  let held: HeldVersions
  private let pool: OperationPool

  init(_ held: HeldVersions, pool: OperationPool) {
    self.held = held
    self.pool = pool
  }

  deinit { held.close() }

  public var versions: [BlobVersion] { held.versions }

  /// The bytes of one of them.
  ///
  /// - Throws: `corrupted`, `closed`, `cancelled`, `io`; `invalidArgument` for an index outside ``versions``.
  public func data(at index: Int) async throws(BlobStorageError) -> Data {
    try await pool.run { [held] () throws(BlobStorageError) in try held.data(at: index) }
  }

  /// Releases the versions.
  public func close() { held.close() }
}

/// Carries dispatch data from the reading thread to the caller. Unchecked: `DispatchData` is immutable, but not
/// Sendable on every platform.
private struct Unchecked<T>: @unchecked Sendable { var value: T }

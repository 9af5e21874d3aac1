import Dispatch
import Foundation
import Synchronization

/// A blob with a lease on it.
package final class OpenBlob: Sendable {
  package let layout: BlobLayout
  /// The version that was opened; nil for a blob that was opened by its digest.
  let version: BlobVersion?
  private let engine: Engine
  private let hold: Mutex<LeaseFile.Hold?>

  init(engine: Engine, layout: BlobLayout, hold: LeaseFile.Hold, version: BlobVersion? = nil) {
    self.version = version
    self.engine = engine
    self.layout = layout
    self.hold = Mutex(hold)
  }

  package func close() {
    if let hold = hold.withLock({ $0.take() }) { engine.leases.release(hold) }
  }

  /// Returns the bytes of a range, clamped to the blob's end.
  package func read(_ range: Range<Int64>) throws(BlobStorageError) -> DispatchData {
    var data = DispatchData.empty
    try read(range) { data.append($0) }
    return data
  }

  /// Passes the same bytes to `sink`, in order.
  package func read(
    _ range: Range<Int64>, to sink: (UnsafeRawBufferPointer) -> Void
  ) throws(BlobStorageError) {
    let range = try clamped(range)
    try engine.blobs.stream(layout, range, access: .random, keeps: true) { sink($0) }
  }

  /// Returns the bytes of the first chunks that a range touches, up to the chunk that reaches 1 MiB.
  package func firstPart(_ range: Range<Int64>) throws(BlobStorageError) -> Data {
    let range = try clamped(range)
    var end = range.lowerBound
    try layout.forEachChunk(in: range, from: engine.chunks) { chunk in
      end = min(chunk.start + Int64(chunk.entry.plainByteCount), range.upperBound)
      return end - range.lowerBound < 1 << 20
    }
    var data = Data(capacity: Int(end - range.lowerBound))
    try engine.blobs.stream(layout, range.lowerBound..<end) { data.append(contentsOf: $0) }
    return data
  }

  /// The blob's bytes, for a put.
  func content() throws(BlobStorageError) -> BlobContent {
    let byteCount = layout.byteCount
    if byteCount <= Int64(MemoryPut.byteCountMax) { return .data(Data(try read(0..<byteCount))) }
    let next = Mutex<Int64>(0)
    return .stream { [self] in
      let start = next.withLock { $0 }
      guard start < byteCount else { return nil }
      let part = try firstPart(start..<byteCount)
      next.withLock { $0 += Int64(part.count) }
      return part
    }
  }

  /// Runs a put of ``content()``. A put reports what its source throws as `sourceFailed`; here the source is the store
  /// itself.
  static func putting<T>(_ put: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    do throws(BlobStorageError) { return try put() } catch {
      guard error.code == .sourceFailed else { throw error }
      throw error.underlyingError as? BlobStorageError ?? error
    }
  }

  package func stream(
    _ range: Range<Int64>, to sink: (UnsafeRawBufferPointer) throws -> Void
  ) throws(BlobStorageError) {
    let range = try clamped(range)
    func handOver(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
      do { try sink(bytes) } catch {
        if let error = error as? BlobStorageError { throw error }
        throw BlobStorageError(.sourceFailed, "The sink of a stream failed: \(error).", underlying: error)
      }
    }
    if range == 0..<layout.byteCount {
      try engine.blobs.streamWhole(layout, .digest, handOver)
    } else {
      try engine.blobs.stream(layout, range, handOver)
    }
  }

  private func clamped(_ range: Range<Int64>) throws(BlobStorageError) -> Range<Int64> {
    try engine.checkOpen()
    guard hold.withLock({ $0 != nil }) else { throw BlobStorageError(.closed, "The reader was closed.") }
    guard range.lowerBound >= 0, range.lowerBound <= layout.byteCount else {
      throw BlobStorageError(
        .invalidArgument,
        "The range begins at \(range.lowerBound), but the blob has \(layout.byteCount) bytes.",
        digest: layout.digest)
    }
    return range.lowerBound..<min(range.upperBound, layout.byteCount)
  }
}

/// Versions of a key with a lease on each of their blobs.
package final class HeldVersions: Sendable {
  package let versions: [BlobVersion]
  private let engine: Engine
  private let hold: Mutex<LeaseFile.Hold?>

  init(engine: Engine, versions: [BlobVersion], hold: LeaseFile.Hold) {
    self.engine = engine
    self.versions = versions
    self.hold = Mutex(hold)
  }

  package func close() {
    if let hold = hold.withLock({ $0.take() }) { engine.leases.release(hold) }
  }

  func data(at index: Int) throws(BlobStorageError) -> Data {
    guard hold.withLock({ $0 != nil }) else { throw BlobStorageError(.closed, "The history was closed.") }
    guard versions.indices.contains(index) else {
      throw BlobStorageError(
        .invalidArgument, "There is no version \(index): the history has \(versions.count) versions.")
    }
    let version = versions[index]
    guard let data = try engine.data(version.digest) else {
      throw BlobStorageError(
        .corrupted, "Blob \(version.digest) is missing from the store.", key: version.key,
        digest: version.digest)
    }
    return data
  }
}

import BlobStorage
import Synchronization

/// A part of a blob in memory, loaded or loading.
final class ReadWindow: Sendable {
  private enum State: Sendable {
    case loading
    case loaded([UInt8])
    case failed

    var isLoading: Bool { if case .loading = self { true } else { false } }
  }

  /// For all open files together: 256 MiB.
  private static let countMax = 64
  private static let count = Atomic<Int>(0)

  private let range: Range<Int64>
  private let state = Monitor(State.loading)

  /// A window to load; nil if there are too many.
  init?(_ range: Range<Int64>) {
    let count = Self.count.wrappingAdd(1, ordering: .relaxed).newValue
    guard count <= Self.countMax else {
      Self.count.wrappingSubtract(1, ordering: .relaxed)
      return nil
    }
    self.range = range
  }

  deinit { Self.count.wrappingSubtract(1, ordering: .relaxed) }

  /// Reads the bytes on all cores. Call it once.
  func load(from blob: OpenBlob) {
    var result = State.failed
    do throws(BlobStorageError) {
      let bytes = try [UInt8](filling: range.count) { (target) throws(BlobStorageError) in
        var count = 0
        try blob.stream(range) { bytes in
          let part = min(bytes.count, target.count - count)
          target[count...].copyBytes(from: bytes.prefix(part))
          count += part
        }
        return count
      }
      if bytes.count == range.count { result = .loaded(bytes) }
    } catch {
      // The caller then reads its part by itself, and gets the error if the damage is in it.
    }
    state.withLock { $0 = result }
    state.wakeAll()
  }

  /// Waits until the window is loaded, then copies its part of a range that begins in it. Returns the number of bytes;
  /// nil if they cannot be read.
  func copy(_ wanted: Range<Int64>, to target: UnsafeMutableRawBufferPointer) -> Int? {
    let loaded = state.withLock(when: { !$0.isLoading }) { $0 }
    guard case .loaded(let bytes) = loaded else { return nil }
    let part = wanted.clamped(to: range)
    let start = Int(part.lowerBound - range.lowerBound)
    bytes.withUnsafeBytes { target.copyBytes(from: $0[start..<start + part.count]) }
    return part.count
  }
}

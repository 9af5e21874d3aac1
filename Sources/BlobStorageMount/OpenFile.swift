import BlobStorage
import Dispatch
import Synchronization

/// A file that a program reads: a version's blob with a lease, so that it stays readable.
///
/// The system requests 128 KiB at a time. If a file is read in order, whole windows are read on all cores, one ahead.
final class OpenFile: Sendable {
  private struct State: Sendable {
    /// The end of the last read.
    var end: Int64 = 0
    /// How many bytes up to there were read in order.
    var orderedByteCount: Int64 = 0
    var windows: [Int64: ReadWindow] = [:]

    /// Whether a read continues the reads before it. The system may send the second of two reads ahead first.
    mutating func isInOrder(_ range: Range<Int64>) -> Bool {
      if abs(range.lowerBound - end) <= OpenFile.disorderByteCount {
        orderedByteCount += range.upperBound - range.lowerBound
      } else {
        orderedByteCount = 0
        windows = [:]
      }
      end = range.upperBound
      return orderedByteCount > OpenFile.orderedByteCountMin
    }
  }

  private static let windowByteCount: Int64 = 4 << 20
  private static let disorderByteCount: Int64 = 1 << 20
  private static let orderedByteCountMin: Int64 = 256 << 10
  private static let queue = DispatchQueue(label: "blob-mount.ahead", attributes: .concurrent)

  let version: BlobVersion
  private let blob: OpenBlob
  private let hasFailed = Atomic<Bool>(false)
  private let state = Mutex(State())

  init(_ version: BlobVersion, _ blob: OpenBlob) {
    self.version = version
    self.blob = blob
  }

  deinit { blob.close() }

  /// True for the first failure only: the system repeats reads that fail.
  func isFirstFailure() -> Bool { !hasFailed.exchange(true, ordering: .relaxed) }

  /// Fills a buffer with the bytes from an offset on. Returns their number, which is less only at the end.
  ///
  /// - Throws: `corrupted`; then the buffer may have been filled in part.
  func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    guard offset >= 0, offset < version.byteCount else { return 0 }
    let end = offset + min(Int64(buffer.count), version.byteCount - offset)
    var position = offset
    if state.withLock({ $0.isInOrder(offset..<end) }) {
      while position < end, let window = window(position / Self.windowByteCount) {
        guard let count = window.copy(position..<end, to: rest(of: buffer, from: position - offset)) else {
          break
        }
        position += Int64(count)
      }
      if end == version.byteCount { state.withLock { $0.windows = [:] } }
    }
    // Reads what no window has. If a window has damage, only the damaged part fails.
    if position < end { try readBlob(position..<end, to: rest(of: buffer, from: position - offset)) }
    return Int(end - offset)
  }

  private func rest(
    of buffer: UnsafeMutableRawBufferPointer, from count: Int64
  ) -> UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(rebasing: buffer[Int(count)...])
  }

  private func readBlob(
    _ range: Range<Int64>, to target: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    var rest = UnsafeMutableRawBufferPointer(rebasing: target.prefix(range.count))
    try blob.read(range) { bytes in
      let count = min(bytes.count, rest.count)
      rest.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes.prefix(count)))
      rest = UnsafeMutableRawBufferPointer(rebasing: rest[count...])
    }
    guard rest.isEmpty else {
      throw BlobStorageError(
        .corrupted, "Blob \(version.digest) is shorter than its version says.", digest: version.digest)
    }
  }

  /// A window that is loaded or loading. Also loads the next one. Nil if there is no memory for it.
  private func window(_ index: Int64) -> ReadWindow? {
    let (window, new) = state.withLock { state -> (ReadWindow?, [ReadWindow]) in
      if state.windows.keys.contains(where: { !(index - 1...index + 1).contains($0) }) {
        state.windows = state.windows.filter { (index - 1...index + 1).contains($0.key) }
      }
      var new: [ReadWindow] = []
      // A forged version may claim any length.
      let last = (version.byteCount - 1) / Self.windowByteCount
      for number in [index, index + 1] where number <= last && state.windows[number] == nil {
        let start = number * Self.windowByteCount
        let byteCount = min(Self.windowByteCount, version.byteCount - start)
        guard let window = ReadWindow(start..<start + byteCount) else { break }
        state.windows[number] = window
        new.append(window)
      }
      return (state.windows[index], new)
    }
    for item in new.reversed() {
      if item === window {
        item.load(from: blob)
      } else {
        Self.queue.async { [blob] in item.load(from: blob) }
      }
    }
    return window
  }
}

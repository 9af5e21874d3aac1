import BlobStorage
import Dispatch
import Synchronization
import SystemPackage

/// Reads a published pack by ranges.
///
/// Consecutive reads prefetch more and more. Cached blocks are checked by their checksums. The bytes of a pack that is
/// cached whole are returned unverified, like those of any file. A caller that finds damage calls ``dropKept(_:)`` and
/// reads again.
package final class RemoteFile: File {
  package let name: PackName
  let byteCount: Int64
  private let fetches: RangeFetches
  private let footer: FooterCopy?
  private let state: Mutex<State>

  private struct State: Sendable {
    /// The whole pack, if this machine has it.
    var whole: (any File)?
    var isClosed = false
    /// The end of the last request, and the number of bytes that it prefetched.
    var askedEnd: Int64 = -1
    var aheadByteCount: Int64 = 0
  }

  private static let aheadByteCountMin: Int64 = 256 << 10
  private static let aheadByteCountMax: Int64 = 4 << 20

  init(name: PackName, byteCount: Int64, fetches: RangeFetches, footer: FooterCopy?) {
    self.name = name
    self.byteCount = byteCount
    self.fetches = fetches
    self.footer = footer
    // A power cut may have torn the local file. Without a footer copy, its header and footer would be read from there.
    state = Mutex(State(whole: footer == nil ? nil : fetches.cache.whole(name)))
  }

  package var path: FilePath { FilePath("\(fetches.objects.place)/\(fetches.object(name))") }

  /// True: reads go over a network.
  package var isRemote: Bool { true }

  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    let (whole, isClosed) = state.withLock { ($0.whole, $0.isClosed) }
    if isClosed { throw BlobStorageError(.closed, "\(path) was closed.", path: path.string) }
    let count = Int(min(Int64(buffer.count), max(byteCount - offset, 0)))
    guard count > 0 else { return 0 }
    let target = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
    do throws(BlobStorageError) {
      if let footer, try footer.read(into: target, at: offset) { return count }
      if let whole, try whole.read(into: target, at: offset) == count { return count }
    } catch {
      // If the local medium cannot read it, fetch it.
    }
    let ahead = state.withLock { state in
      // Allow a step back, because several threads read neighbouring ranges.
      let isNext =
        state.askedEnd >= 0 && (state.askedEnd - 2 * Self.aheadByteCountMin...state.askedEnd).contains(offset)
      return isNext ? min(max(state.aheadByteCount * 2, Self.aheadByteCountMin), Self.aheadByteCountMax) : 0
    }
    let asked = try fetches.read(name, byteCount: byteCount, into: target, at: offset, aheadByteCount: ahead)
    if !asked.isEmpty {
      state.withLock { state in
        state.askedEnd = asked.upperBound
        state.aheadByteCount = ahead
      }
    }
    return count
  }

  /// Fetches a range into the cache, with as few requests as its length allows.
  package func prefetch(_ range: Range<Int64>) throws(BlobStorageError) {
    if state.withLock({ $0.whole }) != nil { return }
    try fetches.ensure(name, byteCount: byteCount, range)
  }

  /// Drops a damaged range from the local cache, so that the next read fetches it from the object store. Always returns
  /// true, even if another thread has dropped it before.
  @discardableResult
  package func dropKept(_ range: Range<Int64>) -> Bool {
    if state.withLock({ $0.whole.take() }) != nil {
      fetches.cache.forget(name)
    } else {
      fetches.cache.forget(name, RangeFetches.blocks(range.clamped(to: 0..<byteCount)))
    }
    return true
  }

  package func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? {
    state.withLock { $0.whole }?.readIfCached(into: buffer, at: offset)
  }

  package func status() throws(BlobStorageError) -> FileStatus {
    FileStatus(
      kind: .regular, byteCount: byteCount, allocatedByteCount: byteCount, linkCount: 1, inode: 0, device: 0,
      modified: FileTime(seconds: 0, nanoseconds: 0), permissions: 0o400)
  }

  package func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    queue.async { [self] in
      do throws(BlobStorageError) {
        let bytes = try bytesThere(at: offset, byteCount)
        completion(.success(bytes.withUnsafeBytes { DispatchData(bytes: $0) }))
      } catch { completion(.failure(error)) }
    }
  }

  package func close() {
    // Release the file outside of the lock.
    _ = state.withLock { state in
      state.isClosed = true
      return state.whole.take()
    }
  }

  // MARK: Unsupported

  package func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool { true }
  package func unlock() throws(BlobStorageError) {}
  package func synchronize() throws(BlobStorageError) {}
  package func beginWriteback(from offset: Int64, byteCount: Int64) {}
  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    try refuse()
  }
  package func truncate(to byteCount: Int64) throws(BlobStorageError) { try refuse() }
  package func allocate(byteCount: Int64) throws(BlobStorageError) { try refuse() }
  package func reserve(byteCount: Int64) throws(BlobStorageError) { try refuse() }

  private func refuse() throws(BlobStorageError) {
    throw BlobStorageError(.readOnly, "\(path) was published and never changes.", path: path.string)
  }
}

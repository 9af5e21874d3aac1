import BlobStorage
import Dispatch
import Foundation
import Synchronization

/// Hands over the versions that a key had when the reader was made, one at a time, the newest first.
///
/// It holds them until the oldest was read, ``finish()`` was called or the reader is gone. Until then, later operations
/// of this process on the key wait; those on other keys and of other processes do not. Handlers are called in the order
/// of the calls, on a thread of the reader's.
public final class DataArchiveLazyLockingReader: Sendable {
  private struct State {
    /// The version that the next call gets.
    var next = 0
    var isFinished = false
  }

  private let key: String
  private let history: VersionHistory
  private let archive: DataArchive
  private let hold: Hold
  private let queue = DispatchQueue(label: "blob-storage.drop-in.reader")
  private let state = Mutex(State())

  init(key: String, history: VersionHistory, archive: DataArchive, hold: Hold) {
    self.hold = hold
    self.key = key
    self.history = history
    self.archive = archive
  }

  /// Hands over the bytes of the next older version; `lockingReaderWasFinished` after the oldest.
  public func getNext(completionHandler: @escaping (Data?, DataArchiveResult) -> Void) {
    getNext(converterType: DataValueConverter.self, completionHandler: completionHandler)
  }

  /// Hands over the next older version, converted; `lockingReaderWasFinished` after the oldest.
  ///
  /// A version that cannot be read or converted is reported, and the next call gets the one after it.
  public func getNext<T: ValueConverter>(
    converterType: T.Type, completionHandler: @escaping (T.T?, DataArchiveResult) -> Void
  ) {
    let handler = Handed(completionHandler)
    let conversion = Conversion(T.self)
    // Queued under the lock: a thread that gets a later version, or finishes the reader, must not come first.
    state.withLock { state in
      var index: Int?
      if !state.isFinished, state.next < history.versions.count {
        index = state.next
        state.next += 1
      }
      queue.async { [self, index] in
        guard let index else { return handler.value(nil, .lockingReaderWasFinished) }
        let (value, result) = read(index, conversion)
        let isLast = index == history.versions.count - 1
        if isLast {
          self.state.withLock { $0.isFinished = true }
          history.close()
        }
        handler.value(value, result)
        // Operations that wait for the reader come after the handler of its last value.
        if isLast { hold.release() }
      }
    }
  }

  /// Releases the versions and the key. Earlier calls still get their versions.
  public func finish() {
    state.withLock { state in
      state.isFinished = true
      queue.async { [self] in
        history.close()
        hold.release()
      }
    }
  }

  /// Whether the reader has nothing more to give.
  public var isFinished: Bool { state.withLock(\.isFinished) }

  private func read<Value>(_ index: Int, _ conversion: Conversion<Value>) -> (Value?, DataArchiveResult) {
    let url = archive.versionUrl(key, index: index, count: history.versions.count)
    do throws(BlobStorageError) {
      let data = try archive.store.perform(.archive) { (store) throws(BlobStorageError) in
        try store.data(at: index, of: history)
      }
      guard let value = conversion.value(data) else {
        return (nil, .couldNotConvertFile(url, conversion.name))
      }
      return (value, .success)
    } catch { return (nil, .couldNotConvertFile(url, error.message)) }
  }
}

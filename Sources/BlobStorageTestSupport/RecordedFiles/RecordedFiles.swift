import BlobStorage
import Synchronization
import SystemPackage

/// The system's files below one folder, with a log of all calls that change them: for tests with real threads.
///
/// Writes and syncs run side by side, as the threads make them. The log holds their beginnings and their ends, so that
/// ``RecordedDisk`` knows what each sync makes durable: the writes that had ended before it began. Calls that change
/// names happen one at a time.
package final class RecordedFiles: ForwardingFiles {
  /// Called before each call that changes something. If it throws, the call fails with that error and does nothing.
  package typealias Hook = @Sendable (CallKind, FilePath) throws(BlobStorageError) -> Void

  enum Event: Sendable {
    case createDirectory(FilePath)
    case create(FilePath, file: Int)
    case rename(FilePath, FilePath)
    case remove(FilePath)
    case removeDirectory(FilePath)
    case write(call: Int, file: Int, offset: Int, bytes: [UInt8])
    case append(call: Int, file: Int, bytes: [UInt8])
    case truncate(call: Int, file: Int, byteCount: Int)
    case sync(call: Int, file: Int)
    case syncDirectory(call: Int, FilePath)
    case ended(call: Int)
    case failed(call: Int)
  }

  private struct Log: Sendable {
    var events: [Event] = []
    var nextCall = 1
    var hook: Hook?
  }

  package let root: FilePath
  package let system = SystemFiles()
  private let log = Mutex(Log())
  /// The number of failed syncs of each file, by the file's number.
  private let failedSyncs = Mutex<[Int: Int]>([:])
  /// The numbers of files, by path.
  private let names = Mutex<(files: [String: Int], next: Int)>(([:], 1))

  /// - Parameter root: an existing folder that nothing else changes.
  package init(root: FilePath) { self.root = root }

  /// Sets the hook for each call that changes something.
  package func beforeMutations(_ hook: Hook?) { log.withLock { $0.hook = hook } }

  /// The number of events so far: a moment of the log.
  package var moment: Int { log.withLock { $0.events.count } }

  var events: [Event] { log.withLock { $0.events } }

  package func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    let creates = intent == .create || intent == .openOrCreate || intent == .append
    if creates { try runHook(.create, path) }
    return try changingNames { (files) throws(BlobStorageError) in
      let file = try system.open(path, intent)
      if let number = files.files[path.string] { return RecordedFile(file, number, self) }
      precondition(creates, "\(path) was not made through the recorder")
      let number = files.next
      files.next += 1
      files.files[path.string] = number
      record(.create(path, file: number))
      return RecordedFile(file, number, self)
    }
  }

  package func createDirectory(_ path: FilePath) throws(BlobStorageError) {
    try runHook(.createDirectory, path)
    try changingNames { (_) throws(BlobStorageError) in
      try system.createDirectory(path)
      record(.createDirectory(path))
    }
  }

  package func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) {
    try runHook(.rename, from)
    try changingNames { (files) throws(BlobStorageError) in
      try system.rename(from, to: to)
      files.files[to.string] = files.files.removeValue(forKey: from.string)
      record(.rename(from, to))
    }
  }

  package func remove(_ path: FilePath) throws(BlobStorageError) {
    try runHook(.remove, path)
    try changingNames { (files) throws(BlobStorageError) in
      try system.remove(path)
      files.files[path.string] = nil
      record(.remove(path))
    }
  }

  package func removeDirectory(_ path: FilePath) throws(BlobStorageError) {
    try runHook(.removeDirectory, path)
    try changingNames { (_) throws(BlobStorageError) in
      try system.removeDirectory(path)
      record(.removeDirectory(path))
    }
  }

  package func syncDirectory(_ path: FilePath) throws(BlobStorageError) {
    try recording(.syncDirectory, path) {
      .syncDirectory(call: $0, path)
    } body: {
      () throws(BlobStorageError) in
      try system.syncDirectory(path)
    }
  }

  // MARK: The log

  fileprivate func recording(
    _ kind: CallKind?, _ path: FilePath, _ event: (Int) -> Event, body: () throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let call = log.withLock { log in
      let call = log.nextCall
      log.nextCall += 1
      log.events.append(event(call))
      return call
    }
    do throws(BlobStorageError) {
      if let kind { try runHook(kind, path) }
      try body()
    } catch {
      record(.failed(call: call))
      throw error
    }
    record(.ended(call: call))
  }

  /// Runs a sync that may fail. As on Linux since 4.13 (errseq_t), each file that is open at a failure reports it once,
  /// whichever of them made the sync. A file that is opened afterwards does not report it.
  ///
  /// - Parameter seen: how many failures the open file has reported.
  fileprivate func synchronizing(
    _ number: Int, _ seen: borrowing Mutex<Int>, _ body: () throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    do throws(BlobStorageError) { try body() } catch {
      let count = failedSyncs.withLock { counts in
        counts[number, default: 0] += 1
        return counts[number, default: 0]
      }
      seen.withLock { $0 = count }
      throw error
    }
    let count = failedSyncCount(number)
    let isNews = seen.withLock { seen in
      defer { seen = count }
      return seen < count
    }
    guard isNews else { return }
    throw .systemCall("sync (of another open file, planned)", path: root, errno: Errno.ioError.rawValue)
  }

  fileprivate func failedSyncCount(_ number: Int) -> Int { failedSyncs.withLock { $0[number] ?? 0 } }

  private func record(_ event: Event) { log.withLock { $0.events.append(event) } }

  fileprivate func runHook(_ kind: CallKind, _ path: FilePath) throws(BlobStorageError) {
    try log.withLock { $0.hook }?(kind, path)
  }

  private func changingNames<Value: Sendable>(
    _ body: (inout (files: [String: Int], next: Int)) throws(BlobStorageError) -> Value
  ) throws(BlobStorageError) -> Value {
    try names.withLock { (names) throws(BlobStorageError) in try body(&names) }
  }
}

/// An open file of ``RecordedFiles``.
private final class RecordedFile: ForwardingFile {
  let file: any File
  private let number: Int
  private let files: RecordedFiles
  private let seenFailures: Mutex<Int>

  init(_ file: any File, _ number: Int, _ files: RecordedFiles) {
    self.file = file
    self.number = number
    self.files = files
    seenFailures = Mutex(files.failedSyncCount(number))
  }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    try files.recording(.write, path) {
      .write(call: $0, file: number, offset: Int(offset), bytes: Array(bytes))
    } body: { () throws(BlobStorageError) in
      try file.write(bytes, at: offset)
    }
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    try files.recording(.write, path) {
      .append(call: $0, file: number, bytes: Array(bytes))
    } body: { () throws(BlobStorageError) in
      try file.append(bytes)
    }
  }

  func synchronize() throws(BlobStorageError) {
    try files.recording(nil, path) {
      .sync(call: $0, file: number)
    } body: { () throws(BlobStorageError) in
      try files.synchronizing(number, seenFailures) { () throws(BlobStorageError) in
        try files.runHook(.synchronize, path)
        try file.synchronize()
      }
    }
  }

  func truncate(to byteCount: Int64) throws(BlobStorageError) {
    try files.recording(.truncate, path) {
      .truncate(call: $0, file: number, byteCount: Int(byteCount))
    } body: { () throws(BlobStorageError) in
      try file.truncate(to: byteCount)
    }
  }

  func allocate(byteCount: Int64) throws(BlobStorageError) {
    guard try file.status().byteCount < byteCount else { return }
    try files.recording(.allocate, path) {
      .truncate(call: $0, file: number, byteCount: Int(byteCount))
    } body: { () throws(BlobStorageError) in
      try file.allocate(byteCount: byteCount)
    }
  }

}

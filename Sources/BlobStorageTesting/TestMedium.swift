import BlobStorage
import Dispatch
import Foundation
import Synchronization
import SystemPackage

/// The medium of a ``TestStore``'s files. It behaves like the system's files until a test breaks it.
///
/// Only packs can fail to be read, written and synced, and only names to be created, changed and synced. Other files,
/// such as those of the catalog, always work.
public final class TestMedium: Sendable {
  private struct State {
    var isFull = false
    var isReadOnly = false
    var failsSyncs = false
    var failsReads = false
    var delay = Duration.zero
  }

  private let state = Mutex(State())

  init() {}

  /// Whether writing fails for lack of space: calls throw `noSpace`.
  public var isFull: Bool {
    get { state.withLock { $0.isFull } }
    set { state.withLock { $0.isFull = newValue } }
  }

  /// Whether writing is refused: calls throw `readOnly`.
  public var isReadOnly: Bool {
    get { state.withLock { $0.isReadOnly } }
    set { state.withLock { $0.isReadOnly = newValue } }
  }

  /// Whether syncs fail, as on a broken disk. The store is poisoned then: open it again with `BlobStore.reopen()`.
  public var failsSyncs: Bool {
    get { state.withLock { $0.failsSyncs } }
    set { state.withLock { $0.failsSyncs = newValue } }
  }

  /// Whether reading packs fails: calls throw `corrupted`. What is in memory can still be read.
  public var failsReads: Bool {
    get { state.withLock { $0.failsReads } }
    set { state.withLock { $0.failsReads = newValue } }
  }

  /// Additional time of each read, write and sync of a pack, and of each change and sync of names.
  public var delay: Duration {
    get { state.withLock { $0.delay } }
    set { state.withLock { $0.delay = newValue } }
  }

  /// Undoes all failures and the delay.
  public func heal() { state.withLock { $0 = State() } }

  enum Call { case read, write, change, sync }

  /// Runs before a call. If it throws, the call fails with that error.
  func begin(_ call: Call, _ path: FilePath) throws(BlobStorageError) {
    let state = state.withLock { $0 }
    if state.delay > .zero { Thread.sleep(forTimeInterval: state.delay / .seconds(1)) }
    let error: Errno? =
      switch call {
      case .read: state.failsReads ? .ioError : nil
      case .change: state.isReadOnly ? .readOnlyFileSystem : nil
      case .write: state.isReadOnly ? .readOnlyFileSystem : state.isFull ? .noSpace : nil
      case .sync: state.failsSyncs ? .ioError : nil
      }
    if let error { throw .systemCall("use", path: path, errno: error.rawValue) }
  }
}

/// The system's files on a medium.
struct TestFiles: FileSystem {
  private let system: any FileSystem
  private let medium: TestMedium

  init(_ medium: TestMedium, _ system: any FileSystem = SystemFiles()) {
    self.medium = medium
    self.system = system
  }

  var canBeAnchored: Bool { system.canBeAnchored }
  func anchored(by anchor: FolderAnchor) -> any FileSystem { Self(medium, system.anchored(by: anchor)) }
  var anchor: FolderAnchor? { system.anchor }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    if intent != .read, try system.status(of: path) == nil { try medium.begin(.write, path) }
    let file = try system.open(path, intent)
    // The catalog's database maps its files, and the catalog can be rebuilt: only packs can fail.
    return path.removingLastComponent().lastComponent?.string == "packs" ? TestFile(file, medium) : file
  }

  func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? { try system.status(of: path) }
  func list(_ directory: FilePath) throws(BlobStorageError) -> [String] { try system.list(directory) }
  func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try system.listFiles(directory)
  }

  func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    medium.isFull ? 0 : try system.availableByteCount(at: directory)
  }

  func createDirectory(_ path: FilePath) throws(BlobStorageError) {
    try medium.begin(.write, path)
    try system.createDirectory(path)
  }

  func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) {
    try medium.begin(.change, from)
    try system.rename(from, to: to)
  }

  func remove(_ path: FilePath) throws(BlobStorageError) {
    try medium.begin(.change, path)
    try system.remove(path)
  }

  func removeDirectory(_ path: FilePath) throws(BlobStorageError) {
    try medium.begin(.change, path)
    try system.removeDirectory(path)
  }

  func syncDirectory(_ path: FilePath) throws(BlobStorageError) {
    try medium.begin(.sync, path)
    try system.syncDirectory(path)
  }

  func mountIdentity(of path: FilePath) -> String { system.mountIdentity(of: path) }
  func shareOwner(of path: FilePath) { system.shareOwner(of: path) }
}

/// A pack on a medium.
final class TestFile: File {
  private let file: any File
  private let medium: TestMedium

  init(_ file: any File, _ medium: TestMedium) {
    self.file = file
    self.medium = medium
  }

  var path: FilePath { file.path }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(BlobStorageError) -> Int {
    try medium.begin(.read, path)
    return try file.read(into: buffer, at: offset)
  }

  func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? {
    medium.failsReads || medium.delay > .zero ? nil : file.readIfCached(into: buffer, at: offset)
  }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    try medium.begin(.write, path)
    try file.write(bytes, at: offset)
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    try medium.begin(.write, path)
    try file.append(bytes)
  }

  func synchronize() throws(BlobStorageError) {
    try medium.begin(.sync, path)
    try file.synchronize()
  }

  func beginWriteback(from offset: Int64, byteCount: Int64) {
    file.beginWriteback(from: offset, byteCount: byteCount)
  }

  func truncate(to byteCount: Int64) throws(BlobStorageError) { try file.truncate(to: byteCount) }

  func allocate(byteCount: Int64) throws(BlobStorageError) {
    try medium.begin(.write, path)
    try file.allocate(byteCount: byteCount)
  }

  func reserve(byteCount: Int64) throws(BlobStorageError) {
    try medium.begin(.write, path)
    try file.reserve(byteCount: byteCount)
  }

  func status() throws(BlobStorageError) -> FileStatus { try file.status() }
  func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool { try file.lock(kind, wait: wait) }

  func lock(_ kind: LockKind, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    try file.lock(kind, withinSeconds: seconds)
  }

  func unlock() throws(BlobStorageError) { try file.unlock() }

  func mapped(byteCount: Int) throws(BlobStorageError) -> SharedMemory {
    try file.mapped(byteCount: byteCount)
  }

  func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    do throws(BlobStorageError) { try medium.begin(.read, path) } catch {
      queue.async { [error] in completion(.failure(error)) }
      return
    }
    file.readThroughDispatch(offset: offset, byteCount: byteCount, queue: queue, completion: completion)
  }

  func close() { file.close() }
}

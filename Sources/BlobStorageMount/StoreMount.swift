import BlobStorage
import BlobStorageCache
import Foundation
import SystemPackage

/// A read-only view of a store in the file system, through FUSE: `current/KEY` has the bytes of each key,
/// `versions/KEY/` has a file for each version of it, and `states/NAME/` has the tree that an import found.
///
/// Every program of the mounting user can read the files. Each read is verified as a ``BlobReader`` verifies it: damage
/// is an error of the read and never data. A file that is open stays readable, even if its version is dropped and
/// collected meanwhile.
public struct StoreMount: Sendable {
  private let engine: Engine
  private let folder: String

  /// Whether this build can mount: it can if libfuse's headers were present.
  public static var isAvailable: Bool { FuseSession.isAvailable }

  /// A mount of a store on an empty folder.
  ///
  /// - Throws: `invalidArgument` for a folder that is missing, is not empty, or lies in the store's own. Also if this
  ///   build or the machine has no FUSE, or only root can mount.
  public init(_ store: BlobStore, at folder: some PathConvertible) throws(BlobStorageError) {
    engine = store.engine
    let text = try folder.pathText()
    try Self.checkMachine()
    self.folder = try Self.checked(text, storePath: engine.folder.path.string)
  }

  /// Mounts the store, and unmounts it when the caller's task is cancelled.
  ///
  /// - Parameters:
  ///   - whenMounted: called with the folder's path, once the files can be read.
  ///   - report: receives a sentence when a program's request fails, on any thread; for each open file, only the first.
  /// - Returns: when another program has unmounted the folder.
  /// - Throws: `cancelled` after the task was cancelled and the folder unmounted; `io` if mounting fails.
  /// - Durability: changes nothing in the store.
  /// - Complexity: memory for files and folders that the system knows or programs have open, and for the entries of the
  ///   last four states in use. Each operation of a program takes a lookup in the catalog.
  public func run(
    whenMounted: (_ folder: String) -> Void = { _ in },
    report: @escaping @Sendable (_ sentence: String) -> Void = { _ in }
  ) async throws(BlobStorageError) {
    let reads = try CacheReads(engine)
    defer { reads?.write() }
    let service = MountService(
      engine,
      trees: [
        ("current", KeyTree(CurrentKeys(engine, reads), nameSeconds: 1)), ("states", StatesTree(engine)),
        ("versions", VersionsTree(engine, reads)),
      ], reads, report: report)
    let session = try FuseSession(service, at: folder, source: engine.information.path)
    let result: Result<Void, BlobStorageError> = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        Thread.start(named: "blob-mount") {
          let result = Result { () throws(BlobStorageError) in try session.run() }
          session.end()
          continuation.resume(returning: result)
        }
        whenMounted(folder)
      }
    } onCancel: {
      session.stop()
    }
    if Task.isCancelled { throw BlobStorageError(.cancelled, "The mount was cancelled.") }
    try result.get()
  }

  private static func checkMachine() throws(BlobStorageError) {
    guard isAvailable else {
      throw BlobStorageError(
        .invalidArgument, "This build has no FUSE: install libfuse3-dev (Debian, Ubuntu) and build again.")
    }
    guard FileManager.default.fileExists(atPath: "/dev/fuse") else {
      throw BlobStorageError(
        .invalidArgument,
        "This machine has no /dev/fuse: load the kernel's module with `modprobe fuse`, or start the container with"
          + " `--device /dev/fuse --cap-add SYS_ADMIN`.",
        path: "/dev/fuse")
    }
    guard geteuid() != 0 else { return }
    let folders =
      (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":") + ["/usr/bin", "/bin"]
    guard folders.contains(where: { FileManager.default.isExecutableFile(atPath: "\($0)/fusermount3") })
    else {
      throw BlobStorageError(
        .invalidArgument,
        "Only root can mount without fusermount3: install the package fuse3 (Debian, Ubuntu).")
    }
  }

  /// Checks a folder to mount on, and returns its absolute path.
  private static func checked(_ folder: String, storePath: String) throws(BlobStorageError) -> String {
    func refusal(_ message: String) -> BlobStorageError {
      BlobStorageError(.invalidArgument, message, path: folder)
    }
    let status: FileStatus?
    let names: [String]
    do throws(BlobStorageError) {
      status = try SystemFiles().status(of: FilePath(folder))
      names = status?.kind == .directory ? try SystemFiles().list(FilePath(folder)) : []
    } catch {
      guard error.errno == ENOTCONN else { throw error }
      throw refusal(
        "\(folder) is a mount whose process has ended: unmount it with `fusermount3 -u` or `umount` first.")
    }
    guard !folder.isEmpty, let status else {
      throw refusal("There is no folder \(folder): create it, and mount again.")
    }
    guard status.kind == .directory else {
      throw refusal("\(folder) is not a folder: give an empty folder to mount on.")
    }
    let path = URL(fileURLWithPath: folder).resolvingSymlinksInPath().path
    let store = URL(fileURLWithPath: storePath).resolvingSymlinksInPath().path
    guard path != store, !path.utf8.starts(with: (store + "/").utf8) else {
      throw refusal("\(folder) is the store's own folder, or in it: give an empty folder elsewhere.")
    }
    guard names.isEmpty else {
      throw refusal("\(folder) is not empty, and a mount would hide what is in it: give an empty folder.")
    }
    return path
  }
}

import CBlobKernels
import SystemPackage

/// The system's file system.
///
/// With an anchor, each change first makes sure that the anchor's path still names its folder, and so does each failure:
/// what is missing may have been deleted with the folder.
package struct SystemFiles: FileSystem {
  package let anchor: FolderAnchor?

  package init() { anchor = nil }
  private init(_ anchor: FolderAnchor) { self.anchor = anchor }

  package var canBeAnchored: Bool { true }
  package func anchored(by anchor: FolderAnchor) -> any FileSystem { Self(anchor) }

  package func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    let path = try path.absolute()
    let descriptor = try openDescriptor(path, intent.options, "open", changes: intent != .read)
    let file = SystemFile(owning: descriptor, path: path)
    switch try file.status().kind {
    case .regular: return file
    case .directory: throw .systemCall("open", path: path, errno: Errno.isDirectory.rawValue)
    case .symbolicLink, .other: throw .systemCall("open", path: path, errno: Errno.invalidArgument.rawValue)
    }
  }

  package func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? {
    var raw = bs_status()
    do throws(BlobStorageError) {
      try call("stat", path, changes: false) { bs_status_at($0, $1, &raw) }
      return FileStatus(raw)
    } catch {
      guard error.isMissingName else { throw error }
      return nil
    }
  }

  package func list(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try names(in: directory, onlyFiles: false)
  }

  package func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try names(in: directory, onlyFiles: true)
  }

  private func names(in directory: FilePath, onlyFiles: Bool) throws(BlobStorageError) -> [String] {
    let descriptor = try openDescriptor(directory, Int32(BS_OPEN_DIRECTORY), "list", changes: false)
    return try readNames(owning: descriptor, onlyFiles: onlyFiles, directory).map {
      String(decoding: $0, as: UTF8.self)
    }
  }

  package func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    var byteCount: Int64 = 0
    // By its path: what another file system has is of no harm.
    try call("measure the file system of", directory, changes: false) { _, _ in
      directory.withPlatformString { bs_available_at($0, &byteCount) }
    }
    return byteCount
  }

  package func createDirectory(_ path: FilePath) throws(BlobStorageError) {
    try call("create the folder", path) { bs_create_directory_at($0, $1) }
  }

  package func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) {
    try call("rename to \(to.string) the file", from) { source, from in
      at(to) { bs_rename_at(source, from, $0, $1) }
    }
  }

  package func remove(_ path: FilePath) throws(BlobStorageError) {
    try call("remove", path) { bs_remove_at($0, $1) }
  }

  package func removeDirectory(_ path: FilePath) throws(BlobStorageError) {
    try call("remove the folder", path) { bs_remove_directory_at($0, $1) }
  }

  package func syncDirectory(_ path: FilePath) throws(BlobStorageError) {
    // Without opening it: an error of opening must not look like a failed sync.
    if let outcome = path.withPlatformString({ text in anchor?.synchronizeHeld(text) }) {
      if outcome == -Int(Errno.badFileDescriptor.rawValue) { throw .closedFile(path) }
      if outcome < 0 { throw .systemCall("sync the folder", path: path, errno: Int32(-outcome)) }
      return
    }
    let descriptor = try openDescriptor(path, Int32(BS_OPEN_DIRECTORY), "sync the folder", changes: false)
    defer { closeDescriptor(descriptor) }
    _ = try systemCall("sync the folder", path) { bs_sync_all(descriptor) }
  }

  package func mountIdentity(of path: FilePath) -> String {
    var text = [CChar](repeating: 0, count: 64)
    let count = uninterrupted {
      path.withPlatformString { path in
        text.withUnsafeMutableBufferPointer { Int(bs_mount_identity(path, $0.baseAddress, $0.count)) }
      }
    }
    return count > 0 ? String(decoding: text[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self) : ""
  }

  package func resolved(_ path: FilePath) -> FilePath {
    var (folder, missing) = (path, [FilePath.Component]())
    var text = [CChar](repeating: 0, count: 4_096)
    while true {
      let count = uninterrupted {
        folder.withPlatformString { folder in
          text.withUnsafeMutableBufferPointer { Int(bs_real_path(folder, $0.baseAddress, $0.count)) }
        }
      }
      if count >= 0 {
        return FilePath(platformString: Array(text[..<count]) + [0]).appending(missing.reversed())
      }
      // The call that needs the path then reports the error.
      guard count == -Int(Errno.noSuchFileOrDirectory.rawValue), let last = folder.lastComponent,
        last.kind == .regular
      else { return path }
      missing.append(last)
      folder.removeLastComponent()
    }
  }

  package func shareOwner(of path: FilePath) {
    // If the owner cannot be changed, the file stays root's.
    _ = at(path) { bs_share_owner_at($0, $1) }
  }

  private func openDescriptor(
    _ path: FilePath, _ options: Int32, _ attempt: String, changes: Bool
  ) throws(BlobStorageError) -> Int32 {
    try Int32(call(attempt, path, changes: changes) { bs_open_at($0, $1, options) })
  }

  /// - Parameter body: makes a system call for a path relative to a folder's descriptor.
  @discardableResult
  private func call(
    _ attempt: @autoclosure () -> String, _ path: FilePath, changes: Bool = true,
    _ body: (Int32, UnsafePointer<CChar>) -> Int
  ) throws(BlobStorageError) -> Int {
    if let anchor { if changes { try anchor.check() } else { try anchor.checkNotEnded() } }
    let outcome = uninterrupted { at(path, body) }
    if outcome >= 0 { return outcome }
    if let anchor {
      if outcome == -Int(Errno.badFileDescriptor.rawValue) { throw .closedFile(path) }
      try anchor.look()
    }
    throw .systemCall(attempt(), path: path, errno: Int32(-outcome))
  }

  private func at(_ path: FilePath, _ body: (Int32, UnsafePointer<CChar>) -> Int) -> Int {
    path.withPlatformString { text in
      anchor.map { $0.resolve(text, body) } ?? body(bs_working_directory(), text)
    }
  }
}

extension OpenIntent {
  fileprivate var options: Int32 {
    // Non-blocking, because opening a named pipe would wait for a writer; regular files ignore it.
    let base = Int32(BS_OPEN_NONBLOCK)
    let write = Int32(BS_OPEN_WRITE)
    let create = Int32(BS_OPEN_CREATE | BS_OPEN_SHARE_OWNER)
    return switch self {
    case .read: base
    case .readWrite: base | write
    case .create: base | write | create | Int32(BS_OPEN_EXCLUSIVE)
    case .openOrCreate: base | write | create
    case .append: base | write | create | Int32(BS_OPEN_APPEND)
    }
  }
}

/// Lists the names in an open folder in byte order, without `.` and `..`, or only those of regular files. Closes the
/// descriptor.
package func readNames(
  owning descriptor: Int32, onlyFiles: Bool = false, _ path: @autoclosure () -> FilePath
) throws(BlobStorageError) -> [[UInt8]] {
  var stream: UnsafeMutableRawPointer?
  _ = try systemCall("list", path()) { bs_directory_open(descriptor, &stream) }
  defer { bs_directory_close(stream) }
  var names: [[UInt8]] = []
  var name: UnsafePointer<CChar>?
  while try systemCall("list", path(), { bs_directory_next(stream, onlyFiles ? 1 : 0, &name) }) == 1, let name
  {
    names.append(Array(UnsafeRawBufferPointer(start: name, count: Int(bs_length(name)))))
  }
  names.sort { $0.lexicographicallyPrecedes($1) }
  return names
}

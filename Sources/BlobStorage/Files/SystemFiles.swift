import CBlobKernels
import SystemPackage

/// The system's file system.
package struct SystemFiles: FileSystem {
  package init() {}

  package func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    let path = try path.absolute()
    let descriptor = try openDescriptor(path, intent.options, "open")
    let file = SystemFile(owning: descriptor, path: path)
    switch try file.status().kind {
    case .regular: return file
    case .directory: throw .systemCall("open", path: path, errno: Errno.isDirectory.rawValue)
    case .symbolicLink, .other: throw .systemCall("open", path: path, errno: Errno.invalidArgument.rawValue)
    }
  }

  package func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? {
    var raw = bs_status()
    let outcome = uninterrupted {
      path.withPlatformString { bs_status_at(bs_working_directory(), $0, &raw) }
    }
    if outcome == -Int(Errno.noSuchFileOrDirectory.rawValue) { return nil }
    if outcome < 0 { throw .systemCall("stat", path: path, errno: Int32(-outcome)) }
    return FileStatus(raw)
  }

  package func list(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try names(in: directory, onlyFiles: false)
  }

  package func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try names(in: directory, onlyFiles: true)
  }

  private func names(in directory: FilePath, onlyFiles: Bool) throws(BlobStorageError) -> [String] {
    let descriptor = try openDescriptor(directory, Int32(BS_OPEN_DIRECTORY), "list")
    return try readNames(owning: descriptor, onlyFiles: onlyFiles, directory).map {
      String(decoding: $0, as: UTF8.self)
    }
  }

  package func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    var byteCount: Int64 = 0
    try call("measure the file system of", directory) { bs_available_at($0, &byteCount) }
    return byteCount
  }

  package func createDirectory(_ path: FilePath) throws(BlobStorageError) {
    try call("create the folder", path) { bs_create_directory_at(bs_working_directory(), $0) }
  }

  package func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) {
    try call("rename to \(to.string) the file", from) { from in
      to.withPlatformString { bs_rename_at(bs_working_directory(), from, bs_working_directory(), $0) }
    }
  }

  package func remove(_ path: FilePath) throws(BlobStorageError) {
    try call("remove", path) { bs_remove_at(bs_working_directory(), $0) }
  }

  package func removeDirectory(_ path: FilePath) throws(BlobStorageError) {
    try call("remove the folder", path) { bs_remove_directory_at(bs_working_directory(), $0) }
  }

  package func syncDirectory(_ path: FilePath) throws(BlobStorageError) {
    let descriptor = try openDescriptor(path, Int32(BS_OPEN_DIRECTORY), "sync the folder")
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
    _ = path.withPlatformString { bs_share_owner_at(bs_working_directory(), $0) }
  }

  private func openDescriptor(
    _ path: FilePath, _ options: Int32, _ attempt: String
  ) throws(BlobStorageError) -> Int32 {
    try Int32(call(attempt, path) { bs_open_at(bs_working_directory(), $0, options) })
  }

  @discardableResult
  private func call(
    _ attempt: @autoclosure () -> String, _ path: FilePath, _ body: (UnsafePointer<CChar>) -> Int
  ) throws(BlobStorageError) -> Int {
    try systemCall(attempt(), path) { path.withPlatformString(body) }
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

import BlobStorage
import CBlobKernels
import Synchronization
import SystemPackage

/// A read-only folder of this user that an export has made writable.
///
/// A mark file in it records its mode. If the process is killed, the next export that enters the folder finds the mark
/// and restores the mode.
struct ReadOnlyFolder: Sendable {
  private static let markBeginning = ".blobstorage-mode-"
  private static let markEnd = ".partial"
  /// The permissions that writing into a folder needs.
  static let writing: UInt16 = 0o300

  /// Relative to the folder of the export.
  var path: [UInt8]
  var permissions: UInt16

  var mark: [CChar] {
    [CChar](terminating: (Self.markBeginning + String(permissions, radix: 8) + Self.markEnd).utf8)
  }

  /// The mode that the name of a mark file records; nil for other names.
  static func permissions(inMark name: [UInt8]) -> UInt16? {
    guard name.starts(with: markBeginning.utf8), name.suffix(markEnd.utf8.count).elementsEqual(markEnd.utf8)
    else { return nil }
    let digits = name.dropFirst(markBeginning.utf8.count).dropLast(markEnd.utf8.count)
    return UInt16(String(decoding: digits, as: UTF8.self), radix: 8).flatMap { $0 <= 0o7777 ? $0 : nil }
  }
}

extension OutputFolder {
  /// Runs `body`, which creates an entry in a folder. Makes a read-only folder writable and tries again.
  ///
  /// - Parameter bytes: the path of the new entry.
  func retrying<T>(
    in folder: OwnedDescriptor, _ bytes: some Collection<UInt8>, _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    do throws(BlobStorageError) { return try body() } catch {
      let path = Array(bytes)
      let above = path[..<(path.lastIndex(of: UInt8(ascii: "/")) ?? 0)]
      guard error.errno == Errno.permissionDenied.rawValue, try makeWritable(folder, Array(above)) else {
        throw error
      }
    }
    return try body()
  }

  /// Makes a read-only folder of this user writable. True if another attempt can succeed.
  private func makeWritable(_ folder: OwnedDescriptor, _ path: [UInt8]) throws(BlobStorageError) -> Bool {
    guard rules.entersReadOnly else { return false }
    let status = try folder.status(self.path.appending(bytes: path))
    // Another thread may have done it.
    if status.permissions & ReadOnlyFolder.writing == ReadOnlyFolder.writing { return true }
    let known = ReadOnlyFolder(path: path, permissions: status.permissions)
    let writable = UInt32(status.permissions | ReadOnlyFolder.writing)
    guard uninterrupted({ bs_set_permissions(folder.number, writable) }) >= 0 else { return false }
    readOnlyFolders.withLock { if $0[status.identity] == nil { $0[status.identity] = known } }
    let options = Int32(BS_OPEN_WRITE | BS_OPEN_CREATE)
    _ = try OwnedDescriptor.open(
      folder.number, known.mark, self.path.appending(bytes: path), options, "write into")
    return true
  }

  /// Forgets that a folder was read-only, because the caller sets its mode.
  func settle(_ folder: OwnedDescriptor, _ path: @autoclosure () -> FilePath) throws(BlobStorageError) {
    if readOnlyFolders.withLock({ $0.isEmpty }) { return }
    let identity = try folder.status(path()).identity
    guard let known = readOnlyFolders.withLock({ $0.removeValue(forKey: identity) }) else { return }
    _ = bs_remove_at(folder.number, known.mark)
  }

  /// Restores the modes of folders that were read-only.
  func restoreModes() {
    let folders = readOnlyFolders.withLock { folders in
      defer { folders = [:] }
      return folders
    }
    // Children first: the modes of their parents may deny access afterwards.
    for (identity, known) in folders.sorted(by: { $0.value.path.count > $1.value.path.count }) {
      do throws(BlobStorageError) {
        var trail = FolderTrail()
        let folder = try trail.folder(of: known.path + Array("/x".utf8), below: descriptor) {
          (above, name, bytes) throws(BlobStorageError) in
          try .open(
            above.number, name, path.appending(bytes: bytes), Int32(BS_OPEN_DIRECTORY), "enter the folder")
        }
        guard try folder.status(path).identity == identity else { continue }
        _ = bs_remove_at(folder.number, known.mark)
        _ = uninterrupted { bs_set_permissions(folder.number, UInt32(known.permissions)) }
      } catch {
        // It was moved away meanwhile.
        continue
      }
    }
  }
}

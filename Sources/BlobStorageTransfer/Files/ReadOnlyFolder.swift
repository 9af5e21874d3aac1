import BlobStorage
import CBlobKernels
import Synchronization
import SystemPackage

/// A folder of this user that was read-only, and that an export writes into.
///
/// Meanwhile a mark in it says what its mode was. If the process is killed, the next export that enters the folder finds
/// the mark and restores the mode.
struct ReadOnlyFolder: Sendable {
  private static let markBeginning = ".blobstorage-mode-"
  private static let markEnd = ".partial"
  /// What writing into a folder needs.
  static let writing: UInt16 = 0o300

  /// From the folder of the export on.
  var path: [UInt8]
  var permissions: UInt16

  var mark: [CChar] {
    [CChar](terminating: (Self.markBeginning + String(permissions, radix: 8) + Self.markEnd).utf8)
  }

  /// What a name of a file says; nil if that is no mark.
  static func permissions(inMark name: [UInt8]) -> UInt16? {
    guard name.starts(with: markBeginning.utf8), name.suffix(markEnd.utf8.count).elementsEqual(markEnd.utf8)
    else { return nil }
    let digits = name.dropFirst(markBeginning.utf8.count).dropLast(markEnd.utf8.count)
    return UInt16(String(decoding: digits, as: UTF8.self), radix: 8).flatMap { $0 <= 0o7777 ? $0 : nil }
  }
}

extension OutputFolder {
  /// Runs `body`, which makes something in a folder, and once more if the folder was read-only.
  ///
  /// - Parameter bytes: the path of what is made.
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

  /// Whether a folder is writable now that was not. Only its owner can make it so.
  private func makeWritable(_ folder: OwnedDescriptor, _ path: [UInt8]) throws(BlobStorageError) -> Bool {
    guard rules.entersReadOnly else { return false }
    let status = try folder.status(self.path.appending(bytes: path))
    let isKnown = readOnlyFolders.withLock { $0[status.identity] != nil }
    // Another thread may have done it.
    if status.permissions & ReadOnlyFolder.writing == ReadOnlyFolder.writing { return isKnown }
    let known = ReadOnlyFolder(path: path, permissions: status.permissions)
    let writable = UInt32(status.permissions | ReadOnlyFolder.writing)
    guard uninterrupted({ bs_set_permissions(folder.number, writable) }) >= 0 else { return false }
    readOnlyFolders.withLock { if $0[status.identity] == nil { $0[status.identity] = known } }
    let options = Int32(BS_OPEN_WRITE | BS_OPEN_CREATE)
    _ = try OwnedDescriptor.open(
      folder.number, known.mark, self.path.appending(bytes: path), options, "write into")
    return true
  }

  /// Forgets that a folder was read-only: its mode is set otherwise.
  func settle(_ folder: OwnedDescriptor, _ path: @autoclosure () -> FilePath) throws(BlobStorageError) {
    if readOnlyFolders.withLock({ $0.isEmpty }) { return }
    let identity = try folder.status(path()).identity
    guard let known = readOnlyFolders.withLock({ $0.removeValue(forKey: identity) }) else { return }
    _ = bs_remove_at(folder.number, known.mark)
  }

  /// Makes folders read-only again that were.
  func restoreModes() {
    let folders = readOnlyFolders.withLock { folders in
      defer { folders = [:] }
      return folders
    }
    // Those below first: the modes of those above may not let this process through.
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

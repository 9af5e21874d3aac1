import BlobStorage
import CBlobKernels
import SystemPackage

/// Writes links and folders.
extension OutputFolder {
  /// Creates a symbolic link, all at once or not.
  ///
  /// - Returns: false if some attributes could not be set.
  func createLink(
    to target: [UInt8], at bytes: [UInt8], through trail: inout FolderTrail, overwriting: Bool,
    _ attributes: RestoredAttributes
  ) throws(BlobStorageError) -> Bool {
    try withTemporaryName(at: bytes, through: &trail, overwriting: overwriting) {
      (directory, temporaryName) throws(BlobStorageError) in
      _ = try systemCall("create the link", path.appending(bytes: bytes)) {
        bs_create_link_at([CChar](terminating: target), directory, temporaryName)
      }
      return try attributes.apply(toLink: temporaryName, in: directory, path.appending(bytes: bytes))
    }
  }

  /// Creates another name for a file that was written.
  func createName(
    _ bytes: [UInt8], of source: [UInt8], overwriting: Bool
  ) throws(BlobStorageError) {
    var trail = FolderTrail()
    let folder = try folder(of: source, through: &trail)
    try withTemporaryName(at: bytes, through: &trail, overwriting: overwriting) {
      (directory, temporaryName) throws(BlobStorageError) in
      _ = try systemCall("link", path.appending(bytes: bytes)) {
        bs_link_at(folder.number, FolderTrail.name(in: source), directory, temporaryName)
      }
    }
  }

  /// Gives a folder its attributes; creates it if it is missing.
  ///
  /// - Parameter bytes: its path; empty for this folder itself.
  /// - Returns: false if some could not be set.
  func setAttributes(
    _ attributes: RestoredAttributes, ofFolder bytes: [UInt8], through trail: inout FolderTrail
  ) throws(BlobStorageError) -> Bool {
    var folder = descriptor
    if !bytes.isEmpty { folder = try self.folder(of: bytes + Array("/x".utf8), through: &trail) }
    try settle(folder, path.appending(bytes: bytes))
    return try attributes.apply(to: folder.number, path.appending(bytes: bytes))
  }

  /// Calls `body` with a temporary name, and renames what it has made there.
  private func withTemporaryName<T>(
    at bytes: [UInt8], through trail: inout FolderTrail, overwriting: Bool,
    _ body: (_ directory: Int32, _ temporaryName: [CChar]) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    guard FolderTrail.leadsDown(bytes) else { throw Self.escapes(path.appending(bytes: bytes)) }
    let folder = try folder(of: bytes, through: &trail)
    let directory = folder.number
    let (name, temporaryName) = (FolderTrail.name(in: bytes), nextTemporaryName())
    do throws(BlobStorageError) {
      let result = try retrying(in: folder, bytes) { () throws(BlobStorageError) in
        try body(directory, temporaryName)
      }
      try rename(
        temporaryName, to: name, in: directory, overwriting: overwriting, path.appending(bytes: bytes))
      // Renaming one name of a file to another of the same file leaves both.
      _ = bs_remove_at(directory, temporaryName)
      return result
    } catch {
      _ = bs_remove_at(directory, temporaryName)
      throw error
    }
  }
}

import BlobStorage
import CBlobKernels
import Synchronization
import SystemPackage

/// A folder of the user's below which files are written, and never outside, whatever symbolic links stand in it.
package final class OutputFolder: Sendable {
  package let path: FilePath
  let descriptor: OwnedDescriptor
  private let excluded: FileIdentity?
  private static let temporaryBeginning = ".blobstorage-"
  private static let temporaryEnd = ".partial"
  private let temporaryPrefix = temporaryBeginning + "\(String(randomUInt64(), radix: 36))-"
  /// Folders in which files of processes that died were looked for.
  private let cleaned = Mutex<Set<FileIdentity>>([])
  private let temporaryCount = Atomic<UInt64>(0)
  /// Told by debug builds of what is done for a file, in that order: no file shows that.
  private let observer: (@Sendable (OutputFile.Step) -> Void)?

  /// Opens an existing folder; it may itself be reached through a symbolic link, as the user's own choice.
  ///
  /// - Parameter excluded: a folder below it that nothing is written into.
  package init(
    _ path: FilePath, excluding excluded: FileIdentity? = nil,
    observer: (@Sendable (OutputFile.Step) -> Void)? = nil
  ) throws(BlobStorageError) {
    let path = try path.absolute()
    self.excluded = excluded
    self.observer = observer
    let options = Int32(BS_OPEN_DIRECTORY | BS_OPEN_FOLLOW)
    self.path = path
    descriptor = try .open(bs_working_directory(), path, path, options, "open the folder")
    try removePartial(in: descriptor)
  }

  /// The folder that holds a file; creates what is missing on the way (0700).
  ///
  /// Every step is taken relative to the folder before it and refuses a symbolic link.
  func folder(
    of relativePath: [UInt8], through trail: inout FolderTrail
  ) throws(BlobStorageError) -> OwnedDescriptor {
    try trail.folder(of: relativePath, below: descriptor) { (above, name, bytes) throws(BlobStorageError) in
      var path: FilePath { self.path.appending(bytes: bytes) }
      let created = uninterrupted { bs_create_directory_at(above.number, name) }
      if created < 0 && created != -Int(Errno.fileExists.rawValue) {
        throw .systemCall("create the folder", path: path, errno: Int32(-created))
      }
      let folder = try OwnedDescriptor.open(
        above.number, name, path, Int32(BS_OPEN_DIRECTORY), "enter the folder")
      // What was created just now is empty.
      if created < 0 { try removePartial(in: folder) }
      try Self.check(folder, path, isNot: excluded)
      return folder
    }
  }

  /// Refuses the folder that nothing is written into.
  static func check(
    _ folder: OwnedDescriptor, _ path: @autoclosure () -> FilePath, isNot excluded: FileIdentity?
  ) throws(BlobStorageError) {
    guard let excluded, try folder.status(path()).identity == excluded else { return }
    throw BlobStorageError(
      .invalidArgument, "\(path().string) is the store's own folder: nothing is written into it",
      path: path().string)
  }

  /// A name for a file that is not whole yet. Not made from its own name, which may be as long as a name can be.
  func nextTemporaryName() -> [CChar] {
    let number = temporaryCount.wrappingAdd(1, ordering: .relaxed).newValue
    return [CChar](terminating: "\(temporaryPrefix)\(number)\(Self.temporaryEnd)".utf8)
  }

  /// Removes what exports have left that were killed. One that is alive has locked its files.
  private func removePartial(in folder: OwnedDescriptor) throws(BlobStorageError) {
    let identity = try folder.status(path).identity
    guard cleaned.withLock({ $0.insert(identity).inserted }) else { return }
    let duplicate = Int32(try systemCall("list", path) { bs_duplicate(folder.number) })
    for name in try readNames(owning: duplicate, path)
    where !name.starts(with: temporaryPrefix.utf8) && name.starts(with: Self.temporaryBeginning.utf8)
      && name.suffix(Self.temporaryEnd.utf8.count).elementsEqual(Self.temporaryEnd.utf8)
    {
      let text = [CChar](terminating: name)
      let opened = uninterrupted { bs_open_at(folder.number, text, 0) }
      if opened >= 0 {
        let file = OwnedDescriptor(owning: Int32(opened))
        guard uninterrupted({ bs_lock(file.number, 1, 0) }) == 1 else { continue }
        _ = bs_remove_at(folder.number, text)
      } else if opened == -Int(Errno.tooManySymbolicLinkLevels.rawValue) {
        _ = bs_remove_at(folder.number, text)
      }
    }
  }

  func tell(_ step: OutputFile.Step) {
    #if DEBUG || WEAKNESSES
      observer?(step)
    #endif
  }

  static func escapes(_ path: FilePath) -> BlobStorageError {
    BlobStorageError(
      .invalidArgument, "\(path.string) is not a path below the folder", path: path.string)
  }
}

import BlobStorage
import CBlobKernels
import Synchronization
import SystemPackage

/// Writes files below a folder of the user's, and never outside it, whatever symbolic links it holds.
package final class OutputFolder: Sendable {
  /// What an export may do to existing files and folders.
  struct Rules: Sendable {
    /// Whether it writes into this user's read-only folders, which are writable until ``restoreModes()``.
    var entersReadOnly = false
    /// Whether a folder may replace a file or link at that path, and a file or link an empty folder; nil for never.
    var replaces: (@Sendable (_ path: ArraySlice<UInt8>) -> Bool)?
    /// Paths of folders that get attributes in the end.
    var pathsWithAttributes: Set<[UInt8]> = []
    /// Whether new folders are marked: a later export that knows their attributes sets them.
    var marksNewFolders = false
  }

  package let path: FilePath
  let descriptor: OwnedDescriptor
  private let excluded: FileIdentity?
  /// The sticky bit marks a folder, open to its owner alone, that an export has created and not given its attributes.
  private static let markOfNew: UInt16 = 0o1000
  private static let temporaryBeginning = ".blobstorage-"
  private static let temporaryEnd = ".partial"
  private let temporaryPrefix = temporaryBeginning + "\(String(randomUInt64(), radix: 36))-"
  /// Folders that were searched for files of exports that died.
  private let cleaned = Mutex<Set<FileIdentity>>([])
  private let temporaryCount = Atomic<UInt64>(0)
  let rules: Rules
  /// Whether there was nothing in it, if it gets attributes.
  private let wasEmpty: Bool
  /// Folders that get attributes and that this export has created.
  private let newFolders = Mutex<Set<[UInt8]>>([])
  /// Folders that this export has made writable.
  let readOnlyFolders = Mutex<[FileIdentity: ReadOnlyFolder]>([:])
  /// Receives the steps of each file, in order, in debug builds: no file shows their order.
  private let observer: (@Sendable (OutputFile.Step) -> Void)?

  /// Opens an existing folder. Its own path may be a symbolic link, because the user chose it.
  ///
  /// - Parameter excluded: a folder below it into which nothing is written.
  package convenience init(
    _ path: FilePath, excluding excluded: FileIdentity? = nil,
    observer: (@Sendable (OutputFile.Step) -> Void)? = nil
  ) throws(BlobStorageError) {
    try self.init(path, excluding: excluded, Rules(), observer: observer)
  }

  /// - Parameter isNew: whether the caller has created the folder for this export.
  init(
    _ path: FilePath, excluding excluded: FileIdentity?, _ rules: Rules, isNew: Bool = false,
    observer: (@Sendable (OutputFile.Step) -> Void)? = nil
  ) throws(BlobStorageError) {
    self.rules = rules
    let path = try path.absolute()
    self.excluded = excluded
    self.observer = observer
    let options = Int32(BS_OPEN_DIRECTORY | BS_OPEN_FOLLOW)
    self.path = path
    let descriptor = try OwnedDescriptor.open(bs_working_directory(), path, path, options, "open the folder")
    self.descriptor = descriptor
    wasEmpty =
      rules.pathsWithAttributes.contains([]) ? try Self.names(in: descriptor, path).isEmpty : false
    if wasEmpty || isNew && rules.marksNewFolders { markAsNew() }
    try removePartial(in: descriptor, [])
  }

  /// The folder that contains a file. Creates missing folders (0700, or 1700 if they are marked).
  ///
  /// Takes every step relative to the parent folder, and refuses symbolic links.
  func folder(
    of relativePath: [UInt8], through trail: inout FolderTrail
  ) throws(BlobStorageError) -> OwnedDescriptor {
    try trail.folder(of: relativePath, below: descriptor) { (above, name, bytes) throws(BlobStorageError) in
      var path: FilePath { self.path.appending(bytes: bytes) }
      let isNew = try create(name, in: above, bytes)
      let folder: OwnedDescriptor
      do throws(BlobStorageError) {
        folder = try .open(above.number, name, path, Int32(BS_OPEN_DIRECTORY), "enter the folder")
      } catch {
        let errno = error.errno.map(Errno.init(rawValue:))
        guard errno == .notDirectory || errno == .tooManySymbolicLinkLevels else { throw error }
        guard rules.replaces?(bytes) == true else {
          let remedy =
            rules.replaces == nil
            ? "overwriting replaces it"
            : "another key of the export is written there, so export a state"
          throw BlobStorageError(
            .io, "\(path.string) is not a folder: \(remedy)", path: path.string, errno: error.errno)
        }
        // Removes a file or link, and never a folder.
        try retrying(in: above, bytes) { () throws(BlobStorageError) in
          _ = try systemCall("replace", path) { bs_remove_at(above.number, name) }
        }
        _ = try create(name, in: above, bytes)
        folder = try .open(above.number, name, path, Int32(BS_OPEN_DIRECTORY), "enter the folder")
      }
      // A new folder is empty.
      if !isNew { try removePartial(in: folder, bytes) }
      try Self.check(folder, path, isNot: excluded)
      return folder
    }
  }

  /// Creates a folder; false if the name is taken.
  private func create(
    _ name: [CChar], in above: OwnedDescriptor, _ bytes: ArraySlice<UInt8>
  ) throws(BlobStorageError) -> Bool {
    let isNew = try retrying(in: above, bytes) { () throws(BlobStorageError) -> Bool in
      let created = uninterrupted {
        rules.marksNewFolders
          ? bs_create_sticky_directory_at(above.number, name) : bs_create_directory_at(above.number, name)
      }
      if created < 0, created != -Int(Errno.fileExists.rawValue) {
        throw .systemCall("create the folder", path: path.appending(bytes: bytes), errno: Int32(-created))
      }
      return created >= 0
    }
    if isNew, rules.pathsWithAttributes.contains(Array(bytes)) {
      newFolders.withLock { _ = $0.insert(Array(bytes)) }
    }
    return isNew
  }

  /// Refuses the excluded folder.
  static func check(
    _ folder: OwnedDescriptor, _ path: @autoclosure () -> FilePath, isNot excluded: FileIdentity?
  ) throws(BlobStorageError) {
    guard let excluded, try folder.status(path()).identity == excluded else { return }
    throw BlobStorageError(
      .invalidArgument, "\(path().string) is the store's own folder: nothing is written into it",
      path: path().string)
  }

  /// A temporary file name. Does not contain the final name, which may already have the maximum length.
  func nextTemporaryName() -> [CChar] {
    let number = temporaryCount.wrappingAdd(1, ordering: .relaxed).newValue
    return [CChar](terminating: "\(temporaryPrefix)\(number)\(Self.temporaryEnd)".utf8)
  }

  /// Whether exports use such a name for files of their own, which the next export removes.
  static func isOwn(_ name: ArraySlice<UInt8>) -> Bool {
    name.starts(with: temporaryBeginning.utf8)
      && name.suffix(temporaryEnd.utf8.count).elementsEqual(temporaryEnd.utf8)
  }

  /// Removes files that killed exports left, and finds their marks. A live export has locked its files.
  private func removePartial(
    in folder: OwnedDescriptor, _ bytes: ArraySlice<UInt8>
  ) throws(BlobStorageError) {
    let identity = try folder.status(path).identity
    guard cleaned.withLock({ $0.insert(identity).inserted }) else { return }
    for name in try Self.names(in: folder, path)
    where !name.starts(with: temporaryPrefix.utf8) && Self.isOwn(name[...]) {
      if let permissions = ReadOnlyFolder.permissions(inMark: name) {
        readOnlyFolders.withLock {
          $0[identity] = ReadOnlyFolder(path: Array(bytes), permissions: permissions)
        }
        continue
      }
      let text = [CChar](terminating: name)
      // Opening a named pipe would wait for a writer.
      let opened = uninterrupted { bs_open_at(folder.number, text, Int32(BS_OPEN_NONBLOCK)) }
      if opened >= 0 {
        let file = OwnedDescriptor(owning: Int32(opened))
        guard uninterrupted({ bs_lock(file.number, 1, 0) }) == 1 else { continue }
        _ = bs_remove_at(folder.number, text)
      } else if opened == -Int(Errno.tooManySymbolicLinkLevels.rawValue) {
        _ = bs_remove_at(folder.number, text)
      }
    }
  }

  private static func names(
    in folder: OwnedDescriptor, _ path: FilePath
  ) throws(BlobStorageError) -> [[UInt8]] {
    try readNames(owning: Int32(try systemCall("list", path) { bs_duplicate(folder.number) }), path)
  }

  /// Gives what was made under a temporary name its own name.
  func rename(
    _ temporaryName: [CChar], to name: [CChar], in directory: Int32, overwriting: Bool,
    _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) {
    func renamed() -> Int {
      overwriting
        ? bs_rename_at(directory, temporaryName, directory, name)
        : bs_rename_without_replacing_at(directory, temporaryName, directory, name)
    }
    var outcome = uninterrupted(renamed)
    if outcome == -Int(Errno.isDirectory.rawValue), rules.replaces != nil {
      // Removes only an empty folder.
      let removed = uninterrupted { bs_remove_directory_at(directory, name) }
      if removed == -Int(Errno.directoryNotEmpty.rawValue) || removed == -Int(Errno.fileExists.rawValue) {
        throw Self.filledFolder(path())
      }
      if removed >= 0 { outcome = uninterrupted(renamed) }
    }
    if outcome < 0 { throw .systemCall("write", path: path(), errno: Int32(-outcome)) }
  }

  func tell(_ step: OutputFile.Step) {
    #if DEBUG || WEAKNESSES
      observer?(step)
    #endif
  }

  static func filledFolder(_ path: FilePath) -> BlobStorageError {
    BlobStorageError(
      .io, "\(path.string) is a folder that is not empty: move it away, and export again", path: path.string)
  }

  static func escapes(_ path: FilePath) -> BlobStorageError {
    BlobStorageError(
      .invalidArgument, "\(path.string) is not a path below the folder", path: path.string)
  }
}

/// Writes links and folders.
extension OutputFolder {
  /// Creates a symbolic link atomically.
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

  /// Creates a hard link to a file that was written.
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

  /// Gives a folder its attributes; creates it if it is missing. One that was there before any export stays as it is,
  /// unless files are replaced or it is this folder itself and was empty.
  ///
  /// - Parameter bytes: its path; empty for this folder itself.
  /// - Returns: false if some could not be set.
  func setAttributes(
    _ attributes: RestoredAttributes, ofFolder bytes: [UInt8], through trail: inout FolderTrail
  ) throws(BlobStorageError) -> Bool {
    var folder = descriptor
    if !bytes.isEmpty { folder = try self.folder(of: bytes + Array("/x".utf8), through: &trail) }
    guard try lacksAttributes(folder, bytes) else { return true }
    try settle(folder, path.appending(bytes: bytes))
    return try attributes.apply(to: folder.number, isFolder: true, path.appending(bytes: bytes))
  }

  /// Marks this folder, which is empty, as one that lacks its attributes, and closes it to others.
  private func markAsNew() {
    // Without the mark, an export that goes on leaves the folder as it is.
    _ = uninterrupted { bs_set_permissions(descriptor.number, UInt32(Self.markOfNew | 0o700)) }
  }

  /// Whether a folder gets attributes: an export has created it and has not finished it, or files are replaced.
  private func lacksAttributes(
    _ folder: OwnedDescriptor, _ bytes: [UInt8]
  ) throws(BlobStorageError) -> Bool {
    if rules.replaces != nil || newFolders.withLock({ $0.contains(bytes) }) { return true }
    if bytes.isEmpty, wasEmpty { return true }
    // Folders that users share have the bit, too, and let others in.
    return try folder.status(path.appending(bytes: bytes)).permissions & 0o1077 == Self.markOfNew
  }

  /// Calls `body` to create a file or link under a temporary name, then renames it.
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
      // Renaming between two names of one file leaves both.
      _ = bs_remove_at(directory, temporaryName)
      return result
    } catch {
      _ = bs_remove_at(directory, temporaryName)
      throw error
    }
  }
}

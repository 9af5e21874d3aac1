import BlobStorage
import SystemPackage

/// An item that an import finds below its paths.
enum ImportItem: Sendable {
  case source(ImportSource)
  case folder(ImportedFolder)
}

/// A folder below the paths, or the only path itself.
struct ImportedFolder: Sendable {
  /// The path that messages name.
  var path: String
  /// The prefix and the path; that of the root is the prefix, all others end in '/'.
  var key: String
  var mark: FileMark
}

/// Finds the files below the paths of an import, in their order, and reports what it skips.
struct ImportWalk: ~Copyable {
  /// A file or link that was named, with the key that it gets.
  private struct NamedFile: Hashable {
    var identity: FileIdentity
    var key: [UInt8]
  }

  private let options: ImportOptions
  /// What to leave out below the named folder, or of a list.
  private var excluded: IgnoreRules
  private var paths: ArraySlice<FilePath>
  /// The named folder that is being walked.
  private var root = FilePath()
  private var walker: DirectoryWalker?
  private let owners: OwnerNames?
  /// Whether there is only one path. If it is a folder, the import keeps its own attributes.
  private let hasOneRoot: Bool
  /// Named folders that the walk has begun: a second walk would store their files again.
  private var begun: Set<FileIdentity> = []
  /// Files and links that were named. Hard links of one file have keys of their own.
  private var named: Set<NamedFile> = []
  /// The keys of a list of files, and the names of its folders.
  private var listed: Set<[UInt8]> = []
  private var listedFolders: Set<[UInt8]> = []
  /// The part of all keys below the named folder that stands between the prefix and the path there.
  private var above: (text: String, isEscaped: Bool) = ("", false)
  /// Keys of which the walk cannot say that they are gone: these, and what is below them.
  private(set) var unseen = UnseenKeys()
  /// Named folders in which nothing was found.
  private(set) var emptyRoots: [String] = []
  private var isRootEmpty = true
  /// The store's own folder: what is in it changes while it is stored.
  private let store: FileIdentity?
  /// Ends a walk that only counts; nil for an import.
  private let isStopped: (@Sendable () -> Bool)?
  /// What was skipped since the last `removeSkipped()`.
  private(set) var skipped: [SkippedFile] = []

  /// - Parameter isStopped: ends a walk that only counts files and links.
  init(
    _ paths: [FilePath], _ options: ImportOptions, store: FileIdentity?,
    until isStopped: (@Sendable () -> Bool)? = nil
  ) {
    self.store = store
    self.isStopped = isStopped
    self.paths = paths[...]
    self.options = options
    hasOneRoot = paths.count == 1
    owners = options.ownerNames
    excluded = IgnoreRules(options.excluded)
  }

  /// The next file, link or folder; nil at the end.
  mutating func next() throws(BlobStorageError) -> ImportItem? {
    while true {
      if let item = nextBelowRoot() { return item }
      guard isStopped?() != true, let path = paths.popFirst() else { return nil }
      do throws(BlobStorageError) {
        if let item = try begin(path) { return item }
      } catch {
        // An error of one path does not concern the others.
        guard error.path != nil, error.errno != nil, error.code == .io || error.code == .permissionDenied
        else { throw error }
        skipNamed(path, error.code, error.message)
      }
    }
  }

  /// Returns what was skipped so far, and forgets it.
  mutating func removeSkipped() -> [SkippedFile] {
    defer { skipped = [] }
    return skipped
  }

  /// Begins with a named path: returns its file or root folder, or nil.
  private mutating func begin(_ path: FilePath) throws(BlobStorageError) -> ImportItem? {
    guard let status = try SystemFiles().status(of: path) else {
      skipNamed(path, .sourceFailed, "there is no such file")
      return nil
    }
    if let store, store.contains(path) {
      skipNamed(path, .notRegular, "it belongs to the store itself")
      return nil
    }
    if try Self.isInCatalog(path, status) {
      skipNamed(path, .notRegular, Self.catalogReason)
      return nil
    }
    if options.keepsPaths { return try listed(path, status) }
    switch status.kind {
    case .directory: return try walk(path)
    case .regular: return named(path, status).map { .source($0) }
    case .symbolicLink:
      // Follows a link to a folder, as a shell would, because the user named it.
      do throws(BlobStorageError) { return try walk(path) } catch {
        guard error.isOfNoFolder || error.isDenied && options.keepsAttributes else { throw error }
        if error.isDenied {
          skipNamed(
            path, error.code, "only the link is imported, because what lies behind it may not be read")
        }
        if options.keepsAttributes { return named(path, status).map { .source($0) } }
        skipNamed(path, .notRegular, "it is a symbolic link")
      }
    case .other: skipNamed(path, .notRegular, Self.otherKind)
    }
    return nil
  }

  /// Whether a named path is a store's catalog, or lies in one.
  private static func isInCatalog(_ path: FilePath, _ status: FileStatus) throws(BlobStorageError) -> Bool {
    let path = try path.absolute()
    if status.kind == .regular {
      return StoreFolder.isInCatalog(path.removingLastComponent(), files: SystemFiles())
    }
    return StoreFolder.isInCatalog(SystemFiles().resolved(path), files: SystemFiles())
  }

  private static let catalogReason = "it is the catalog of a store, which is made from the store's packs"
  private static let otherKind = "it is a device, a socket or a pipe"

  /// A file or link that was named, unless it was before.
  private mutating func named(_ path: FilePath, _ status: FileStatus) -> ImportSource? {
    guard let source = source(path, EscapedName.key(ofLastIn: path), status),
      named.insert(NamedFile(identity: status.identity, key: Array(source.key.utf8))).inserted
    else { return nil }
    return source
  }

  /// A file or link with the name that it has in its key.
  private mutating func source(
    _ path: FilePath, _ name: (text: String, isEscaped: Bool), _ status: FileStatus
  ) -> ImportSource? {
    let key = options.prefix.start + name.text
    guard key.utf8.count <= BlobLimits.maximumKeyByteCount else {
      skipTooLong(path.string)
      return nil
    }
    return ImportSource(
      folder: nil, relativePath: path.bytes, key: key, isNameEscaped: name.isEscaped, status: status)
  }

  /// A file or folder from a list. A folder is walked, unless the list has named a folder above it.
  private mutating func listed(_ path: FilePath, _ status: FileStatus) throws(BlobStorageError) -> ImportItem?
  {
    if status.kind == .other || status.kind == .symbolicLink && !options.keepsAttributes {
      skipNamed(path, .notRegular, status.kind == .other ? Self.otherKind : "it is a symbolic link")
      return nil
    }
    guard let name = options.listedName(of: path) else {
      skipNamed(path, .invalidArgument, "a key cannot begin with “..”")
      return nil
    }
    let isFolder = status.kind == .directory
    if excluded.excludesPath(name.text, isFolder: isFolder) {
      unseen.insert(options.prefix.start + name.text)
      return nil
    }
    let bytes = Array(name.text.utf8)
    let isBelow = bytes.indices.contains {
      bytes[$0] == UInt8(ascii: "/") && listedFolders.contains(Array(bytes[..<$0]))
    }
    if isBelow || listedFolders.contains(bytes) { return nil }
    if isFolder {
      listedFolders.insert(bytes)
      return try walk(path, above: (name.text + "/", name.isEscaped))
    }
    guard let source = source(path, name, status), listed.insert(Array(source.key.utf8)).inserted else {
      return nil
    }
    return .source(source)
  }

  /// - Parameter above: the folder's own name in keys, for one of a list.
  private mutating func walk(
    _ path: FilePath, above: (text: String, isEscaped: Bool)? = nil
  ) throws(BlobStorageError) -> ImportItem? {
    let found = try DirectoryWalker(root: path)
    // Each path of a list has keys of its own.
    guard above != nil || begun.insert(found.folder.identity).inserted else { return nil }
    root = path
    self.above = above ?? ("", false)
    isRootEmpty = true
    if above == nil { excluded = IgnoreRules(options.excluded, below: path) }
    let status = try found.folder.descriptor.status(path)
    walker = consume found
    guard above != nil || hasOneRoot else { return nil }
    return folder(
      path.string, options.prefix.start + self.above.text, status, isNameEscaped: self.above.isEscaped)
  }

  /// A folder that was entered, if its attributes are kept.
  private mutating func folder(
    _ path: String, _ key: String, _ status: FileStatus, isNameEscaped: Bool
  ) -> ImportItem? {
    guard options.keepsAttributes, isStopped == nil else { return nil }
    var attributes = FileAttributes(status, isNameEscaped: isNameEscaped, owners: owners)
    if let descriptor = walker?.entered {
      do throws(BlobStorageError) {
        attributes.extended = try ExtendedAttributes.file(descriptor.number).read(root)
      } catch {
        skip(path, error.code, error.message, isFailure: true)
      }
    }
    // Omits the inode, length and change time: by these alone, two states would differ.
    var status = status
    (status.inode, status.byteCount) = (0, 0)
    let mark = FileMark(status, readFrom: .distantPast, attributes)
    return .folder(ImportedFolder(path: path, key: key, mark: mark))
  }

  private mutating func nextBelowRoot() -> ImportItem? {
    while isStopped?() != true, let item = walker?.next() {
      var shown: String { root.string + "/" + String(decoding: item.pathBytes, as: UTF8.self) }
      let (name, isEscaped) = EscapedName.key(of: item.pathBytes)
      let (path, isNameEscaped) = (above.text + name, isEscaped || above.isEscaped)
      let key = options.prefix.start + path
      if excluded.excludes(path, isFolder: item.status?.kind == .directory) {
        if item.status?.kind == .directory, item.failure == nil { walker?.skipDescendants() }
        unseen.insert(key)
        continue
      }
      if let failure = item.failure {
        skip(shown, failure.code, failure.message, isFailure: true, key)
        continue
      }
      guard let status = item.status else { continue }
      if status.kind == .directory, status.identity == store {
        walker?.skipDescendants()
        skip(shown, .notRegular, "it is the store's own folder", isFailure: false, key)
        continue
      }
      if status.kind == .directory, item.pathBytes.ends(in: "catalog"),
        StoreFolder.isInCatalog(root.appending(bytes: item.pathBytes), files: SystemFiles())
      {
        walker?.skipDescendants()
        skip(shown, .notRegular, Self.catalogReason, isFailure: false, key)
        continue
      }
      // A folder's name in a state ends in '/'.
      guard key.utf8.count < BlobLimits.maximumKeyByteCount + (status.kind == .directory ? 0 : 1) else {
        if status.kind == .directory { walker?.skipDescendants() }
        skipTooLong(shown)
        continue
      }
      switch status.kind {
      case .directory:
        if !listedFolders.isEmpty, listedFolders.contains(Array(path.utf8)) {
          walker?.skipDescendants()
          continue
        }
        let found = folder(shown, key + "/", status, isNameEscaped: isNameEscaped)
        leaveOut(below: status, key)
        if let found { return found }
      case .other: skip(shown, .notRegular, Self.otherKind, isFailure: false, key)
      case .symbolicLink where !options.keepsAttributes:
        skip(shown, .notRegular, "it is a symbolic link", isFailure: false, key)
      case .regular, .symbolicLink:
        isRootEmpty = false
        if !listed.isEmpty, listed.contains(Array(key.utf8)) { continue }
        return .source(
          ImportSource(
            folder: walker?.folder, relativePath: item.pathBytes, key: key, isNameEscaped: isNameEscaped,
            status: status))
      }
    }
    if walker != nil, isRootEmpty { emptyRoots.append(root.string) }
    walker = nil
    return nil
  }

  /// Skips the contents of a folder on another file system, or of a tagged cache folder.
  private mutating func leaveOut(below status: FileStatus, _ key: String) {
    if options.staysOnFileSystem, let folder = walker?.folder, folder.identity.device != status.device {
      walker?.skipDescendants()
      unseen.insert(key)
    } else if options.excludesCaches, let folder = walker?.entered, CacheTag.isValid(in: folder.number) {
      walker?.skipDescendants(except: CacheTag.name)
      unseen.insert(key)
    }
  }

  private mutating func skipTooLong(_ path: String) {
    skip(
      path, .invalidArgument, "its key would be longer than \(BlobLimits.maximumKeyByteCount) bytes",
      isFailure: true)
  }

  /// Skips a path that was named, which is always a failure.
  private mutating func skipNamed(_ path: FilePath, _ code: BlobStorageError.Code, _ reason: String) {
    // Its keys are not known.
    unseen.hasAll = true
    skip(path.string, code, reason, isFailure: true)
  }

  /// - Parameter key: the key that it would have; nil if it can have none.
  private mutating func skip(
    _ path: String, _ code: BlobStorageError.Code, _ reason: String, isFailure: Bool, _ key: String? = nil
  ) {
    if isStopped != nil { return }
    if let key { unseen.insert(key) }
    skipped.append(SkippedFile(path: path, code: code, reason: reason, isFailure: isFailure))
  }
}

extension [UInt8] {
  /// Whether the last name of a path is that one.
  fileprivate func ends(in name: String) -> Bool {
    suffix(name.utf8.count).elementsEqual(name.utf8)
      && dropLast(name.utf8.count).last ?? UInt8(ascii: "/") == UInt8(ascii: "/")
  }
}

/// Keys that a walk has passed over, with all that is below them.
struct UnseenKeys {
  private var keys: Set<[UInt8]> = []
  /// Whether any key may be one of them.
  var hasAll = false

  mutating func insert(_ key: String) { keys.insert(Array(key.utf8)) }

  func contains(_ key: [UInt8]) -> Bool {
    if hasAll || keys.contains(key) { return true }
    if keys.isEmpty { return false }
    return key.indices.contains { key[$0] == UInt8(ascii: "/") && keys.contains(Array(key[..<$0])) }
  }
}

extension BlobStorageError {
  /// Whether a path that was to lead to a folder leads to something else, or to nothing.
  var isOfNoFolder: Bool {
    guard let errno = errno.map(Errno.init(rawValue:)) else { return false }
    return [.notDirectory, .noSuchFileOrDirectory, .tooManySymbolicLinkLevels, .fileNameTooLong].contains(
      errno)
  }

  /// Whether this user may not look at what a path leads to.
  var isDenied: Bool { errno == Errno.permissionDenied.rawValue }
}

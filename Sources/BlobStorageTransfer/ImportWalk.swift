import BlobStorage
import SystemPackage

/// Finds the files below the paths that an import names, in their order, and says what is left out.
struct ImportWalk: ~Copyable {
  private let options: ImportOptions
  private let excluded: [ShellPattern]
  private var paths: ArraySlice<String>
  /// The folder under way.
  private var root = FilePath()
  private var walker: DirectoryWalker?
  /// What was named and begun with: a second time it would be stored a second time.
  private var begun: Set<FileIdentity> = []
  /// The keys of a list of files.
  private var listed: Set<String> = []
  /// The store's own folder: what is in it changes while it is stored.
  private let store: FileIdentity?
  /// What was left out since it was last taken.
  private(set) var skipped: [SkippedFile] = []

  init(_ paths: [String], _ options: ImportOptions, store: FileIdentity?) {
    self.store = store
    self.paths = paths[...]
    self.options = options
    excluded = options.excluded.map { ShellPattern($0) }
  }

  /// The next file; nil at the end.
  mutating func next() throws(BlobStorageError) -> ImportSource? {
    while true {
      if let source = nextBelowRoot() { return source }
      guard let path = paths.popFirst() else { return nil }
      do throws(BlobStorageError) {
        if let source = try begin(FilePath(path)) { return source }
      } catch {
        // What is wrong with one path is not wrong with the others.
        guard error.path != nil, error.errno != nil, error.code == .io || error.code == .permissionDenied
        else { throw error }
        skip(path, error.code, error.message, isFailure: true)
      }
    }
  }

  /// What was left out so far, given away.
  mutating func removeSkipped() -> [SkippedFile] {
    defer { skipped = [] }
    return skipped
  }

  /// Begins with a path that was named: the file that it is, or nil.
  private mutating func begin(_ path: FilePath) throws(BlobStorageError) -> ImportSource? {
    guard let status = try SystemFiles().status(of: path) else {
      skip(path.string, .sourceFailed, "there is no such file", isFailure: true)
      return nil
    }
    if let store, store.contains(path) {
      skip(path.string, .notRegular, "it belongs to the store itself", isFailure: true)
      return nil
    }
    if options.keepsPaths { return listed(path, status) }
    switch status.kind {
    case .directory: try walk(path)
    case .regular:
      guard begun.insert(status.identity).inserted else { return nil }
      let key = options.prefix + (path.lastComponent?.string ?? "")
      guard key.utf8.count <= BlobLimits.maximumKeyByteCount else {
        skipTooLong(path.string)
        return nil
      }
      return ImportSource(folder: nil, relativePath: path.string, key: key, status: status)
    case .symbolicLink:
      // Named by the user, so followed, as a shell would.
      do throws(BlobStorageError) { try walk(path) } catch {
        skip(path.string, .notRegular, "it is a symbolic link", isFailure: false)
      }
    case .other: skip(path.string, .notRegular, "it is not a regular file", isFailure: false)
    }
    return nil
  }

  /// A file of a list.
  private mutating func listed(_ path: FilePath, _ status: FileStatus) -> ImportSource? {
    guard status.kind == .regular else {
      let kind = status.kind == .directory ? "it is a folder of a list of files" : "it is not a regular file"
      skip(path.string, .notRegular, kind, isFailure: false)
      return nil
    }
    guard let name = options.listedName(of: path) else {
      skip(path.string, .invalidArgument, "a key cannot begin with “..”", isFailure: true)
      return nil
    }
    if isExcluded(name, isFolder: false) { return nil }
    let key = options.prefix + name
    guard key.utf8.count <= BlobLimits.maximumKeyByteCount else {
      skipTooLong(path.string)
      return nil
    }
    guard listed.insert(key).inserted else { return nil }
    return ImportSource(folder: nil, relativePath: path.string, key: key, status: status)
  }

  private mutating func walk(_ path: FilePath) throws(BlobStorageError) {
    let found = try DirectoryWalker(root: path)
    guard begun.insert(found.folder.identity).inserted else { return }
    root = path
    walker = consume found
  }

  private mutating func nextBelowRoot() -> ImportSource? {
    while let item = walker?.next() {
      var shown: String { root.string + "/" + String(decoding: item.pathBytes, as: UTF8.self) }
      let path = item.path
      if let path, isExcluded(path, isFolder: item.status?.kind == .directory) {
        if item.status?.kind == .directory, item.failure == nil { walker?.skipDescendants() }
        continue
      }
      if let failure = item.failure {
        skip(shown, failure.code, failure.message, isFailure: true)
        continue
      }
      guard let status = item.status else { continue }
      if status.kind == .directory, status.identity == store {
        walker?.skipDescendants()
        skip(shown, .notRegular, "it is the store's own folder", isFailure: false)
        continue
      }
      switch status.kind {
      case .directory: continue
      case .symbolicLink: skip(shown, .notRegular, "it is a symbolic link", isFailure: false)
      case .other: skip(shown, .notRegular, "it is not a regular file", isFailure: false)
      case .regular:
        guard let path else {
          skip(shown, .invalidArgument, "its name is not UTF-8", isFailure: true)
          continue
        }
        let key = options.prefix.isEmpty ? path : options.prefix + path
        guard key.utf8.count <= BlobLimits.maximumKeyByteCount else {
          skipTooLong(shown)
          continue
        }
        return ImportSource(folder: walker?.folder, relativePath: path, key: key, status: status)
      }
    }
    walker = nil
    return nil
  }

  private mutating func skipTooLong(_ path: String) {
    skip(
      path, .invalidArgument, "its key would be longer than \(BlobLimits.maximumKeyByteCount) bytes",
      isFailure: true)
  }

  private func isExcluded(_ path: String, isFolder: Bool) -> Bool {
    excluded.contains { $0.matches(path: path, isFolder: isFolder) }
  }

  private mutating func skip(
    _ path: String, _ code: BlobStorageError.Code, _ reason: String, isFailure: Bool
  ) {
    skipped.append(SkippedFile(path: path, code: code, reason: reason, isFailure: isFailure))
  }
}

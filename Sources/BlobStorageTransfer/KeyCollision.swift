import BlobStorage
import SystemPackage

/// Two files that an import of several paths would store under the same key, so that only one of them would stay.
///
/// Examines only names that several paths share: a name in one folder alone cannot collide. Memory: the names in the
/// folders on the way down.
struct KeyCollision {
  var key: String
  var paths: [String]

  /// A folder, and what to leave out below the named folder that it is in.
  private struct Folder {
    var path: FilePath
    var excluded: IgnoreRules
  }

  private struct Found {
    var path: FilePath
    var status: FileStatus
    /// Nil for a file that was named.
    var excluded: IgnoreRules?
  }

  /// A collision of an import; nil if there is none.
  static func find(_ paths: [FilePath], _ options: ImportOptions) throws(BlobStorageError) -> KeyCollision? {
    if options.keepsPaths { return findListed(paths, options) }
    var begun: Set<FileIdentity> = []
    var folders: [Folder] = []
    var names: [(name: String, path: FilePath)] = []
    for path in paths {
      guard let status = statusOfNamed(path) else { continue }
      if status.kind == .directory {
        guard begun.insert(status.identity).inserted else { continue }
        folders.append(
          Folder(path: path.appending("."), excluded: IgnoreRules(options.excluded, below: path)))
      } else if status.kind == .regular || options.keepsAttributes && status.kind == .symbolicLink {
        // Hard links of one file may get keys of their own.
        names.append((EscapedName.key(ofLastIn: path).text, path))
      }
    }
    guard folders.count + names.count > 1 else { return nil }
    return try find(folders, names, below: "", keepsLinks: options.keepsAttributes).map { found in
      KeyCollision(key: options.prefix.start + found.key, paths: found.paths)
    }
  }

  /// The collision of a list of files: an absolute and a relative path may give the same key, or one may be in a folder
  /// of the other's key.
  private static func findListed(_ paths: [FilePath], _ options: ImportOptions) -> KeyCollision? {
    var absolute: [[UInt8]: FilePath] = [:]
    for path in paths where path.isAbsolute {
      for (name, path) in options.listedNames(of: path) { absolute[Array(name.utf8)] = path }
    }
    if absolute.isEmpty { return nil }
    let named = Set(paths.map { $0.lexicallyNormalized() })
    for path in paths where path.isRelative {
      for (name, path) in options.listedNames(of: path) {
        guard let other = absolute[Array(name.utf8)], let status = status(of: path),
          let otherStatus = self.status(of: other), status.identity != otherStatus.identity,
          named.isSuperset(of: [path, other])
            || named.contains(path) && status.kind == .directory
            || named.contains(other) && otherStatus.kind == .directory
        else { continue }
        return KeyCollision(key: options.prefix.start + name, paths: [other.string, path.string])
      }
    }
    return nil
  }

  /// - Parameters:
  ///   - named: files that were named, with their names in keys.
  ///   - relativePath: the part of the key that all have in common.
  private static func find(
    _ folders: [Folder], _ named: [(name: String, path: FilePath)], below relativePath: String,
    keepsLinks: Bool
  ) throws(BlobStorageError) -> KeyCollision? {
    try CancellationFlag.check()
    var names = named.map { (name: $0.name, path: $0.path, excluded: IgnoreRules?.none) }
    for folder in folders {
      for name in list(folder.path) {
        names.append((EscapedName.key(of: name).text, folder.path.appending(bytes: name), folder.excluded))
      }
    }
    // By bytes, as keys are compared.
    names.sort { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
    var start = 0
    while start < names.count {
      var end = start + 1
      while end < names.count, names[end].name.utf8.elementsEqual(names[start].name.utf8) { end += 1 }
      let same = names[start..<end]
      start = end
      guard same.count > 1, let name = same.first?.name else { continue }
      let path = relativePath + name
      // Several paths to one file or folder count once.
      var known: Set<FileIdentity> = []
      let found = same.compactMap { item -> Found? in
        guard let status = status(of: item.path), known.insert(status.identity).inserted else { return nil }
        let isFolder = status.kind == .directory
        if let excluded = item.excluded, excluded.excludes(path, isFolder: isFolder) { return nil }
        return Found(path: item.path, status: status, excluded: item.excluded)
      }
      let files = found.filter {
        $0.status.kind == .regular || keepsLinks && $0.status.kind == .symbolicLink
      }
      if files.count > 1 {
        return KeyCollision(key: path, paths: files.prefix(2).map { $0.path.lexicallyNormalized().string })
      }
      let below = found.compactMap { found in
        found.status.kind == .directory
          ? found.excluded.map { Folder(path: found.path, excluded: $0) } : nil
      }
      if below.count > 1, let collision = try find(below, [], below: path + "/", keepsLinks: keepsLinks) {
        return collision
      }
    }
    return nil
  }

  /// The status of a path that was named, for a link to a folder that of the folder. Nil if it cannot be read, which
  /// the walk reports.
  private static func statusOfNamed(_ path: FilePath) -> FileStatus? {
    do throws(BlobStorageError) {
      if let folder = try SystemFiles().status(of: path.appending(".")) { return folder }
    } catch {
      guard error.isOfNoFolder || error.isDenied else { return nil }
    }
    return status(of: path)
  }

  private static func status(of path: FilePath) -> FileStatus? {
    do throws(BlobStorageError) { return try SystemFiles().status(of: path) } catch { return nil }
  }

  private static func list(_ folder: FilePath) -> [[UInt8]] {
    do throws(BlobStorageError) { return try InputFolder(folder).names() } catch { return [] }
  }
}

extension ImportOptions {
  /// The path of a list and those of the folders above it, with their names in keys.
  func listedNames(of path: FilePath) -> [(name: String, path: FilePath)] {
    var names: [(name: String, path: FilePath)] = []
    var path = path.lexicallyNormalized()
    while let name = listedName(of: path)?.text {
      names.append((name, path))
      path.removeLastComponent()
    }
    return names
  }

  /// The key of a file of a list, without the prefix; nil for a path that leads up.
  func listedName(of path: FilePath) -> (text: String, isEscaped: Bool)? {
    var path = path.lexicallyNormalized()
    path.root = nil
    guard let first = path.components.first, first.kind == .regular else { return nil }
    return EscapedName.key(of: path.bytes)
  }
}

import BlobStorage
import SystemPackage

/// Two files that an import of several paths would store under the same key, so that only one of them would stay.
///
/// Examines only names that several paths share: a name in one folder alone cannot collide. Memory: the names in the
/// folders on the way down.
struct KeyCollision {
  var key: String
  var paths: [String]

  private struct Found {
    var path: FilePath
    var status: FileStatus
  }

  /// A collision of an import; nil if there is none.
  static func find(_ paths: [FilePath], _ options: ImportOptions) throws(BlobStorageError) -> KeyCollision? {
    if options.keepsPaths { return findListed(paths, options) }
    let excluded = options.excluded.map { ShellPattern($0) }
    var begun: Set<FileIdentity> = []
    var folders: [FilePath] = []
    var names: [(name: String, path: FilePath)] = []
    for path in paths {
      guard let status = statusOfNamed(path) else { continue }
      if status.kind == .directory {
        if begun.insert(status.identity).inserted { folders.append(path.appending(".")) }
      } else if status.kind == .regular || options.keepsAttributes && status.kind == .symbolicLink {
        // Hard links of one file may get keys of their own.
        names.append((EscapedName.key(ofLastIn: path).text, path))
      }
    }
    guard folders.count + names.count > 1 else { return nil }
    return try find(folders, names, below: "", excluded, keepsLinks: options.keepsAttributes).map { found in
      KeyCollision(key: options.prefix + found.key, paths: found.paths)
    }
  }

  /// The collision of a list of files: an absolute and a relative path may give the same key.
  private static func findListed(_ paths: [FilePath], _ options: ImportOptions) -> KeyCollision? {
    var absolute: [[UInt8]: FilePath] = [:]
    for path in paths where path.isAbsolute {
      if let name = options.listedName(of: path)?.text { absolute[Array(name.utf8)] = path }
    }
    if absolute.isEmpty { return nil }
    for path in paths where path.isRelative {
      guard let name = options.listedName(of: path)?.text, let other = absolute[Array(name.utf8)],
        let status = status(of: path), let otherStatus = self.status(of: other),
        status.identity != otherStatus.identity
      else { continue }
      return KeyCollision(key: options.prefix + name, paths: [other.string, path.string])
    }
    return nil
  }

  /// - Parameters:
  ///   - named: files that were named, with their names in keys.
  ///   - relativePath: the part of the key that all have in common.
  private static func find(
    _ folders: [FilePath], _ named: [(name: String, path: FilePath)], below relativePath: String,
    _ excluded: [ShellPattern], keepsLinks: Bool
  ) throws(BlobStorageError) -> KeyCollision? {
    try CancellationFlag.check()
    var names = named.map { (name: $0.name, path: $0.path, isNamed: true) }
    for folder in folders {
      for name in list(folder) {
        names.append((EscapedName.key(of: name).text, folder.appending(bytes: name), false))
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
        if !item.isNamed, excluded.contains(where: { $0.matches(path: path, isFolder: isFolder) }) {
          return nil
        }
        return Found(path: item.path, status: status)
      }
      let files = found.filter {
        $0.status.kind == .regular || keepsLinks && $0.status.kind == .symbolicLink
      }
      if files.count > 1 {
        return KeyCollision(key: path, paths: files.prefix(2).map { $0.path.lexicallyNormalized().string })
      }
      let below = found.filter { $0.status.kind == .directory }.map(\.path)
      if below.count > 1,
        let collision = try find(below, [], below: path + "/", excluded, keepsLinks: keepsLinks)
      {
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
  /// The key of a file of a list, without the prefix; nil for a path that leads up.
  func listedName(of path: FilePath) -> (text: String, isEscaped: Bool)? {
    var path = path.lexicallyNormalized()
    path.root = nil
    guard let first = path.components.first, first.kind == .regular else { return nil }
    return EscapedName.key(of: path.bytes)
  }
}

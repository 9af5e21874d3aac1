import BlobStorage
import Foundation

/// The files that the original DataArchive keeps for a key.
///
/// `0.dat` is the current version, and `1.dat`, `2.dat`, … are the archived ones, the oldest first. A `.tmp` is left by
/// a process that died: `0.tmp` is the value that it was replacing, the others are archives that it was dropping. The
/// original drops the lowest numbers, so these are older than every `.dat`.
struct ArchivedFile: Comparable {
  let number: Int
  let isTemporary: Bool

  /// The file of that name, or nil for any other file.
  init?(name: String) {
    let parts = name.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 2, parts[1] == "dat" || parts[1] == "tmp", let number = Int(parts[0]), number >= 0,
      String(number) == parts[0]
    else { return nil }
    self.number = number
    isTemporary = parts[1] == "tmp"
  }

  /// Older files come first.
  static func < (left: ArchivedFile, right: ArchivedFile) -> Bool {
    left.order.lexicographicallyPrecedes(right.order)
  }

  private var order: [Int] {
    if number == 0 { return [2, isTemporary ? 0 : 1] }
    return [isTemporary ? 0 : 1, number]
  }
}

extension ArchivedFile {
  /// The versions of all keys below a folder: per key by age, and the keys by the age of their youngest file.
  ///
  /// - Throws: if the folder itself cannot be listed.
  static func groups(
    in folder: URL, except store: URL
  ) throws(BlobStorageError) -> (found: [OldData.Group], unknown: [String]) {
    var keys: [(modified: Date, group: OldData.Group)] = []
    var unknown: [String] = []
    var folders: [(url: URL, key: String)] = [(folder, "")]
    let storeName = store.lastPathComponent
    while let (url, key) = folders.popLast() {
      var files: [(file: ArchivedFile, found: FoundFile)] = []
      let listed: [FoundFile]
      do throws(BlobStorageError) {
        let (found, unreadable) = try FoundFile.list(url)
        listed = found
        unknown += unreadable.map { key.isEmpty ? $0 : key + "/" + $0 }
      } catch {
        guard !key.isEmpty else { throw error }
        unknown.append(key)
        continue
      }
      for found in listed {
        let name = found.url.lastPathComponent
        if found.isFolder, !key.isEmpty || name != storeName {
          folders.append((found.url, key.isEmpty ? name : key + "/" + name))
        } else if found.isRegular, !key.isEmpty, let file = ArchivedFile(name: name) {
          files.append((file, found))
        }
      }
      guard !files.isEmpty else { continue }
      files.sort { $0.file < $1.file }
      let group = OldData.Group(key: key, files: files.map(\.found.url))
      keys.append((files.map(\.found.modified).max() ?? .distantPast, group))
    }
    return (keys.sorted { $0.modified < $1.modified }.map(\.group), unknown)
  }
}

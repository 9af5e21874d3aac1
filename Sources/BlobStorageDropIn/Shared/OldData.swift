import BlobStorage
import Foundation
import SystemPackage

/// What an original has left in a folder, taken into the store once and left as it is.
///
/// A key is taken in whole or not at all: a version that came later could not be put below the others. What cannot be
/// taken in is listed in the marker. Each opening of the store tries it again, unless the key has a value by then.
struct OldData {
  /// The files of one key, the oldest version first.
  struct Group {
    let key: String
    let files: [URL]
  }

  let library: Library
  let folder: URL
  let store: BlockingBlobStore

  /// Imports what was not imported before; two processes that come at once do it one after the other.
  ///
  /// - Returns: the keys, and the names of folders, that are left out.
  /// - Throws: when the folder cannot be listed, or the store cannot be written; then nothing is marked as done.
  /// - Durability: the marker is written when everything is on the medium.
  func importOnce(name: String = "") throws(BlobStorageError) -> [String] {
    let marker = library.importMarker(name)
    guard library != .documents else { return [] }
    if let known = try store.data(forKey: marker), known.isEmpty { return [] }
    let location = URL(fileURLWithPath: store.store.information.path, isDirectory: true)
    let lock = try FolderLock("drop-in-import.lock", in: location)
    defer { lock.release() }
    let known = try store.data(forKey: marker).map(Self.names)
    if let known, known.isEmpty { return [] }
    let (groups, unknown) = try groups(location)
    var leftOut = unknown
    let wanted = groups.filter { group in known.map { Self.contains($0, group.key) } ?? true }
    if !wanted.isEmpty {
      // Its end forces everything to the medium at once.
      let session = try BlockingBlobStore.open(at: location.path)
      do throws(BlobStorageError) {
        for group in wanted where try !put(group, into: session, label: name.isEmpty ? "" : "other/") {
          leftOut.append(group.key)
        }
      } catch {
        try? session.close()
        throw error
      }
      try session.close()
    }
    // What was forgotten since stays forgotten.
    if let known { leftOut = leftOut.filter { Self.contains(known, $0) } }
    if known.map({ Set($0.map { Array($0.utf8) }) != Set(leftOut.map { Array($0.utf8) }) }) ?? true {
      try store.put(.data(Self.data(leftOut)), forKey: marker)
    }
    return leftOut
  }

  /// Takes keys off the list of what was left out: they were deleted, or will be.
  ///
  /// - Returns: what is left of the list.
  func forget(name: String, _ isForgotten: (String) -> Bool) throws(BlobStorageError) -> [String] {
    let marker = library.importMarker(name)
    let location = URL(fileURLWithPath: store.store.information.path, isDirectory: true)
    let lock = try FolderLock("drop-in-import.lock", in: location)
    defer { lock.release() }
    let known = try store.data(forKey: marker).map(Self.names) ?? []
    let rest = known.filter { !isForgotten($0) }
    if rest.count < known.count { try store.put(.data(Self.data(rest)), forKey: marker) }
    return rest
  }

  /// Whether a list of what was left out has that key, or a folder in which it would be.
  static func contains(_ names: [String], _ key: String) -> Bool {
    names.contains { key.utf8.elementsEqual($0.utf8) || key.utf8.starts(with: ($0 + "/").utf8) }
  }

  private func groups(_ location: URL) throws(BlobStorageError) -> (found: [Group], unknown: [String]) {
    guard try SystemFiles().status(of: FilePath(folder.path)) != nil else { return ([], []) }
    return library == .archive
      ? try ArchivedFiles.groups(in: folder, except: location) : try PlainFiles.groups(in: folder)
  }

  /// Takes in a key's files; false when one of them cannot be.
  ///
  /// - Parameter label: what a version remembers, before its file's name: an import that was interrupted goes on after
  ///   it.
  private func put(
    _ group: Group, into session: BlockingBlobStore, label: String
  ) throws(BlobStorageError) -> Bool {
    let key = library.storeKey(group.key)
    let manager = FileManager.default
    guard key.utf8.count <= BlobLimits.maximumKeyByteCount,
      group.files.allSatisfy({ manager.isReadableFile(atPath: $0.path) })
    else { return false }
    let there = Set(try session.versions(of: key).map(\.metadata))
    let names = group.files.map { Array((label + $0.lastPathComponent).utf8) }
    // A key that was set meanwhile has a history that nothing can be put under.
    guard there.isSubset(of: names) else { return false }
    for (file, name) in zip(group.files, names) where !there.contains(name) {
      let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent, metadata: name)
      do throws(BlobStorageError) { try session.put(.file(file.path), forKey: key, options: options) } catch {
        // The file's own trouble leaves it out, the store's ends the import.
        guard error.path == file.path else { throw error }
        _ = try session.delete(key)
        return false
      }
    }
    return true
  }

  private static func names(_ data: Data) -> [String] {
    data.isEmpty ? [] : (try? JSONDecoder().decode([String].self, from: data)) ?? []
  }

  private static func data(_ names: [String]) throws(BlobStorageError) -> Data {
    guard !names.isEmpty else { return Data() }
    do { return try JSONEncoder().encode(names) } catch {
      throw BlobStorageError(.invalidArgument, "The names of old files cannot be noted: \(error).")
    }
  }
}

/// A file's place in time and kind, as far as the import wants to know it.
struct FoundFile {
  let url: URL
  let modified: Date
  let isFolder: Bool
  let isRegular: Bool

  /// What a folder holds, and the names of which nothing can be told. Links are not followed.
  static func list(_ folder: URL) throws(BlobStorageError) -> (files: [FoundFile], unknown: [String]) {
    let manager = FileManager.default
    let names: [String]
    do { names = try manager.contentsOfDirectory(atPath: folder.path) } catch {
      throw BlobStorageError(
        .io,
        "The folder \(folder.path) cannot be listed, and what it holds was not taken in: "
          + "\(error.localizedDescription)", path: folder.path)
    }
    var files: [FoundFile] = []
    var unknown: [String] = []
    for name in names.sorted() {
      let url = folder.appendingPathComponent(name)
      // Nil for a name that is not UTF-8, too.
      guard let attributes = try? manager.attributesOfItem(atPath: url.path) else {
        unknown.append(name)
        continue
      }
      let kind = attributes[.type] as? FileAttributeType
      files.append(
        FoundFile(
          url: url, modified: attributes[.modificationDate] as? Date ?? .distantPast,
          isFolder: kind == .typeDirectory, isRegular: kind == .typeRegular))
    }
    return (files, unknown)
  }
}

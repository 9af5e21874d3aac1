import BlobStorage
import Foundation
import SystemPackage

/// Imports what an original has left in a folder, once, and leaves it as it is.
///
/// Imports a key whole or not at all: a later version could not be put below the others. The marker lists what could
/// not be imported. The next `DropInStore` of the folder tries it again, unless the key has a value by then.
struct OldData {
  /// The files of one key, the oldest version first.
  struct Group {
    let key: String
    let files: [URL]
  }

  let library: Library
  let folder: URL
  /// Distinguishes the folder in the store's marker; empty for the library's own.
  let name: String
  /// The environment that tests set.
  let environment: Engine.Environment?

  private var marker: String { library.importMarker(name) }

  /// Imports what was not imported before. Two processes at the same time take turns.
  ///
  /// - Returns: the keys, and the names of folders, that are left out.
  /// - Throws: if the folder cannot be listed, or the store cannot be written; then nothing is marked as done.
  /// - Durability: writes the marker after everything is on the medium.
  func importOnce(into store: BlockingBlobStore) throws(BlobStorageError) -> [String] {
    guard library != .documents else { return [] }
    if let known = try store.data(forKey: marker), known.isEmpty { return [] }
    let location = store.folder
    let lock = try FolderLock("drop-in-import.lock", in: location)
    defer { lock.release() }
    let known = try store.data(forKey: marker).map(Self.names)
    if let known, known.isEmpty { return [] }
    let (groups, unknown) = try groups(location)
    var leftOut = unknown
    let wanted = groups.filter { group in known.map { Self.contains($0, group.key) } ?? true }
    if !wanted.isEmpty {
      // Closing it syncs everything at once.
      let session = try BlobStore.open(
        at: location.path, StoreConfiguration(), in: environment ?? Engine.Environment()
      ).blocking
      do throws(BlobStorageError) {
        for group in wanted where try !put(group, into: session) {
          leftOut.append(group.key)
        }
      } catch {
        try? session.close()
        throw error
      }
      try session.close()
    }
    // A key that was forgotten meanwhile stays forgotten.
    if let known { leftOut = leftOut.filter { Self.contains(known, $0) } }
    if known.map({ Set($0.map { Array($0.utf8) }) != Set(leftOut.map { Array($0.utf8) }) }) ?? true {
      try store.put(.data(Self.data(leftOut)), forKey: marker)
    }
    return leftOut
  }

  /// Removes keys from the list of what was left out: they were deleted, or will be.
  ///
  /// - Returns: the rest of the list.
  func forget(
    in store: BlockingBlobStore, _ isForgotten: (String) -> Bool
  ) throws(BlobStorageError) -> [String] {
    let lock = try FolderLock("drop-in-import.lock", in: store.folder)
    defer { lock.release() }
    let known = try store.data(forKey: marker).map(Self.names) ?? []
    let rest = known.filter { !isForgotten($0) }
    if rest.count < known.count { try store.put(.data(Self.data(rest)), forKey: marker) }
    return rest
  }

  /// Whether a list of what was left out has that key, or a folder above it.
  static func contains(_ names: [String], _ key: String) -> Bool {
    names.contains { key.utf8.elementsEqual($0.utf8) || key.utf8.starts(with: ($0 + "/").utf8) }
  }

  private func groups(_ location: URL) throws(BlobStorageError) -> (found: [Group], unknown: [String]) {
    guard try SystemFiles().status(of: FilePath(folder.path)) != nil else { return ([], []) }
    if library == .archive { return try ArchivedFile.groups(in: folder, except: location) }
    // One file for each identifier, named after it.
    let (files, unknown) = try FoundFile.list(folder)
    let found = files.filter { $0.isRegular && !$0.url.lastPathComponent.hasPrefix(Self.atomicWritePrefix) }
      .sorted { $0.modified < $1.modified }
      .map { Group(key: $0.url.lastPathComponent, files: [$0.url]) }
    return (found, unknown)
  }

  /// The name of what an interrupted atomic write of Foundation leaves.
  private static let atomicWritePrefix = ".dat.nosync"

  /// Imports a key's files; false if one of them cannot be imported.
  ///
  /// A version's metadata has its file's name, from which an interrupted import continues.
  private func put(_ group: Group, into session: BlockingBlobStore) throws(BlobStorageError) -> Bool {
    let key = library.storeKey(group.key)
    let manager = FileManager.default
    guard key.utf8.count <= BlobLimits.maximumKeyByteCount,
      group.files.allSatisfy({ manager.isReadableFile(atPath: $0.path) })
    else { return false }
    let versions = try session.versions(of: key)
    let there = Set(versions.map(\.metadata))
    let label = name.isEmpty ? "" : "other/"
    let names = group.files.map { Array((label + $0.lastPathComponent).utf8) }
    // A key that was set meanwhile has a history, and nothing can be put below it.
    guard there.isSubset(of: names) else { return false }
    var current = versions.first?.id
    for (file, name) in zip(group.files, names) where !there.contains(name) {
      // Another process may set the key at this moment.
      let condition = current.map { ChangeCondition.current($0) } ?? .absent
      let options = PutOptions(
        durability: .relaxed, replacement: .archiveCurrent, condition: condition, metadata: name)
      do throws(BlobStorageError) {
        current = try session.put(.file(file.path), forKey: key, options: options).version.id
      } catch {
        if error.code == .conditionFailed { return false }
        // An error of the file leaves the key out; an error of the store ends the import.
        guard error.path == file.path else { throw error }
        do throws(BlobStorageError) {
          if let current { try session.delete(key, if: .current(current)) }
        } catch {
          guard error.code == .conditionFailed else { throw error }
        }
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

/// A file with the time and kind that the import needs.
struct FoundFile {
  let url: URL
  let modified: Date
  let isFolder: Bool
  let isRegular: Bool

  /// The entries of a folder, and the names of unreadable entries. Follows no links.
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
      // Also nil for a name that is not UTF-8.
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

import BlobStorage
import BlobStorageTrees
import Foundation
import SystemPackage

/// Finds the keys whose files an import no longer found.
///
/// - Complexity: memory: 16 bytes for each file of the import and of the last states of other paths.
struct MissingKeys {
  typealias Key = (key: [UInt8], current: Stamp)

  private let engine: Engine
  private let options: ImportOptions
  private let paths: [FilePath]
  private let start: Date
  /// Hashes: two keys with one hash keep a key that could go.
  private var found: Set<Int> = []

  init(_ engine: Engine, _ options: ImportOptions, _ paths: [FilePath], start: Date) {
    self.engine = engine
    self.options = options
    self.paths = paths
    self.start = start
  }

  mutating func insert(_ key: String) { found.insert(Array(key.utf8).hashValue) }

  /// The keys that imports have stored with the prefix, before this one began, and that are gone.
  ///
  /// - Throws: `corrupted` if the last state of other paths cannot be read, which may have any key.
  func find(unseen: UnseenKeys, cachePrefix: [UInt8]?) throws(BlobStorageError) -> [Key] {
    // The key that has the prefix as its name is none of this import's.
    let prefix = KeyPrefix.bytes(options.prefix.start)
    var pages = KeyPages(engine.catalog, prefix: prefix, countMax: 1_000)
    var missing: [Key] = []
    let reading: KeyPages.Reading<Key> = { (key, name, _) throws(BlobStorageError) in
      guard let current = name.current, Double(current.row.created) / 1_000 < start.timeIntervalSince1970,
        FileMark(metadata: current.row.metadata) != nil, !found.contains(key.hashValue),
        !unseen.contains(key),
        cachePrefix.map({ !key.starts(with: $0) }) ?? true
      else { return nil }
      return ((key, current.stamp), 1)
    }
    while let page = try pages.next(reading) { missing += page }
    guard !missing.isEmpty else { return [] }
    let others = try keysOfOthers()
    return missing.filter { !others.contains($0.key.hashValue) }
  }

  /// The keys in the last states of other paths.
  private func keysOfOthers() throws(BlobStorageError) -> Set<Int> {
    let states = StateFile(engine)
    var last: [Series: TreeState] = [:]
    let prefix = options.prefix.start
    for state in try states.states()
    where state.prefix.utf8.starts(with: prefix.utf8) || prefix.utf8.starts(with: state.prefix.utf8) {
      if Self.isOf(state, prefix, paths) { continue }
      last[Series(prefix: Array(state.prefix.utf8), sources: Self.normalized(state.sources))] = state
    }
    var keys: Set<Int> = []
    for state in last.values {
      let walk = try states.walk(state)
      defer { walk.close() }
      while let entry = try walk.next() {
        if case .version = entry.content { keys.insert(entry.key.hashValue) }
      }
    }
    return keys
  }

  private struct Series: Hashable {
    var prefix: [UInt8]
    var sources: [FilePath]
  }

  /// Whether a state is one of this prefix and these paths. It has as many of them as fit into its record.
  static func isOf(_ state: TreeState, _ prefix: String, _ paths: [FilePath]) -> Bool {
    guard state.prefix.utf8.elementsEqual(prefix.utf8), state.sources.isEmpty == paths.isEmpty else {
      return false
    }
    return normalized(state.sources) == normalized(paths.prefix(state.sources.count).map(\.string))
  }

  /// Absolute paths without detours.
  private static func normalized(_ paths: [String]) -> [FilePath] {
    paths.map { text in
      let path = FilePath(text)
      do throws(BlobStorageError) { return try path.absolute().lexicallyNormalized() } catch {
        return path.lexicallyNormalized()
      }
    }
  }
}

extension Importer {
  private static let dropCountMax = 500

  /// Patterns that match nothing below any of the paths.
  static func uselessPatterns(_ options: ImportOptions, _ paths: [FilePath]) -> [UselessPattern] {
    let folders = options.keepsPaths ? [] : paths
    guard let first = folders.first else { return IgnoreRules(options.excluded).useless }
    return IgnoreRules(options.excluded, below: first).useless.filter { pattern in
      folders.dropFirst().allSatisfy { IgnoreRules(options.excluded, below: $0).useless.contains(pattern) }
    }
  }

  /// - Throws: `sourceEmpty` if nothing was found where the import before found something, or if keys would be dropped
  ///   because a folder is empty.
  func checkSources(_ paths: [FilePath], emptyRoots: [String], areGone: Bool) throws(BlobStorageError) {
    guard !options.allowsEmpty, !report.skipped.contains(where: \.isFailure) else { return }
    if areGone, let folder = emptyRoots.first {
      throw BlobStorageError(
        .sourceEmpty,
        "\(folder) has no files, so all keys from there would be dropped: is its disk mounted? Allow empty sources if"
          + " that is intended.", path: folder)
    }
    guard report.fileCount + report.linkCount == 0, options.recordsState else { return }
    let last = try StateFile(engine).states().last { MissingKeys.isOf($0, options.prefix.start, paths) }
    guard let last, last.fileCount + last.linkCount > 0 else { return }
    throw BlobStorageError(
      .sourceEmpty,
      "No files were found in \(paths.map(\.string).joined(separator: " and ")), and state \(last.text) has"
        + " \(last.fileCount + last.linkCount): is the disk mounted? Allow empty sources if that is intended."
    )
  }

  /// Drops keys whose files are gone; returns their number.
  func drop(_ keys: [MissingKeys.Key]) throws(BlobStorageError) -> Int {
    var count = 0
    for part in keys.parts(of: Self.dropCountMax) {
      try CancellationFlag.check()
      count += try VersionChanges(engine).retire(
        Array(part), keepsVersions: options.recordsState, options.durability)
    }
    return count
  }
}

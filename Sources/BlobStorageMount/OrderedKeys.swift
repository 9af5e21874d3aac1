import BlobStorage
import BlobStorageCache

/// A key with its version.
package struct OrderedKey: Sendable {
  package var key: [UInt8]
  /// Nil for a folder, and for a version that was deleted.
  package var version: BlobVersion?
  /// Whether it is a folder of its own. Its key ends in a slash, or is the prefix of a state.
  package var isFolder: Bool

  package init(key: [UInt8], version: BlobVersion?, isFolder: Bool) {
    self.key = key
    self.version = version
    self.isFolder = isFolder
  }

  package init(_ version: BlobVersion) {
    self.init(key: Array(version.key.utf8), version: version, isFolder: false)
  }
}

/// Keys in byte order, each with one version.
package protocol OrderedKeys: Sendable {
  /// The version of a key, or nil.
  func version(of key: String) throws(BlobStorageError) -> BlobVersion?

  /// Up to `limit` keys that begin with `prefix` and come after `place`, which need not be a key.
  func entries(
    prefix: [UInt8], after place: [UInt8]?, limit: Int
  ) throws(BlobStorageError) -> [OrderedKey]
}

/// The keys of a store with their current versions.
package struct CurrentKeys: OrderedKeys {
  package let engine: Engine
  private let reads: CacheReads?

  /// - Parameter reads: the rules of the store's cache.
  package init(_ engine: Engine, _ reads: CacheReads? = nil) {
    self.engine = engine
    self.reads = reads
  }

  package func version(of key: String) throws(BlobStorageError) -> BlobVersion? {
    guard let version = try engine.version(key, nil), reads?.isExpired(version) != true else { return nil }
    return version
  }

  package func entries(
    prefix: [UInt8], after place: [UInt8]?, limit: Int
  ) throws(BlobStorageError) -> [OrderedKey] {
    guard let reads else {
      return try engine.keys(prefix, after: place, limit: limit).map { OrderedKey($0.current) }
    }
    var entries: [OrderedKey] = []
    var place = place
    while entries.count < limit {
      let count = limit - entries.count
      let page = try engine.keys(prefix, after: place, limit: count)
      entries += page.lazy.filter { !reads.isExpired($0.current) }.map { OrderedKey($0.current) }
      guard page.count == count, let last = page.last.map({ Array($0.key.utf8) }) else { break }
      // A forged store may have keys that are not UTF-8.
      if let place, !place.lexicographicallyPrecedes(last) { throw Self.unlistable }
      place = last
    }
    return entries
  }
}

/// Treats keys as paths, whose components are divided by slashes. A folder's name is its path and a slash.
extension OrderedKeys {
  private static var slash: UInt8 { UInt8(ascii: "/") }

  fileprivate static var unlistable: BlobStorageError {
    BlobStorageError(.corrupted, "A key in the store is not UTF-8: it cannot be listed.")
  }

  /// The version of a key given by its bytes; nil for bytes that cannot be a key.
  func version(at key: [UInt8]) throws(BlobStorageError) -> BlobVersion? {
    guard !key.isEmpty, key.count <= BlobLimits.maximumKeyByteCount,
      let text = String(validating: key, as: UTF8.self)
    else { return nil }
    return try version(of: text)
  }

  /// Whether any key begins with the path of a folder.
  func hasFolder(_ folder: [UInt8]) throws(BlobStorageError) -> Bool {
    try !entries(prefix: folder, after: nil, limit: 1).isEmpty
  }

  /// Some components that follow a folder's path, in byte order. A component with a version ends a key; one without is
  /// a folder. A component can be both, and then appears twice.
  ///
  /// - Parameter start: the first bytes of the components.
  /// - Complexity: a seek for each folder, and one for several files. Skips what is below the folders.
  func components(
    of folder: [UInt8], startingWith start: [UInt8] = [], after place: [UInt8]?
  ) throws(BlobStorageError) -> (found: [(component: [UInt8], version: BlobVersion?)], end: [UInt8]?) {
    var found: [(component: [UInt8], version: BlobVersion?)] = []
    var place = place
    var limit = 16
    while found.count < 256 {
      let entries = try entries(prefix: folder + start, after: place, limit: limit)
      let begin = place
      var passedCount = 0
      for entry in entries {
        let key = entry.key
        // A key below a folder that was found.
        if let place, !place.lexicographicallyPrecedes(key) {
          passedCount += 1
          continue
        }
        if entry.isFolder, key.count == folder.count {
          // The folder itself.
          place = key
          continue
        }
        if let end = key[folder.count...].firstIndex(of: Self.slash) {
          found.append((Array(key[folder.count..<end]), nil))
          place = key[...end] + [0xFF]  // after every key in it: no UTF-8 has this byte
        } else {
          if let version = entry.version { found.append((Array(key[folder.count...]), version)) }
          place = key
        }
      }
      guard entries.count == limit else { return (found, nil) }
      // A forged store may have keys that are not UTF-8.
      guard place != begin else {
        throw Self.unlistable
      }
      limit = passedCount > limit / 2 ? max(limit / 4, 4) : min(limit * 2, 1_024)
    }
    return (found, place)
  }

  /// The component that a long name stands for, or nil.
  ///
  /// - Complexity: examines every component of the folder with these first bytes.
  func component(
    startingWith start: [UInt8], in folder: [UInt8],
    where isWanted: (_ component: [UInt8], _ isFolder: Bool) -> Bool
  ) throws(BlobStorageError) -> [UInt8]? {
    var place: [UInt8]?
    repeat {
      let (found, end) = try components(of: folder, startingWith: start, after: place)
      if let match = found.first(where: { isWanted($0.component, $0.version == nil) }) {
        return match.component
      }
      place = end
    } while place != nil
    return nil
  }
}

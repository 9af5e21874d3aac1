import BlobStorage
import BlobStorageMount
import Foundation

/// Keys in memory, for trees.
struct SortedKeys: OrderedKeys {
  private let keys: [[UInt8]]
  private let seeks: SeekCount

  /// How often keys were asked for.
  final class SeekCount: @unchecked Sendable {
    // Unchecked: tests of trees have one thread.
    var count = 0
    var keyCount = 0
  }

  init(_ keys: some Sequence<String>, _ seeks: SeekCount = SeekCount()) {
    self.keys = Set(keys.map { Array($0.utf8) }).sorted { $0.lexicographicallyPrecedes($1) }
    self.seeks = seeks
  }

  private func version(_ key: [UInt8]) -> BlobVersion {
    BlobVersion(
      key: String(decoding: key, as: UTF8.self), id: BlobVersion.ID(Stamp(time: 1, writer: 1)),
      digest: BlobDigest.of(key), byteCount: Int64(key.count), created: Date(timeIntervalSince1970: 0))
  }

  func version(of key: String) -> BlobVersion? {
    let key = Array(key.utf8)
    return keys.contains(key) ? version(key) : nil
  }

  func entries(prefix: [UInt8], after place: [UInt8]?, limit: Int) -> [OrderedKey] {
    let found = keys.lazy.filter { key in
      key.starts(with: prefix) && (place.map { $0.lexicographicallyPrecedes(key) } ?? true)
    }.prefix(limit).map { OrderedKey(version($0)) }
    seeks.count += 1
    seeks.keyCount += found.count
    return Array(found)
  }
}

/// Every file of a tree, by its path. Each name is checked to be one that a file system can have, and to lead back.
func walk(_ tree: some MountedTree, _ folder: [UInt8] = [], _ path: String = "") throws -> [[UInt8]:
  BlobVersion]
{
  var files: [[UInt8]: BlobVersion] = [:]
  var names: Set<[UInt8]> = []
  var place: [UInt8]?
  repeat {
    let page = try tree.page(of: folder, after: place)
    for (name, item) in page.children {
      let text = String(decoding: name, as: UTF8.self)
      guard Array(text.utf8) == name, !name.isEmpty, name.count <= 255, !name.contains(UInt8(ascii: "/")),
        text != ".", text != "..", names.insert(name).inserted,
        try tree.item(named: name, in: folder) == item
      else { throw BlobStorageError(.corrupted, "A bad name in \(path): \(text)") }
      switch item {
      case .file(let version): files[Array((path + text).utf8)] = version
      case .folder(let inner): files.merge(try walk(tree, inner, path + text + "/")) { $1 }
      }
    }
    place = page.end
  } while place != nil
  return files
}

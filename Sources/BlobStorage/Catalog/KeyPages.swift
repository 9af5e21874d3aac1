import Foundation

/// Walks the keys that begin with a prefix, in byte order and a page at a time.
///
/// Each page is read in a snapshot of its own, so that neither memory nor a transaction grows with the number of keys.
/// A key that appears or disappears meanwhile may be missed.
package struct KeyPages {
  private let catalog: Catalog
  private let prefix: [UInt8]
  private let includesHidden: Bool
  private let includesInternal: Bool
  private let countMax: Int
  private var last: [UInt8]?

  /// - Parameters:
  ///   - includesHidden: also walks keys without a visible version.
  ///   - includesInternal: also walks internal keys.
  ///   - countMax: a page ends once the counts of its keys add up to this.
  package init(
    _ catalog: Catalog, prefix: [UInt8], includesHidden: Bool = false, includesInternal: Bool = false,
    countMax: Int
  ) {
    self.catalog = catalog
    self.prefix = prefix
    self.includesHidden = includesHidden
    self.includesInternal = includesInternal
    self.countMax = countMax
  }

  /// Walks the keys that begin with a string.
  package init(_ catalog: Catalog, prefix: String = "", includesInternal: Bool = false, countMax: Int) {
    self.init(
      catalog, prefix: Array(prefix.utf8), includesInternal: includesInternal, countMax: countMax)
  }

  /// Reads an entry from a key, in the snapshot of its page, and returns it with its count; nil skips the key.
  package typealias Reading<Entry> = (_ key: [UInt8], NameRow, ReadTransaction) throws(BlobStorageError) -> (
    entry: Entry, count: Int
  )?

  /// Returns the entries of the next page; nil after the last key.
  package mutating func next<Entry>(_ read: Reading<Entry>) throws(BlobStorageError) -> [Entry]? {
    try CancellationFlag.check()
    let (page, end) = try catalog.read { (transaction) throws(BlobStorageError) -> ([Entry], [UInt8]?) in
      var page: [Entry] = []
      var count = 0
      var end: [UInt8]?
      try transaction.forEachKey(
        prefix: prefix, after: last, includesHidden: includesHidden, includesInternal: includesInternal
      ) { (key, name) throws(BlobStorageError) in
        end = key
        guard let found = try read(key, name, transaction) else { return true }
        page.append(found.entry)
        count += found.count
        return count < countMax
      }
      return (page, end)
    }
    guard let end else { return nil }
    last = end
    return page
  }

  /// Reads keys with their current versions.
  package static func entry(
    _ key: [UInt8], _ name: NameRow, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> (entry: KeyEntry, count: Int)? {
    name.current.map { current in
      let text = String(decoding: key, as: UTF8.self)
      let version = BlobVersion(key: text, stamp: current.stamp, row: current.row)
      return (KeyEntry(current: version, versionCount: name.versionCount), 1)
    }
  }
}

extension BlobVersion {
  package init(key: String, stamp: Stamp, row: VersionRow) {
    self.key = key
    id = ID(stamp)
    digest = row.digest
    byteCount = row.byteCount
    created = Date(timeIntervalSince1970: Double(row.created) / 1_000)
    let stored = StoredMetadata(row.metadata)
    (metadata, mediaType) = (stored.own, stored.mediaType)
  }
}

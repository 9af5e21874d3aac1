import Foundation

/// Walks the keys of a prefix, in byte order and a page at a time.
///
/// Each page is read in a snapshot of its own, so that neither memory nor a transaction grows with the number of keys.
/// A key that appears or disappears meanwhile may be missed.
package struct KeyPages {
  private let catalog: Catalog
  private let prefix: [UInt8]
  /// A key that comes before those with the prefix.
  private let own: [UInt8]?
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
    own = nil
    self.includesHidden = includesHidden
    self.includesInternal = includesInternal
    self.countMax = countMax
  }

  /// Walks the keys that a prefix means, or the internal keys for these.
  ///
  /// - Parameter purpose: what internal keys begin with, before the callers' keys; empty for the callers' keys.
  package init(
    _ catalog: Catalog, prefix: KeyPrefix = .all, for purpose: [UInt8] = [], includesHidden: Bool = false,
    includesInternal: Bool = false, countMax: Int
  ) {
    self.catalog = catalog
    self.prefix = purpose + Array(prefix.start.utf8)
    own = prefix.own.map { purpose + Array($0.utf8) }
    self.includesHidden = includesHidden
    self.includesInternal = includesInternal
    self.countMax = countMax
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
      func add(_ key: [UInt8], _ name: NameRow) throws(BlobStorageError) -> Bool {
        end = key
        guard let found = try read(key, name, transaction) else { return true }
        page.append(found.entry)
        count += found.count
        return count < countMax
      }
      if let own, last == nil {
        // The first key that begins with it is the key itself.
        try transaction.forEachKey(
          prefix: own, after: nil, includesHidden: includesHidden, includesInternal: includesInternal
        ) { (key, name) throws(BlobStorageError) in
          if key == own { _ = try add(key, name) }
          return false
        }
      }
      guard count < countMax else { return (page, end) }
      try transaction.forEachKey(
        prefix: prefix, after: end ?? last, includesHidden: includesHidden, includesInternal: includesInternal
      ) { (key, name) throws(BlobStorageError) in try add(key, name) }
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

import Foundation

/// A version of an internal key.
package struct InternalVersion: Sendable {
  package let key: [UInt8]
  package let stamp: Stamp
  package let row: VersionRow
}

/// Records that the store keeps under internal keys. They are blobs like any others: gc, verify, copies and rebuilds need
/// to know nothing of what is in them.
extension Engine {
  /// The current versions of the internal keys that begin so, or all versions.
  package func internalVersions(
    _ prefix: [UInt8] = InternalKey.prefix, includesArchived: Bool = false
  ) throws(BlobStorageError) -> [InternalVersion] {
    try checkOpen()
    return try catalog.read { (transaction) throws(BlobStorageError) in
      var found: [InternalVersion] = []
      try transaction.forEachKey(prefix: prefix, after: nil) { (key, name) throws(BlobStorageError) in
        if includesArchived {
          for version in try transaction.versions(of: name) {
            found.append(InternalVersion(key: key, stamp: version.stamp, row: version.row))
          }
        } else if let current = name.current {
          found.append(InternalVersion(key: key, stamp: current.stamp, row: current.row))
        }
        return true
      }
      return found
    }
  }

  /// Stores a record under an internal key.
  ///
  /// - Throws: `limitExceeded` if the metadata are too long.
  package func putInternal(
    _ key: [UInt8], _ content: BlobContent, metadata: [UInt8] = [], _ durability: Durability = .durable
  ) throws(BlobStorageError) {
    try checkOpen()
    let options = PutOptions(durability: durability, metadata: metadata)
    try MemoryPut.check(options)
    let watermark: WriterSession.Watermark?
    if case .data(let data) = content, data.count <= MemoryPut.byteCountMax {
      watermark = try memoryPut.commit(key, data, options).1
    } else {
      watermark = try streamPut(options).run(key, content).1
    }
    try makeDurable(durability, watermark)
  }

  /// Drops records under internal keys.
  package func dropInternal(_ keys: [[UInt8]]) throws(BlobStorageError) {
    guard !keys.isEmpty else { return }
    try checkOpen()
    _ = try drop(keys, keeping: nil, .durable)
  }
}

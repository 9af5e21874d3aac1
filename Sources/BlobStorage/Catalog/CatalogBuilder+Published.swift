import Logging

/// Packs that were published: by other machines, or by this one in another life.
extension CatalogBuilder {
  /// Downloads what a rebuild needs before taking the lock.
  func prepareFilling() throws(BlobStorageError) {
    guard let publishing else { return }
    let names = try publishing.publishedPacks().packs.keys.sorted()
    try publishing.forEachPublished(names) { _, _ in }
  }

  /// Takes all published packs that are known of here into an empty catalog, but those that lie here too. Nothing is
  /// asked for that is here; what is not known of is caught up with later.
  func fill(
    _ environment: Environment, from backend: any PublishingBackend, except local: Set<PackName>
  ) throws(BlobStorageError) {
    for name in try backend.knownPackNames().sorted() where !local.contains(name) {
      // Removed since it was heard of: what is needed of it lies in another.
      guard let file = try backend.openPack(name) else { continue }
      defer { file.close() }
      do throws(BlobStorageError) {
        guard try apply(name, file, into: environment) != nil else { continue }
      } catch {
        guard error.code == .packGone else { throw error }
        continue
      }
      let byteCount = try file.status().byteCount
      try environment.write { (transaction) throws(BlobStorageError) in
        try Self.notePublished(name, byteCount: byteCount, in: transaction)
      }
    }
    try environment.write { (transaction) throws(BlobStorageError) in
      try Self.noteCollections(of: backend, in: transaction)
    }
  }

  /// Has writers count as missing what lies in packs that collectors have condemned or removed.
  package static func noteCollections(
    of backend: any PublishingBackend, in transaction: Transaction
  ) throws(BlobStorageError) {
    let rows = try transaction.packRows()
    try condemn(
      rows.lazy.map(\.row).filter { $0.state == .live && !backend.isCountedOn($0.name) }.map(\.name),
      in: transaction)
  }

  /// Has writers count as missing what lies in these packs, which are never pardoned.
  package static func condemn(
    _ names: some Sequence<PackName>, in transaction: Transaction
  ) throws(BlobStorageError) {
    var isNew = false
    for name in names {
      guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number),
        row.state == .live
      else { continue }
      row.state = .condemned
      try transaction.setPackRow(number, row)
      isNew = true
    }
    if isNew { try transaction.bumpEpoch() }
  }

  /// Marks a pack as published.
  package static func notePublished(
    _ name: PackName, byteCount: Int64, in transaction: Transaction
  ) throws(BlobStorageError) {
    guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number) else {
      return
    }
    row.isSealed = true
    row.durableByteCount = byteCount
    try transaction.setPackRow(number, row)
  }
}

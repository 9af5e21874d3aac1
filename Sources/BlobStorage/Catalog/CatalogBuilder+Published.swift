import Logging

/// Packs that were published: by other machines, or by this one in another life.
extension CatalogBuilder {
  /// Fills an empty catalog from the published packs that this machine knows of, except those that lie here too. The
  /// catalog is extended by the others later.
  func fillFromPublished(
    _ environment: Environment, except local: Set<PackName>
  ) throws(BlobStorageError) {
    guard backend.publishes else { return }
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
        try Self.markPublished(name, byteCount: byteCount, in: transaction)
      }
    }
    try environment.write { (transaction) throws(BlobStorageError) in
      try Self.condemnUncounted(backend, in: transaction)
    }
  }

  /// Condemns the packs that collectors have condemned or removed: writers count what lies in them as missing.
  package static func condemnUncounted(
    _ backend: any Backend, in transaction: WriteTransaction
  ) throws(BlobStorageError) {
    let rows = try transaction.packRows()
    try condemn(
      rows.lazy.map(\.row).filter { $0.state == .live && !backend.isCountedOn($0.name) }.map(\.name),
      in: transaction)
  }

  /// Condemns packs for ever: writers count what lies in them as missing.
  package static func condemn(
    _ names: some Sequence<PackName>, in transaction: WriteTransaction
  ) throws(BlobStorageError) {
    var isNew = false
    for name in names {
      guard let pack = try transaction.pack(name), pack.row.state == .live else { continue }
      try transaction.updatePack(pack.number) { $0.state = .condemned }
      isNew = true
    }
    if isNew { try transaction.bumpEpoch() }
  }

  /// Marks a pack as published, and thereby as durable.
  package static func markPublished(
    _ name: PackName, byteCount: Int64, in transaction: WriteTransaction
  ) throws(BlobStorageError) {
    try transaction.updatePack(name) { row in
      row.isSealed = true
      row.durableByteCount = byteCount
    }
  }
}

import BlobStorage

/// The index of a shared store. This machine caches the rows that it uses.
package final class RowIndex: OuterRows {
  /// The places of the rows.
  let place: IndexRoot
  private let run: RowRun
  private let onDistrust: @Sendable (IndexRoot) -> Void

  /// - Parameters:
  ///   - open: opens a part of known length.
  ///   - distrust: keeps later catalogs from relying on the index.
  package init(
    _ place: IndexRoot, open: @Sendable (PackName, Int64) -> any File,
    distrust: @escaping @Sendable (IndexRoot) -> Void
  ) {
    self.place = place
    onDistrust = distrust
    run = RowRun(place, open)
  }

  package var root: [UInt8] { place.encoded }
  package var isDamaged: Bool { run.isDamaged }
  package func distrust() { onDistrust(place) }

  package func row(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> (value: UnsafeRawBufferPointer, owner: AnyObject)? {
    try table.withNumbered(key) { (key) throws(BlobStorageError) in
      if table.isFiltered, try !run.mayHave(key) { return nil }
      return try run.row(key).map { ($0.row.value, $0.block) }
    }
  }

  package func walk(
    _ table: Table, from start: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> any RowSteps {
    try table.withNumbered(start) { (key) throws(BlobStorageError) in
      Steps(walk: try RowRun.Walk(run, from: key), table: table.number)
    }
  }

  /// Iterates over the rows of one table of a run.
  private struct Steps: RowSteps {
    var walk: RowRun.Walk
    let table: UInt8

    var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? {
      guard let row = walk.row, row.key.first == table else { return nil }
      return (UnsafeRawBufferPointer(rebasing: row.key.dropFirst()), row.value)
    }

    mutating func advance() throws(BlobStorageError) { try walk.advance() }
  }
}

extension Table {
  /// Whether lookups often ask for absent rows, so that a filter saves requests.
  var isFiltered: Bool {
    switch self {
    case .chunks, .manifests, .names, .bases: true
    default: false
    }
  }

  /// Whether a catalog that adopts an index copies all rows of the table.
  var isCopied: Bool { self == .meta || self == .packs || self == .packNumbers }
}

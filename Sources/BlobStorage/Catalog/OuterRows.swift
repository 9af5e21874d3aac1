import Synchronization

/// Rows of a catalog that lie elsewhere than in its database. Machines that share a store can read them from objects.
///
/// The database counts first: it keeps the rows that came later, and in ``Table/removed`` the keys of rows that do not
/// count any more.
package protocol OuterRows: AnyObject, Sendable {
  /// What the catalog keeps, so that its next opening finds the rows again.
  var root: [UInt8] { get }

  /// Whether a read has found damage, or an object that has gone.
  var isDamaged: Bool { get }

  /// Makes sure that no later catalog of this process relies on these rows.
  func distrust()

  /// The value of a row, borrowed for as long as its owner lives; nil when there is none.
  func row(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> (value: UnsafeRawBufferPointer, owner: AnyObject)?

  /// Goes through the rows of a table whose keys are not below `start`.
  func walk(_ table: Table, from start: UnsafeRawBufferPointer) throws(BlobStorageError) -> any RowSteps
}

/// Where outer rows come from.
package protocol OuterRowsSource: Sendable {
  /// Begins a new catalog with outer rows, as ``Backend/prefetchFooters()`` has found them.
  ///
  /// - Returns: the packs whose rows these are; none if there are no such rows.
  /// - Throws: `catalogDamaged` or `corrupted` when they cannot be used: the catalog is made without them.
  func adopt(into database: Database) throws(BlobStorageError) -> Set<PackName>

  /// Opens the outer rows of a catalog.
  ///
  /// - Throws: `catalogDamaged` when they cannot be opened.
  func open(_ root: [UInt8]) throws(BlobStorageError) -> any OuterRows
}

/// Goes through rows in byte order of their keys.
package protocol RowSteps {
  /// The row that it has come to, borrowed until it goes on: without a value if the row was removed. Nil at the end.
  var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? { get }
  mutating func advance() throws(BlobStorageError)
}

extension Database {
  /// Where a catalog keeps the root of its outer rows.
  static let outerRowsKey = Array("index".utf8)

  /// Relies on outer rows once `body` is done.
  package func adopt<T>(
    _ rows: any OuterRows, _ body: (WriteTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let result = try write { (transaction) throws(BlobStorageError) in
      try transaction.put(.meta, Self.outerRowsKey, rows.root)
      return try body(transaction)
    }
    setOuterRows(rows)
    return result
  }
}

extension Catalog {
  /// Whether the catalog in use relies on outer rows.
  var hasOuterRows: Bool { current.withLock { $0?.database }?.outerRows != nil }

  /// The root of the outer rows that the catalog in use relies on; nil if it has all rows itself.
  package func outerRoot() throws(BlobStorageError) -> [UInt8]? { try database().outerRows?.root }

  /// Bytes of the rows that the catalog has itself.
  package func ownByteCount() throws(BlobStorageError) -> Int64 { try database().byteCount() }
}

extension Table {
  /// Whether its rows may lie elsewhere. The others are small, or say what this machine has done.
  package var hasOuterRows: Bool {
    switch self {
    case .chunks, .chunkBases, .manifests, .names, .versions, .masks, .bases: true
    default: false
    }
  }

  /// What its keys begin with where the rows of several tables lie together. These numbers are part of the format.
  package var number: UInt8 {
    switch self {
    case .meta: 0
    case .packs: 1
    case .packNumbers: 2
    case .chunks: 3
    case .chunkBases: 4
    case .manifests: 5
    case .names: 6
    case .versions: 7
    case .masks: 8
    case .bases: 9
    case .features, .blobs, .cacheKeys, .cacheOrder, .packGarbage, .removed: 255
    }
  }

  /// Calls `body` with a key that begins with the table's number.
  package func withNumbered<T>(
    _ key: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    try withUnsafeTemporaryAllocation(byteCount: 1 + key.count, alignment: 1) {
      (memory) throws(BlobStorageError) in
      memory[0] = number
      UnsafeMutableRawBufferPointer(rebasing: memory[1...]).copyMemory(from: key)
      return try body(UnsafeRawBufferPointer(memory))
    }
  }
}

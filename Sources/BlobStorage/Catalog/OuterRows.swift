import Synchronization

/// Rows of a catalog that lie outside its database. Machines that share a store can read them from objects.
///
/// The database has priority: it holds newer rows, and in ``Table/removed`` the keys of outer rows that were removed.
package protocol OuterRows: AnyObject, Sendable {
  /// Bytes that the catalog stores, so that its next opening finds the rows again.
  var root: [UInt8] { get }

  /// Whether a read has found damage or a missing object.
  var isDamaged: Bool { get }

  /// Keeps later catalogs of this process from relying on these rows.
  func distrust()

  /// The value of a row, borrowed for as long as its owner lives; nil when there is none.
  func row(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> (value: UnsafeRawBufferPointer, owner: AnyObject)?

  /// Steps through the rows of a table whose keys are at least `start`.
  func walk(_ table: Table, from start: UnsafeRawBufferPointer) throws(BlobStorageError) -> any RowSteps
}

/// Finds and opens outer rows.
package protocol OuterRowsSource: Sendable {
  /// Fills a new catalog with the outer rows that ``Backend/prefetchFooters()`` has found.
  ///
  /// - Returns: the packs that the rows describe; none if no rows were found.
  /// - Throws: `catalogDamaged` or `corrupted` if the rows cannot be used. The catalog is then filled without them.
  func adopt(into database: Database) throws(BlobStorageError) -> Set<PackName>

  /// Opens the outer rows of a catalog.
  ///
  /// - Throws: `catalogDamaged` if they cannot be opened.
  func open(_ root: [UInt8]) throws(BlobStorageError) -> any OuterRows
}

/// Steps through rows in byte order of their keys.
package protocol RowSteps {
  /// The current row, borrowed until the next step; nil at the end. Its value is nil if the row was removed.
  var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? { get }
  mutating func advance() throws(BlobStorageError)
}

extension Table {
  /// Whether a table may have outer rows. Other tables are small, or describe only this machine.
  package var hasOuterRows: Bool {
    switch self {
    case .chunks, .chunkBases, .manifests, .names, .versions, .masks, .bases: true
    default: false
    }
  }

  /// The first byte of the table's keys where rows of several tables lie together. These numbers are part of the
  /// format.
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

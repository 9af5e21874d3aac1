/// Rows of the catalog that lie in objects, of which this machine keeps what it uses.
package final class RowIndex: Sendable {
  /// Where a catalog keeps the root of the index that has its other rows.
  static let metaKey = Array("index".utf8)

  package let root: IndexRoot
  private let run: RowRun
  private let access: IndexAccess

  package init(_ root: IndexRoot, _ access: IndexAccess) {
    self.root = root
    self.access = access
    run = RowRun(root, access.open)
  }

  /// Makes sure that no later catalog of this process relies on this index.
  func distrust() { access.distrust(root) }

  /// Whether a read has found damage, or an object that has gone.
  var isDamaged: Bool { run.isDamaged }

  /// The value of a row, and the block that keeps its bytes; nil when there is none.
  func row(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> (value: UnsafeRawBufferPointer, block: RunBlock)? {
    try Self.withKey(table, key) { (key) throws(BlobStorageError) in
      if table.isFiltered, try !run.mayHave(key) { return nil }
      return try run.row(key).map { ($0.row.value, $0.block) }
    }
  }

  /// Goes through the rows of a table.
  func walk(_ table: Table, from start: UnsafeRawBufferPointer) throws(BlobStorageError) -> RunSteps {
    try Self.withKey(table, start) { (key) throws(BlobStorageError) in
      RunSteps(walk: try RowRun.Walk(run, from: key), table: table.indexNumber)
    }
  }

  /// Calls `body` with the key that a row of a table has in runs.
  package static func withKey<T>(
    _ table: Table, _ key: UnsafeRawBufferPointer,
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    try withUnsafeTemporaryAllocation(byteCount: 1 + key.count, alignment: 1) {
      (memory) throws(BlobStorageError) in
      memory[0] = table.indexNumber
      UnsafeMutableRawBufferPointer(rebasing: memory[1...]).copyMemory(from: key)
      return try body(UnsafeRawBufferPointer(memory))
    }
  }
}

/// Goes through rows in byte order of their keys.
protocol RowSteps {
  /// The row that it has come to, borrowed until it goes on: without a value if the row was removed. Nil at the end.
  var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? { get }
  mutating func advance() throws(BlobStorageError)
}

/// The rows of one table in a run.
struct RunSteps: RowSteps {
  var walk: RowRun.Walk
  let table: UInt8

  var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? {
    guard let row = walk.row, row.key.first == table else { return nil }
    return (UnsafeRawBufferPointer(rebasing: row.key.dropFirst()), row.value)
  }

  mutating func advance() throws(BlobStorageError) { try walk.advance() }
}

extension Table {
  /// What begins the keys of its rows in runs. These numbers are part of the format.
  package var indexNumber: UInt8 {
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

  /// Whether its rows may lie in an index instead of the database. The others are small, or say what this machine has done.
  package var isIndexed: Bool {
    switch self {
    case .chunks, .chunkBases, .manifests, .names, .versions, .masks, .bases: true
    default: false
    }
  }

  /// Whether rows are looked up that may not be there: then a filter saves a request.
  package var isFiltered: Bool {
    switch self {
    case .chunks, .manifests, .names, .bases: true
    default: false
    }
  }
}

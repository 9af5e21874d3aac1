import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@testable import BlobStorage
@testable import BlobStorageSharing

@Suite("A run of rows")
struct RowRunTests {
  private let temporary: TemporaryFolder
  private let files = SystemFiles()

  init() throws { temporary = try TemporaryFolder() }

  private func path(_ part: Int) -> FilePath { temporary.path.appending("part-\(part)") }

  private func index(_ rows: [(Table, [UInt8], [UInt8])]) throws -> RowIndex {
    var writer = RowRunWriter(
      IndexRoot(storeID: Array(0..<16), layout: "9", log: 3, change: 4, recordCount: 5, run: 7),
      keyCount: rows.count
    ) {
      (part) throws(BlobStorageError) in
      try files.open(path(part), .create)
    } end: { (_, file, byteCount) throws(BlobStorageError) in
      #expect(try file.status().byteCount == byteCount)
      file.close()
    }
    for (table, key, value) in rows {
      try bridge(key) { (key) throws(BlobStorageError) in
        try bridge(value) { (value) throws(BlobStorageError) in try writer.add(table, key, value) }
      }
    }
    let root = try writer.finish()
    #expect(try IndexRoot(root.encoded) == root)
    return RowIndex(root, open: try opening(root)) { _ in }
  }

  /// Opens the parts of an index.
  private func opening(_ root: IndexRoot) throws -> @Sendable (PackName, Int64) -> any File {
    let parts = try root.partByteCounts.indices.map { try files.open(path($0), .read) }
    return { (name, _) in parts[Int(name.sequence) - 1] }
  }

  private func value(_ index: RowIndex, _ table: Table, _ key: [UInt8]) throws -> [UInt8]? {
    try bridge(key) { (key) throws(BlobStorageError) in try index.row(table, key).map { Array($0.value) } }
  }

  @Test(
    "has each row, none that was not put, and all in order from any key on", arguments: [1, 2, 300, 60_000])
  func rows(_ count: Int) throws {
    var random = SplitMix64.announced()
    var expected: [[UInt8]: [UInt8]] = [:]
    while expected.count < count {
      let key = random.bytes(Int.random(in: 0..<40, using: &random))
      expected[key] = random.bytes(Int.random(in: 0..<60, using: &random))
    }
    let keys = expected.keys.sorted { $0.lexicographicallyPrecedes($1) }
    var rows = keys.map { (Table.names, $0, expected[$0] ?? []) }
    rows.append((.versions, [1, 2], [3]))
    let index = try index(rows)
    for key in keys.shuffled(using: &random).prefix(3_000) {
      #expect(try value(index, .names, key) == expected[key])
      #expect(try value(index, .versions, key) == nil)
    }
    #expect(try value(index, .versions, [1, 2]) == [3])
    for _ in 0..<200 {
      let start = random.bytes(Int.random(in: 0..<5, using: &random))
      if expected[start] == nil { #expect(try value(index, .names, start) == nil) }
      let first = keys.firstIndex { !$0.lexicographicallyPrecedes(start) } ?? keys.count
      var walk = try bridge(start) { (start) throws(BlobStorageError) in try index.walk(.names, from: start) }
      for key in keys[first...].prefix(700) {
        #expect(walk.row.map { Array($0.key) } == key)
        #expect(walk.row?.value.map { Array($0) } == expected[key])
        try walk.advance()
      }
      if keys.count - first < 700 { #expect(walk.row == nil) }
    }
  }

  @Test("has a filter that keeps nearly all others away, and never one of its own")
  func filter() throws {
    var random = SplitMix64.announced()
    let keys = (0..<20_000).map { _ in random.bytes(32) }.sorted { $0.lexicographicallyPrecedes($1) }
    let index = try index(keys.map { (.chunks, $0, [1]) })
    func count(_ keys: [[UInt8]]) throws -> Int {
      try keys.count { key in
        try bridge(key) { (key) throws(BlobStorageError) in
          try Table.chunks.withNumbered(key) { (key) throws(BlobStorageError) in try index.mayHave(key) }
        }
      }
    }
    #expect(try count(keys) == keys.count)
    #expect(try count((0..<20_000).map { _ in random.bytes(32) }) < 400)
  }

  @Test("is refused if its rows are in another order, twice there, or cut off")
  func disorder() throws {
    func block(_ keys: [[UInt8]]) -> [UInt8] {
      var writer = ByteWriter()
      for key in keys {
        key.withUnsafeBytes { key in
          RunBlock.append(key, UnsafeRawBufferPointer(start: nil, count: 0), to: &writer)
        }
      }
      writer.checksum()
      return writer.bytes
    }
    #expect(try RunBlock(block([[1], [1, 0], [2]])).count == 3)
    for keys in [[[2], [1]], [[1], [1]], []] as [[[UInt8]]] {
      let error = #expect(throws: BlobStorageError.self) { try RunBlock(block(keys)) }
      #expect(error?.code == .corrupted)
    }
    var writer = ByteWriter()
    writer.varint(5)
    writer.checksum()
    #expect(throws: BlobStorageError.self) { try RunBlock(writer.bytes) }
  }

  @Test("is damaged where a block goes on beyond the beginning of the next")
  func overlap() throws {
    var bytes: [UInt8] = []
    func block(_ rows: [(key: UInt8, value: [UInt8])]) -> RunPlace {
      var writer = ByteWriter()
      for row in rows {
        let key = [Table.names.number, row.key]
        key.withUnsafeBytes { key in
          row.value.withUnsafeBytes { RunBlock.append(key, $0, to: &writer) }
        }
      }
      writer.checksum()
      let place = RunPlace(part: 0, offset: UInt64(bytes.count), byteCount: UInt32(writer.bytes.count))
      bytes += writer.bytes
      return place
    }
    let rows = [block([(1, []), (3, [])]), block([(2, []), (4, [])])].enumerated().map { index, place in
      var value = ByteWriter()
      place.encode(into: &value)
      return (key: UInt8(index + 1), value: value.bytes)
    }
    var root = IndexRoot(storeID: Array(0..<16), layout: "9", log: 3, change: 4, recordCount: 5, run: 7)
    root.top = block(rows)
    root.height = 1
    root.partByteCounts = [Int64(bytes.count)]
    let file = try files.open(path(0), .create)
    try file.put(bytes, at: 0)
    file.close()
    let index = RowIndex(root, open: try opening(root)) { _ in }
    var walk = try bridge([]) { (start) throws(BlobStorageError) in try index.walk(.names, from: start) }
    var keys: [UInt8] = []
    do throws(BlobStorageError) {
      while let key = walk.row?.key.last {
        keys.append(key)
        try walk.advance()
      }
      Issue.record("the walk has come to an end")
    } catch { #expect(error.code == .catalogDamaged) }
    #expect(keys == [1, 3] && index.isDamaged)
  }

  @Test("has a root that is refused if its numbers cannot be")
  func root() throws {
    let whole = try index([(.names, [1], [2])]).place
    let changes: [(inout IndexRoot) -> Void] = [
      { $0.height = 9 }, { $0.rowCount = 0 }, { $0.rowCount = .max }, { $0.filterPart = 2 },
      { $0.filterLineCount = .max }, { $0.filterLineCount = 0 }, { $0.filterLineCount += 1 },
      { $0.partByteCounts = [] }, { $0.partByteCounts[0] = IndexRoot.partByteCountMax + 1 },
    ]
    for change in changes {
      var root = whole
      change(&root)
      let error = #expect(throws: BlobStorageError.self) { try IndexRoot(root.encoded) }
      #expect(error?.code == .corrupted)
    }
  }
}

/// Walks the pages of an LMDB 0.9 file before LMDB does: LMDB trusts what it finds, and a damaged page would take
/// the process down with it.
///
/// Read breadth first, from both roots down: both meta pages, then branch pages, then leaves, up to
/// ``pageCountMax`` pages. A file of up to 4 MiB is thereby checked whole: every page's header, every node's
/// place and length, the order of keys, that no page is used twice or both used and free, the counts of pages and
/// entries, and each value's own guard. Of a larger one, all that lies near the roots is; a leaf further down that
/// is damaged is found by the guard of its values, or not at all if its very structure is.
///
/// Runs while no process writes. Layout: `lmdb.h` and `mdb.c` of LMDB 0.9, 64-bit, little-endian.
struct CatalogInspection {
  static let pageCountMax = 1_024

  private struct Tree {
    var root: UInt64
    var depth: Int
    var branchCount: UInt64
    var leafCount: UInt64
    var overflowCount: UInt64
    var entryCount: UInt64
    var isFreeList: Bool
    var holdsTables: Bool
  }

  private struct Visit {
    var page: UInt64
    var tree: Int
    var level: Int
    var lower: [UInt8]?
    var upper: [UInt8]?
  }

  private let file: any File
  private var pageByteCount = 4_096
  private var lastPage: UInt64 = 0
  private var trees: [Tree] = []
  private var found: [(branch: UInt64, leaf: UInt64, overflow: UInt64, entry: UInt64)] = []
  private var used: Set<UInt64> = [0, 1]
  private var free: Set<UInt64> = []
  private var visits: [Visit] = []
  private var readCount = 0
  private var tableNames: Set<String> = []

  private static let noPage = UInt64.max

  /// - Throws: `catalogDamaged` for a file that LMDB must not be let near.
  static func check(_ file: any File) throws(BlobStorageError) {
    var inspection = CatalogInspection(file: file)
    do throws(BlobStorageError) { try inspection.run() } catch {
      guard error.code == .corrupted else { throw error }
      throw BlobStorageError(.catalogDamaged, "The catalog's file is damaged: \(error.message)")
    }
  }

  private init(file: any File) { self.file = file }

  private mutating func run() throws(BlobStorageError) {
    let byteCount = try file.status().byteCount
    if byteCount == 0 { return }
    let meta = try readMeta(byteCount)
    lastPage = meta.lastPage
    try require(Int64(lastPage) < byteCount / Int64(pageByteCount), "it is shorter than it says")
    try add(meta.freeList)
    try add(meta.main)
    var next = 0
    while next < visits.count, readCount < Self.pageCountMax {
      let visit = visits[next]
      next += 1
      try look(visit)
    }
    guard next == visits.count else { return }
    for (tree, count) in zip(trees, found) {
      try require(
        tree.branchCount == count.branch && tree.leafCount == count.leaf
          && tree.overflowCount == count.overflow
          && tree.entryCount == count.entry, "its counts are wrong")
    }
    try require(free.isDisjoint(with: used), "a page is used and free")
    let isNew = trees[1].root == Self.noPage
    try require(isNew || tableNames == Set(Table.allCases.map(\.name)), "a table is missing")
  }

  // MARK: Meta pages

  private struct Meta {
    var freeList: Tree
    var main: Tree
    var lastPage: UInt64
    var transaction: UInt64
  }

  private mutating func readMeta(_ fileByteCount: Int64) throws(BlobStorageError) -> Meta {
    let start = try bytes(at: 0, 152)
    pageByteCount = Int(try integer(start, 40, UInt32.self))
    try require(
      (512...32_768).contains(pageByteCount) && pageByteCount & (pageByteCount - 1) == 0,
      "its pages have an impossible length")
    try require(fileByteCount >= Int64(2 * pageByteCount), "it ends in its first pages")
    let first = try meta(start, 0)
    let second = try meta(try bytes(at: Int64(pageByteCount), 152), 1)
    let newest = max(first.transaction, second.transaction)
    try require(
      newest - min(first.transaction, second.transaction) <= 1, "its first pages do not fit together")
    if first.transaction == second.transaction {
      try require(newest == 0, "its first pages are the same")
      return first
    }
    try require(
      first.transaction & 1 == 0 && second.transaction & 1 == 1, "its first pages are in the wrong order")
    return first.transaction > second.transaction ? first : second
  }

  private func meta(_ page: [UInt8], _ number: UInt64) throws(BlobStorageError) -> Meta {
    try require(
      all: [
        try integer(page, 0, UInt64.self) == number, try integer(page, 10, UInt16.self) == 8,
        try integer(page, 16, UInt32.self) == 0xBEEF_C0DE, try integer(page, 20, UInt32.self) == 1,
        try integer(page, 40, UInt32.self) == UInt32(pageByteCount),
      ],
      "it does not begin like a catalog")
    try require(
      all: [
        try integer(page, 24, UInt64.self) == 0, try integer(page, 32, UInt64.self) <= 1 << 46,
        try integer(page, 32, UInt64.self) >= UInt64(2 * pageByteCount),
      ],
      "its map is impossible")
    var freeList = try tree(Array(page[40..<88]), flags: 8, mayHavePad: true)
    freeList.isFreeList = true
    var main = try tree(Array(page[88..<136]), flags: 0, mayHavePad: true)
    main.holdsTables = true
    return Meta(
      freeList: freeList, main: main, lastPage: try integer(page, 136, UInt64.self),
      transaction: try integer(page, 144, UInt64.self))
  }

  private func tree(
    _ bytes: [UInt8], flags: UInt16, mayHavePad: Bool = false
  ) throws(BlobStorageError) -> Tree {
    try require(
      all: [
        try integer(bytes, 4, UInt16.self) & 0x7fff == flags,
        mayHavePad ? true : try integer(bytes, 0, UInt32.self) == 0,
      ],
      "a table is of an unknown kind")
    let tree = Tree(
      root: try integer(bytes, 40, UInt64.self), depth: Int(try integer(bytes, 6, UInt16.self)),
      branchCount: try integer(bytes, 8, UInt64.self), leafCount: try integer(bytes, 16, UInt64.self),
      overflowCount: try integer(bytes, 24, UInt64.self), entryCount: try integer(bytes, 32, UInt64.self),
      isFreeList: false, holdsTables: false)
    try require(
      tree.depth <= 24 && (tree.root == Self.noPage) == (tree.depth == 0)
        && (tree.depth > 0 || tree.entryCount == 0), "a table has an impossible depth")
    return tree
  }

  private mutating func add(_ tree: Tree) throws(BlobStorageError) {
    trees.append(tree)
    found.append((0, 0, 0, 0))
    guard tree.root != Self.noPage else { return }
    visits.append(Visit(page: tree.root, tree: trees.count - 1, level: tree.depth, lower: nil, upper: nil))
  }

  // MARK: Pages

  private mutating func look(_ visit: Visit) throws(BlobStorageError) {
    try use(visit.page)
    let page = try bytes(at: Int64(visit.page) * Int64(pageByteCount), pageByteCount)
    readCount += 1
    let isLeaf = visit.level == 1
    let lower = Int(try integer(page, 12, UInt16.self))
    let upper = Int(try integer(page, 14, UInt16.self))
    try require(
      all: [
        try integer(page, 0, UInt64.self) == visit.page,
        try integer(page, 10, UInt16.self) == (isLeaf ? 2 : 1),
      ],
      "page \(visit.page) is not what it should be")
    try require(
      lower >= 16 && lower.isMultiple(of: 2) && lower <= upper && upper <= pageByteCount,
      "page \(visit.page) is filled impossibly")
    let count = (lower - 16) / 2
    try require(count >= (isLeaf ? 1 : 2), "page \(visit.page) is empty")
    if isLeaf { found[visit.tree].leaf += 1 } else { found[visit.tree].branch += 1 }
    var offsets: [Int] = []
    for index in 0..<count { offsets.append(Int(try integer(page, 16 + 2 * index, UInt16.self))) }
    var ends: [Int: Int] = [:]
    var last: [UInt8]?
    for (index, offset) in offsets.enumerated() {
      try require(
        offset >= upper && offset.isMultiple(of: 2) && offset + 8 <= pageByteCount, "a node is misplaced")
      let key: [UInt8]
      let end: Int
      if isLeaf {
        (key, end) = try leafNode(page, offset, visit)
      } else {
        (key, end) = try branchNode(page, offset, index)
      }
      try require(ends.updateValue(end, forKey: offset) == nil, "two nodes lie in one place")
      // A branch page's first key stands for everything before its second.
      if isLeaf || index > 0 {
        if let bound = last ?? visit.lower {
          try require(
            precedes(bound, key, visit) || (last == nil && bound == key), "keys are out of order")
        }
        if let bound = visit.upper { try require(precedes(key, bound, visit), "keys are out of order") }
        last = key
      }
    }
    // Nodes fill the upper part of a page without gaps.
    var place = upper
    while place < pageByteCount, let end = ends.removeValue(forKey: place) { place = end }
    try require(place == pageByteCount && ends.isEmpty, "the nodes of page \(visit.page) overlap")
    if !isLeaf { try addChildren(page, offsets, visit) }
  }

  private func branchNode(
    _ page: [UInt8], _ offset: Int, _ index: Int
  ) throws(BlobStorageError) -> (key: [UInt8], end: Int) {
    let keyByteCount = Int(try integer(page, offset + 6, UInt16.self))
    let end = offset + 8 + keyByteCount
    try require(end <= pageByteCount && keyByteCount <= 511, "a key is too long")
    return (Array(page[offset + 8..<end]), (end + 1) & ~1)
  }

  private mutating func addChildren(
    _ page: [UInt8], _ offsets: [Int], _ visit: Visit
  ) throws(BlobStorageError) {
    var keys: [[UInt8]] = []
    for (index, offset) in offsets.enumerated() { keys.append(try branchNode(page, offset, index).key) }
    for (index, offset) in offsets.enumerated() {
      let child =
        UInt64(try integer(page, offset, UInt32.self)) | UInt64(try integer(page, offset + 4, UInt16.self))
        << 32
      visits.append(
        Visit(
          page: child, tree: visit.tree, level: visit.level - 1, lower: index > 0 ? keys[index] : visit.lower,
          upper: index + 1 < keys.count ? keys[index + 1] : visit.upper))
    }
  }

  private mutating func leafNode(
    _ page: [UInt8], _ offset: Int, _ visit: Visit
  ) throws(BlobStorageError) -> (key: [UInt8], end: Int) {
    found[visit.tree].entry += 1
    let valueByteCount = Int(try integer(page, offset, UInt32.self))
    let flags = try integer(page, offset + 4, UInt16.self)
    let keyByteCount = Int(try integer(page, offset + 6, UInt16.self))
    let valueOffset = offset + 8 + keyByteCount
    let isElsewhere = flags == 1
    let end = valueOffset + (isElsewhere ? 8 : valueByteCount)
    try require(keyByteCount <= 511 && end <= pageByteCount, "a node is too long")
    let key = Array(page[offset + 8..<valueOffset])
    let tree = trees[visit.tree]
    try require(
      flags == (tree.holdsTables ? 2 : 0) || (isElsewhere && !tree.holdsTables),
      "a node is of an unknown kind")
    let value =
      isElsewhere
      ? try overflow(try integer(page, valueOffset, UInt64.self), valueByteCount, visit.tree)
      : Array(page[valueOffset..<end])
    if tree.isFreeList {
      try takeFreePages(key, value)
    } else if tree.holdsTables {
      try require(value.count == 48, "a table is described wrongly")
      tableNames.insert(String(decoding: key, as: UTF8.self))
      try add(try self.tree(value, flags: 0))
    } else {
      let matches = bridgeGuard(key, value)
      try require(matches, "a value does not match its guard")
    }
    return (key, (end + 1) & ~1)
  }

  private func bridgeGuard(_ key: [UInt8], _ value: [UInt8]) -> Bool {
    guard value.count >= 2 else { return false }
    return value.withUnsafeBytes { value in
      let content = UnsafeRawBufferPointer(rebasing: value[..<(value.count - 2)])
      let checksum = key.withUnsafeBytes { CRC32C.checksum($0, continuing: CRC32C.checksum(content)) }
      return value.loadUnaligned(fromByteOffset: content.count, as: UInt16.self).littleEndian
        == UInt16(truncatingIfNeeded: checksum)
    }
  }

  private mutating func overflow(
    _ number: UInt64, _ byteCount: Int, _ tree: Int
  ) throws(BlobStorageError) -> [UInt8] {
    try use(number)
    let head = try bytes(at: Int64(number) * Int64(pageByteCount), 16)
    let count = UInt64(try integer(head, 12, UInt32.self))
    try require(
      all: [
        try integer(head, 0, UInt64.self) == number, try integer(head, 10, UInt16.self) == 4, count >= 1,
        byteCount <= 1 << 30, UInt64(byteCount + 16) <= count * UInt64(pageByteCount),
      ],
      "page \(number) is not the long value that it should be")
    if count > 1 { for page in number + 1..<number + count { try use(page) } }
    found[tree].overflow += count
    readCount += Int(count)
    return try bytes(at: Int64(number) * Int64(pageByteCount) + 16, byteCount)
  }

  private mutating func takeFreePages(_ key: [UInt8], _ value: [UInt8]) throws(BlobStorageError) {
    try require(key.count == 8 && value.count >= 8, "the list of free pages is damaged")
    let count = try integer(value, 0, UInt64.self)
    try require(count < UInt64(value.count / 8), "the list of free pages is too short")
    var last = UInt64.max
    for index in 0..<Int(count) {
      let page = try integer(value, 8 + 8 * index, UInt64.self)
      try require(page >= 2 && page <= lastPage && page < last, "the list of free pages is out of order")
      try require(free.insert(page).inserted, "a page is free twice")
      last = page
    }
  }

  // MARK: Bytes

  private mutating func use(_ page: UInt64) throws(BlobStorageError) {
    try require(page >= 2 && page <= lastPage && used.insert(page).inserted, "page \(page) is used wrongly")
  }

  private func precedes(_ left: [UInt8], _ right: [UInt8], _ visit: Visit) -> Bool {
    guard trees[visit.tree].isFreeList else { return left.lexicographicallyPrecedes(right) }
    return left.reversed().lexicographicallyPrecedes(right.reversed())
  }

  private func bytes(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    try file.bytes(at: offset, count, pack: nil)
  }

  private func integer<T: FixedWidthInteger>(
    _ bytes: [UInt8], _ offset: Int, _ type: T.Type
  ) throws(BlobStorageError) -> T {
    try require(offset >= 0 && offset + MemoryLayout<T>.size <= bytes.count, "a number lies outside its page")
    return T(littleEndian: bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: T.self) })
  }

  private func require(all conditions: [Bool], _ reason: @autoclosure () -> String) throws(BlobStorageError) {
    try require(conditions.allSatisfy { $0 }, reason())
  }

  private func require(_ condition: Bool, _ reason: @autoclosure () -> String) throws(BlobStorageError) {
    if !condition { throw BlobStorageError(.corrupted, reason() + ".") }
  }
}

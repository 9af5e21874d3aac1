import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("Rows in byte order")
struct SortedRowsTests {
  /// Rows, and a sorted array that says what they should be.
  struct Subject {
    struct Row: Equatable {
      var key: [UInt8]
      /// Nil for one that was removed.
      var value: [UInt8]?
    }

    var rows = SortedRows()
    var expected: [Row] = []
    let memory = RowMemory()

    /// Where the key is among those that are expected, or where it would be.
    func place(_ key: [UInt8]) -> (index: Int, isFound: Bool) {
      var (low, high) = (0, expected.count)
      while low < high {
        let middle = (low + high) / 2
        if expected[middle].key.lexicographicallyPrecedes(key) { low = middle + 1 } else { high = middle }
      }
      return (low, low < expected.count && expected[low].key == key)
    }

    mutating func set(_ key: [UInt8], _ value: [UInt8]?) {
      let stored = value.map { bytes in bytes.withUnsafeBytes { memory.copy($0) } }
      let kept = key.withUnsafeBytes { memory.copy($0) }
      rows.set(kept, stored) { _ in kept }
      let (index, isFound) = place(key)
      if isFound {
        expected[index].value = value
      } else {
        expected.insert(Row(key: key, value: value), at: index)
      }
    }

    func row(_ key: [UInt8]) -> Row? {
      key.withUnsafeBytes { rows.row($0) }.map { Row(key: Array($0.key), value: $0.value.map { Array($0) }) }
    }

    /// The rows from a key on.
    func walked(from start: [UInt8] = [], limit: Int = .max) -> [Row] {
      var walk = start.withUnsafeBytes { rows.walk(from: $0) }
      var found: [Row] = []
      while found.count < limit, let row = walk.row {
        found.append(Row(key: Array(row.key), value: row.value.map { Array($0) }))
        walk.advance()
      }
      return found
    }
  }

  /// Keys of few different bytes, some behind a long prefix that they have in common, so that many begin another.
  private static func key(_ random: inout SplitMix64) -> [UInt8] {
    let prefixes: [[UInt8]] = [
      [], [0], [0xff, 0xff], [UInt8](repeating: 0x6b, count: 300), [UInt8](repeating: 0x6b, count: 301),
    ]
    let bytes: [UInt8] = [0, 1, 0x6b, 0x7f, 0x80, 0xff]
    let prefix = prefixes.randomElement(using: &random) ?? []
    return prefix
      + (0..<Int.random(in: 0...7, using: &random)).map { _ in bytes.randomElement(using: &random) ?? 0 }
  }

  private static func value(_ random: inout SplitMix64) -> [UInt8]? {
    switch Int.random(in: 0..<6, using: &random) {
    case 0: nil
    case 1: []
    // Now and then one that is longer than the memory that is taken at once.
    case 2: random.bytes(Int.random(in: 0..<400, using: &random) == 0 ? 70_000 : 300)
    default: random.bytes(Int.random(in: 1...40, using: &random))
    }
  }

  @Test("are those of a sorted array, whatever is set, replaced and removed")
  func model() {
    var random = SplitMix64.announced()
    var subject = Subject()
    #expect(subject.rows.isEmpty && subject.walked().isEmpty && subject.row([1]) == nil)
    for step in 1...12_000 {
      // Each third time a key that is there.
      let isKnown = step % 3 == 0
      let known = isKnown ? subject.expected.randomElement(using: &random)?.key : nil
      subject.set(known ?? Self.key(&random), Self.value(&random))
      guard step % 40 == 0 else { continue }
      let key = Self.key(&random)
      let (index, isFound) = subject.place(key)
      #expect(subject.row(key) == (isFound ? subject.expected[index] : nil), "step \(step)")
      #expect(
        subject.walked(from: key, limit: 5) == Array(subject.expected[index...].prefix(5)), "step \(step)")
      if step % 2_000 == 0 { #expect(subject.walked() == subject.expected, "step \(step)") }
    }
    #expect(subject.expected.count > 3_000)
    #expect(subject.expected.contains { $0.value == nil } && subject.expected.contains { $0.value == [] })
    for row in subject.expected { #expect(subject.row(row.key) == row) }
    let last = (subject.expected.last?.key ?? []) + [0]
    #expect(subject.walked(from: last).isEmpty)
  }

  enum Order: CaseIterable { case ascending, descending, inward }

  @Test("are whole when keys come in order", arguments: Order.allCases)
  func inOrder(_ order: Order) {
    var subject = Subject()
    let count = 4_000
    for index in 0..<count {
      let number =
        switch order {
        case .ascending: index
        case .descending: count - 1 - index
        case .inward: index % 2 == 0 ? index / 2 : count - 1 - index / 2
        }
      subject.set([UInt8(number >> 8), UInt8(number & 0xff)], index % 5 == 0 ? [] : [UInt8(index % 251)])
    }
    #expect(subject.expected.count == count)
    #expect(subject.walked() == subject.expected)
    for start in stride(from: 0, to: count, by: 61) {
      let key = subject.expected[start].key
      #expect(subject.walked(from: key, limit: 130) == Array(subject.expected[start...].prefix(130)))
    }
  }

  @Test("stay as they are in a copy and in a walk while the original changes, and the other way round")
  func copies() {
    var random = SplitMix64.announced()
    var original = Subject()
    for _ in 0..<2_000 { original.set(Self.key(&random), Self.value(&random)) }
    var copies: [Subject] = []
    for _ in 0..<8 {
      var copy = original
      let before = copy.expected
      var walk = copy.rows.walk(from: UnsafeRawBufferPointer(start: nil, count: 0))
      for _ in 0..<400 { original.set(Self.key(&random), Self.value(&random)) }
      #expect(copy.walked() == before)
      #expect(original.walked() == original.expected)
      var walkedCount = 0
      while walk.row != nil {
        walkedCount += 1
        walk.advance()
      }
      #expect(walkedCount == before.count)
      let untouched = original.expected
      for _ in 0..<50 { copy.set(Self.key(&random), Self.value(&random)) }
      #expect(original.walked() == untouched)
      #expect(copy.walked() == copy.expected)
      copies.append(copy)
    }
    for copy in copies { #expect(copy.walked() == copy.expected) }
  }

  @Test("have the order of bytes, not of signed numbers, and a key goes before those that it begins")
  func order() {
    var random = SplitMix64.announced()
    for _ in 0..<3_000 {
      let (one, other) = (Self.key(&random), Self.key(&random))
      let order = one.withUnsafeBytes { first in other.withUnsafeBytes { SortedRows.order(first, $0) } }
      #expect((order < 0) == one.lexicographicallyPrecedes(other))
      #expect((order == 0) == (one == other))
    }
  }
}

import BlobStorage

/// The names that the log of a shared store has ever removed: packs, accepted losses and end marks. They are never used
/// again.
///
/// It stores ranges of sequences, because most packs of a writer are removed in order or all at once.
package struct RemovedPacks: Hashable, Sendable {
  package private(set) var ranges: [UInt64: [ClosedRange<UInt32>]] = [:]

  package init() {}

  package var isEmpty: Bool { ranges.isEmpty }

  package func contains(_ name: PackName) -> Bool {
    guard let ranges = ranges[name.writer] else { return false }
    let index = Self.firstIndex(ranges, endingFrom: name.sequence)
    return index < ranges.count && ranges[index].contains(name.sequence)
  }

  /// The highest removed sequence of a writer.
  package func last(of writer: UInt64) -> UInt32? { ranges[writer]?.last?.upperBound }

  package mutating func insert(_ name: PackName) { insert(name.sequence...name.sequence, of: name.writer) }

  /// Inserts a range of sequences. Sequences begin at 1.
  package mutating func insert(_ range: ClosedRange<UInt32>, of writer: UInt64) {
    var own = ranges[writer] ?? []
    // Merges all ranges that overlap or touch it.
    let first = Self.firstIndex(own, endingFrom: range.lowerBound - 1)
    var (last, union) = (first, range)
    while last < own.count, UInt64(own[last].lowerBound) <= UInt64(range.upperBound) + 1 {
      union =
        min(union.lowerBound, own[last].lowerBound)...max(union.upperBound, own[last].upperBound)
      last += 1
    }
    own.replaceSubrange(first..<last, with: [union])
    ranges[writer] = own
  }

  package mutating func formUnion(_ other: RemovedPacks) {
    for (writer, own) in other.ranges {
      if ranges[writer] == nil {
        ranges[writer] = own
      } else {
        for range in own { insert(range, of: writer) }
      }
    }
  }

  /// The index of the first range that ends at or after `sequence`.
  private static func firstIndex(_ ranges: [ClosedRange<UInt32>], endingFrom sequence: UInt32) -> Int {
    var low = 0
    var high = ranges.count
    while low < high {
      let middle = (low + high) / 2
      if ranges[middle].upperBound < sequence { low = middle + 1 } else { high = middle }
    }
    return low
  }

  // MARK: Bytes

  func encode(into writer: inout ByteWriter) {
    for (number, own) in ranges.sorted(by: { $0.key < $1.key }) {
      writer.integer(number)
      writer.integer(UInt32(own.count))
      for range in own {
        writer.integer(range.lowerBound)
        writer.integer(range.upperBound)
      }
    }
  }

  /// Decodes the ranges of `writerCount` writers. Ranges must be in order and must not overlap or touch.
  init(_ reader: inout ByteReader, writerCount: UInt32) throws(BlobStorageError) {
    var previous: UInt64?
    for _ in 0..<writerCount {
      let number: UInt64 = try reader.integer()
      guard previous.map({ $0 < number }) ?? true else { throw Self.disorder }
      previous = number
      let count: UInt32 = try reader.integer()
      guard count > 0, Int(count) <= reader.remainingByteCount / 8 else { throw Self.disorder }
      var own: [ClosedRange<UInt32>] = []
      own.reserveCapacity(Int(count))
      // Sequences begin at 1. Adjacent ranges must be merged.
      var lowest: UInt64 = 1
      for _ in 0..<count {
        let first: UInt32 = try reader.integer()
        let last: UInt32 = try reader.integer()
        guard UInt64(first) >= lowest, first <= last else { throw Self.disorder }
        own.append(first...last)
        lowest = UInt64(last) + 2
      }
      ranges[number] = own
    }
  }

  private static var disorder: BlobStorageError {
    BlobStorageError(.corrupted, "its ranges are not in order.")
  }
}

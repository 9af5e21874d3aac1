import BlobStorage

/// The packs of a shared store that collectors have ever removed. Their names are never used again.
///
/// It keeps ranges of sequences, because packs of a writer are mostly removed in order, or all.
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

  package mutating func insert(_ name: PackName) {
    guard !contains(name) else { return }
    var own = ranges[name.writer] ?? []
    let index = Self.firstIndex(own, endingFrom: name.sequence)
    var range = name.sequence...name.sequence
    var replaced = index..<index
    if index > 0, own[index - 1].upperBound + 1 == name.sequence {
      range = own[index - 1].lowerBound...range.upperBound
      replaced = index - 1..<replaced.upperBound
    }
    if index < own.count, name.sequence + 1 == own[index].lowerBound {
      range = range.lowerBound...own[index].upperBound
      replaced = replaced.lowerBound..<index + 1
    }
    own.replaceSubrange(replaced, with: [range])
    ranges[name.writer] = own
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

  /// Decodes the ranges of `writerCount` writers. They must be in order, without overlaps or neighbours.
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
      // Sequences begin at 1. Neighbours must be one range.
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

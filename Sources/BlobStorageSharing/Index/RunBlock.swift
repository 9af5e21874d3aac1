import BlobStorage

/// A block: rows in byte order of their keys, and a checksum. Format.md, "The index".
package final class RunBlock: @unchecked Sendable {
  // Unchecked: immutable after `init`.

  /// The longest block. A writer exceeds its target by up to one row.
  static let byteCountMax = 64 << 10
  package static let checksumByteCount = 4

  struct Row {
    let key: UnsafeRawBufferPointer
    let value: UnsafeRawBufferPointer
  }

  private let memory: UnsafeMutableRawBufferPointer
  private let rows: [Row]

  /// - Throws: `corrupted` if the bytes are not a block.
  init(_ bytes: [UInt8]) throws(BlobStorageError) {
    memory = .allocate(byteCount: max(bytes.count, 1), alignment: 8)
    memory.copyBytes(from: bytes)
    let content = UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(memory)[..<bytes.count])
    do throws(BlobStorageError) { rows = try Self.rows(content) } catch {
      memory.deallocate()
      throw error
    }
  }

  deinit { memory.deallocate() }

  private static func rows(_ content: UnsafeRawBufferPointer) throws(BlobStorageError) -> [Row] {
    guard content.count > checksumByteCount, content.endsWithChecksum else {
      throw BlobStorageError(.corrupted, "A block of the index does not match its checksum.")
    }
    var reader = ByteReader(UnsafeRawBufferPointer(rebasing: content.dropLast(checksumByteCount)))
    var rows: [Row] = []
    while reader.remainingByteCount > 0 {
      let keyByteCount = try reader.varint(atMost: content.count)
      let valueByteCount = try reader.varint(atMost: content.count)
      let key = try reader.bytes(keyByteCount)
      if let last = rows.last, SortedRows.order(last.key, key) >= 0 {
        throw BlobStorageError(.corrupted, "Rows of the index are not in their order.")
      }
      rows.append(Row(key: key, value: try reader.bytes(valueByteCount)))
    }
    guard !rows.isEmpty else { throw BlobStorageError(.corrupted, "A block of the index has no rows.") }
    return rows
  }

  /// Appends a row to a block.
  package static func append(
    _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, to sink: inout some ByteSink
  ) {
    sink.varint(key.count)
    sink.varint(value.count)
    sink.raw(key)
    sink.raw(value)
  }

  var count: Int { rows.count }
  subscript(index: Int) -> Row { rows[index] }

  /// The index of the first row whose key is not below `key`; `count` if there is none.
  func index(notBelow key: UnsafeRawBufferPointer) -> Int {
    var (low, high) = (0, rows.count)
    while low < high {
      let middle = (low + high) / 2
      if SortedRows.order(rows[middle].key, key) < 0 { low = middle + 1 } else { high = middle }
    }
    return low
  }
}

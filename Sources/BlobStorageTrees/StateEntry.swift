import BlobStorage
import Foundation

/// One line of a state: a key and its content. Format.md, "States".
package struct StateEntry: Hashable, Sendable {
  package enum Content: Hashable, Sendable {
    /// A file or link with this version.
    case version(Stamp)
    /// A folder with these metadata, as an import writes them.
    case folder([UInt8])
    /// The key was removed; only among changes.
    case removed
  }

  package var key: [UInt8]
  package var content: Content

  package init(key: [UInt8], content: Content) {
    self.key = key
    self.content = content
  }
}

/// Encodes entries in the order of their keys.
struct StateEntryWriter {
  private enum Kind {
    static let removed: UInt8 = 0, version: UInt8 = 1, versionOfOther: UInt8 = 2, folder: UInt8 = 3
  }

  private var writer = ByteWriter()
  private var last: [UInt8] = []
  private var stamp = Stamp.none

  var bytes: [UInt8] { writer.bytes }
  var byteCount: Int { writer.bytes.count }

  mutating func append(_ entry: StateEntry) {
    let shared = last.sharedPrefixCount(with: entry.key)
    let kind: UInt8 =
      switch entry.content {
      case .removed: Kind.removed
      case .version(let new): new.writer == stamp.writer ? Kind.version : Kind.versionOfOther
      case .folder: Kind.folder
      }
    writer.integer(kind)
    writer.varint(shared)
    writer.varint(entry.key.count - shared)
    entry.key[shared...].withUnsafeBytes { writer.raw($0) }
    switch entry.content {
    case .removed: break
    case .version(let new):
      writer.varint(Varint.unsigned(Int64(bitPattern: new.time &- stamp.time)))
      if kind == Kind.versionOfOther { writer.integer(new.writer) }
      stamp = new
    case .folder(let metadata):
      writer.varint(metadata.count)
      writer.raw(metadata)
    }
    last = entry.key
  }
}

/// Decodes entries from parts of their bytes, and checks that keys ascend.
struct StateEntryReader {
  private static let byteCountMax =
    1 + 3 * Varint.byteCountMax + BlobLimits.maximumKeyByteCount
    + BlobLimits.maximumMetadataByteCount + 8

  private let nextPart: () throws(BlobStorageError) -> [UInt8]
  private var bytes: [UInt8] = []
  private var offset = 0
  private var isAtEnd = false
  private var last: [UInt8]?
  private var stamp = Stamp.none

  /// - Parameter nextPart: returns the next bytes; none at the end.
  init(_ nextPart: @escaping () throws(BlobStorageError) -> [UInt8]) { self.nextPart = nextPart }

  init(_ bytes: [UInt8]) {
    self.init { [] }
    (self.bytes, isAtEnd) = (bytes, true)
  }

  /// The next entry; nil after the last.
  ///
  /// - Throws: `corrupted` for bytes that are no entry.
  mutating func next() throws(BlobStorageError) -> StateEntry? {
    while bytes.count - offset < Self.byteCountMax, !isAtEnd {
      let part = try nextPart()
      isAtEnd = part.isEmpty
      bytes.removeFirst(offset)
      offset = 0
      bytes += part
    }
    if offset == bytes.count { return nil }
    let (last, stamp) = (last ?? [], stamp)
    let (entry, newStamp, byteCount) = try bridge(bytes) {
      (raw) throws(BlobStorageError) in
      var reader = ByteReader(UnsafeRawBufferPointer(rebasing: raw[offset...]))
      let (entry, stamp) = try Self.entry(&reader, after: last, stamp)
      return (entry, stamp, raw.count - offset - reader.remainingByteCount)
    }
    guard self.last == nil || last.precedes(entry.key) else {
      throw BlobStorageError(.corrupted, "The entries of a state are not in the order of their keys.")
    }
    offset += byteCount
    (self.last, self.stamp) = (entry.key, newStamp)
    return entry
  }

  private static func entry(
    _ reader: inout ByteReader, after last: [UInt8], _ stamp: Stamp
  ) throws(BlobStorageError) -> (StateEntry, Stamp) {
    let kind: UInt8 = try reader.integer()
    let shared = try reader.varint(atMost: last.count)
    let rest = try reader.varint(atMost: BlobLimits.maximumKeyByteCount - shared)
    var key: [UInt8] = []
    key.reserveCapacity(shared + rest)
    key += last[..<shared]
    key += try reader.bytes(rest)
    switch kind {
    case 0: return (StateEntry(key: key, content: .removed), stamp)
    case 1, 2:
      let time = stamp.time &+ UInt64(bitPattern: Varint.signed(try reader.varint()))
      let new = Stamp(time: time, writer: kind == 1 ? stamp.writer : try reader.integer())
      return (StateEntry(key: key, content: .version(new)), new)
    case 3:
      let count = try reader.varint(atMost: BlobLimits.maximumMetadataByteCount)
      return (StateEntry(key: key, content: .folder(Array(try reader.bytes(count)))), stamp)
    default: throw BlobStorageError(.corrupted, "An entry of a state is of no known kind.")
    }
  }
}

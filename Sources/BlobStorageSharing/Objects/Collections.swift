import BlobStorage

/// What collectors have said so far: the last entry of their log says it all. Format.md, "Objects of a shared store".
///
/// Entries are objects that are put if absent, numbered from 1 without gaps, and never deleted: all who read them agree
/// on their order. An entry either condemns packs, or says that those condemned by the entry before are removed.
package struct Collections: Hashable, Sendable {
  /// How many entries there are.
  package var number: UInt32 = 0
  /// The last entry that condemns; 0 before the first.
  package var epoch: UInt32 = 0
  /// Who put the last entry.
  package var collector: UInt64 = 0
  /// Packs that nobody counts on any more. They stay condemned until they are removed.
  package var condemned: Set<PackName> = []
  /// Packs that are no part of the store, whether an object of that name can be seen or not.
  package var removed = RemovedPacks()

  /// Before the first entry.
  package init() {}

  /// Whether somebody waits for all writers to pass.
  package var isStanding: Bool { epoch > 0 && epoch == number }

  func encoded(storeID: [UInt8]) -> [UInt8] {
    var writer = ByteWriter(capacity: 16 + condemned.count * PackName.byteCount)
    writer.integer(epoch)
    writer.integer(UInt32(condemned.count))
    writer.integer(UInt32(removed.ranges.count))
    writer.zeros(4)
    for name in condemned.sorted() {
      writer.integer(name.writer)
      writer.integer(name.sequence)
    }
    removed.encode(into: &writer)
    return SharedObject(
      .collection, number: number, storeID: storeID, writer: collector, body: writer.bytes
    ).encoded()
  }

  /// - Throws: `corrupted` for bytes that are no entry of that number.
  package init(_ bytes: [UInt8], number: UInt32, storeID: [UInt8]) throws(BlobStorageError) {
    let name = SharedNames.collection(number)
    let object = try SharedObject(bytes, .collection, storeID: storeID, name: name)
    guard object.number == number, number > 0 else {
      throw BlobStorageError(.corrupted, "The object \(name) is entry \(object.number).", path: name)
    }
    self.number = number
    collector = object.writer
    do throws(BlobStorageError) {
      try bridge(object.body) { (raw) throws(BlobStorageError) in
        var reader = ByteReader(raw)
        epoch = try reader.integer()
        let condemnedCount: UInt32 = try reader.integer()
        let writerCount: UInt32 = try reader.integer()
        try reader.reserved(4)
        guard 1...number ~= epoch, Int(condemnedCount) <= reader.remainingByteCount / PackName.byteCount
        else {
          throw BlobStorageError(.corrupted, "its numbers are not possible.")
        }
        var last: PackName?
        for _ in 0..<condemnedCount {
          let pack = PackName(writer: try reader.integer(), sequence: try reader.integer())
          guard pack.sequence > 0, last.map({ $0 < pack }) ?? true else {
            throw BlobStorageError(.corrupted, "its packs are not in order.")
          }
          last = pack
          condemned.insert(pack)
        }
        removed = try RemovedPacks(&reader, writerCount: writerCount)
        try reader.finish()
      }
    } catch {
      throw BlobStorageError(error.code, "The object \(name) is damaged: \(error.message)", path: name)
    }
  }
}

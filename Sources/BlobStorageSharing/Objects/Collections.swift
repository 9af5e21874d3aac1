import BlobStorage

/// The state of a shared store's log: which packs are condemned, and which were ever removed. Format.md, "Objects of a
/// shared store".
///
/// Each entry holds the whole state after it, so the last one suffices. Entries are conditional puts, numbered from 1
/// without gaps, and never deleted, so all readers agree on their order. An entry condemns packs, removes packs that the
/// entry before condemned, or accepts that packs are lost.
package struct Collections: Hashable, Sendable {
  /// The number of entries.
  package var number: UInt32 = 0
  /// The last entry that condemns; 0 before the first.
  package var epoch: UInt32 = 0
  /// The writer number of the collector that put the last entry.
  package var collector: UInt64 = 0
  /// Packs that no new put may rely on. They stay condemned until they are removed.
  package var condemned: Set<PackName> = []
  /// Packs that are no longer part of the store, even if an object has their name.
  package var removed = RemovedPacks()

  /// The state before the first entry.
  package init() {}

  /// Whether a collector waits for acknowledgements: the last entry condemns.
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

  /// Decodes an entry.
  ///
  /// - Throws: `corrupted` for bytes that are not the entry `number`.
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
        guard epoch <= number, Int(condemnedCount) <= reader.remainingByteCount / PackName.byteCount
        else {
          throw BlobStorageError(.corrupted, "its numbers are invalid.")
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

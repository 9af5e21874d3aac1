import BlobStorage

/// The state of a shared store's log: the condemned packs, and all packs ever removed. Format.md, "Objects of a shared
/// store".
///
/// Entries are conditional puts, numbered from 1 without gaps, so all readers agree on their order. Each entry condemns
/// packs, removes packs that an earlier entry condemned, or accepts that packs are lost. A checkpoint holds the whole
/// state after an entry, and replaces all entries before that one.
package struct Collections: Hashable, Sendable {
  /// The number of entries.
  package var number: UInt32 = 0
  /// The number of the last entry that condemns; 0 before the first.
  package var epoch: UInt32 = 0
  /// The writer number of the collector that put the last entry.
  package var collector: UInt64 = 0
  /// Packs that no new put may rely on. They stay condemned until they are removed.
  package var condemned: Set<PackName> = []
  /// The checksum of the last entry. The next entry contains it. So readers detect an entry that was put under the
  /// number of a deleted one.
  package var link: UInt32 = 0
  /// Collectors may delete changes up to this number once all writers have acknowledged the entry that sets it.
  package var horizon: UInt32 = 0
  /// Packs that have left the store, even if an object has their name.
  package var removed = RemovedPacks()

  /// The state before the first entry.
  package init() {}

  /// Whether a collector waits for acknowledgements, because the last entry condemns.
  package var isStanding: Bool { epoch > 0 && epoch == number }

  /// The state after `entry`, which follows this one.
  ///
  /// - Parameter link: the checksum of the entry.
  func applying(_ entry: Collections, link: UInt32) -> Collections {
    var next = self
    next.number = entry.number
    next.epoch = entry.epoch
    next.collector = entry.collector
    next.link = link
    next.horizon = max(next.horizon, entry.horizon)
    next.condemned.formUnion(entry.condemned)
    next.removed.formUnion(entry.removed)
    if !entry.removed.isEmpty { next.condemned = next.condemned.filter { !next.removed.contains($0) } }
    return next
  }

  /// - Parameter kind: for a `collection`, `link` is the checksum of the entry before.
  func encoded(_ kind: SharedObject.Kind, storeID: [UInt8]) -> [UInt8] {
    var writer = ByteWriter(capacity: 16 + condemned.count * PackName.byteCount)
    writer.integer(epoch)
    writer.integer(UInt32(condemned.count))
    writer.integer(UInt32(removed.ranges.count))
    writer.integer(link)
    for name in condemned.sorted() {
      writer.integer(name.writer)
      writer.integer(name.sequence)
    }
    removed.encode(into: &writer)
    if horizon > 0 { writer.integer(horizon) }
    return SharedObject(
      kind, number: number, storeID: storeID, writer: collector, body: writer.bytes
    ).encoded()
  }

  /// Decodes an entry or a checkpoint.
  ///
  /// - Parameter number: the number that it must have; nil for any.
  /// - Throws: `corrupted` for other bytes; `unsupportedFormat` for another format version.
  package init(
    _ bytes: [UInt8], _ kind: SharedObject.Kind, number expected: UInt32?, storeID: [UInt8], name: String
  ) throws(BlobStorageError) {
    let object = try SharedObject(bytes, kind, storeID: storeID, name: name)
    number = object.number
    // None could follow the greatest number.
    guard 1..<UInt32.max ~= number, number == expected ?? number else {
      throw BlobStorageError(.corrupted, "The object \(name) has the number \(number).", path: name)
    }
    collector = object.writer
    do throws(BlobStorageError) {
      try bridge(object.body) { (raw) throws(BlobStorageError) in
        var reader = ByteReader(raw)
        epoch = try reader.integer()
        let condemnedCount: UInt32 = try reader.integer()
        let writerCount: UInt32 = try reader.integer()
        link = try reader.integer()
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
        if reader.remainingByteCount > 0 {
          horizon = try reader.integer()
          guard horizon > 0 else { throw BlobStorageError(.corrupted, "its last change is 0.") }
        }
        try reader.finish()
      }
    } catch {
      throw BlobStorageError(error.code, "The object \(name) is damaged: \(error.message)", path: name)
    }
  }
}

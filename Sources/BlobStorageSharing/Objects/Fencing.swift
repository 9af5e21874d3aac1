import BlobStorage

/// An object under the name of a pack, so that its writer cannot publish that pack, nor any behind it.
///
/// Writers publish in the order of their sequences, if absent: who finds a fence in the way reports no success.
package struct Fence: Hashable, Sendable {
  /// Shorter than any pack, so that a listing tells them apart.
  package static let byteCount = SharedObject.byteCountMin + 8

  package var name: PackName
  /// Who put it.
  package var collector: UInt64

  package init(_ name: PackName, by collector: UInt64) {
    self.name = name
    self.collector = collector
  }

  package func encoded(storeID: [UInt8]) -> [UInt8] {
    var body = ByteWriter(capacity: 8)
    body.integer(collector)
    return SharedObject(
      .fence, number: name.sequence, storeID: storeID, writer: name.writer, body: body.bytes
    ).encoded()
  }

  /// - Throws: `corrupted` for bytes that are no fence in that place.
  package init(_ bytes: [UInt8], _ name: PackName, storeID: [UInt8]) throws(BlobStorageError) {
    let path = SharedNames.pack(name)
    let object = try SharedObject(bytes, .fence, storeID: storeID, name: path)
    guard object.writer == name.writer, object.number == name.sequence else {
      throw BlobStorageError(.corrupted, "The object \(path) is a fence of another place.", path: path)
    }
    self.name = name
    collector = try bridge(object.body) { (raw) throws(BlobStorageError) in
      var reader = ByteReader(raw)
      return try reader.integer()
    }
  }
}

/// Keeps a writer from publishing any more.
package enum Fencing {
  package enum Outcome: Hashable, Sendable {
    /// Nothing of that writer is published from this sequence on.
    case fenced(UInt32)
    /// It published again and again meanwhile: it lives.
    case publishes
  }

  private static let attemptCountMax = 8

  /// Fences a writer behind the last pack it published. List packs afterwards: one may have come in between.
  ///
  /// - Parameter removed: as of a condemnation of the caller's; what was removed is listed no more, and was published
  ///   all the same.
  package static func fence(
    _ writer: UInt64, removed: RemovedPacks, by collector: UInt64, _ objects: any ObjectStore,
    storeID: [UInt8], weaknesses: Weaknesses = []
  ) throws(BlobStorageError) -> Outcome {
    var last: UInt32 = weaknesses.contains(.fencesByListing) ? 0 : removed.last(of: writer) ?? 0
    for entry in try objects.listAll(SharedNames.packs(of: writer)) {
      guard let name = SharedNames.packName(entry.name), !removed.contains(name) else { continue }
      // Who was fenced before publishes nothing behind it.
      if entry.byteCount == Int64(Fence.byteCount), try isFence(name, objects, storeID) {
        return .fenced(name.sequence)
      }
      last = max(last, name.sequence)
    }
    for _ in 0..<attemptCountMax {
      guard last < .max else { return .publishes }
      let name = PackName(writer: writer, sequence: last + 1)
      let fence = Fence(name, by: collector).encoded(storeID: storeID)
      if try objects.put(SharedNames.pack(name), .bytes(fence), ifAbsent: true) == .stored {
        return .fenced(name.sequence)
      }
      // A pack; or this very fence, whose answer was lost, or another collector's.
      if try isFence(name, objects, storeID) { return .fenced(name.sequence) }
      last += 1
    }
    return .publishes
  }

  /// Whether what lies there is a fence. A pack that has gone since was one.
  private static func isFence(
    _ name: PackName, _ objects: any ObjectStore, _ storeID: [UInt8]
  ) throws(BlobStorageError) -> Bool {
    guard let (bytes, byteCount) = try objects.tail(SharedNames.pack(name), byteCount: Fence.byteCount),
      byteCount == Int64(Fence.byteCount)
    else { return false }
    _ = try Fence(bytes, name, storeID: storeID)
    return true
  }
}

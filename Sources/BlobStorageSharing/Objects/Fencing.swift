import BlobStorage

/// An object under the name of a writer's next pack, so that the writer cannot publish that pack or any later one.
///
/// Writers publish in sequence by conditional put. A writer that finds a fence reports no success. A writer that leaves
/// puts its own fence, the *end mark*. If the writer's last pack is lost later, the end mark shows that.
package struct Fence: Hashable, Sendable {
  /// Shorter than any pack, so that a listing shows which objects are fences.
  package static let byteCount = SharedObject.byteCountMin + 8
  /// The length of an end mark.
  package static let endByteCount = SharedObject.byteCountMin

  package var name: PackName
  /// The writer number of the collector that put it; nil for an end mark.
  package var collector: UInt64?

  package init(_ name: PackName, by collector: UInt64?) {
    self.name = name
    self.collector = collector
  }

  /// Whether an object of this length under a pack's name is a fence.
  package static func hasLength(_ byteCount: Int64) -> Bool {
    byteCount == Int64(Self.byteCount) || byteCount == Int64(endByteCount)
  }

  package func encoded(storeID: [UInt8]) -> [UInt8] {
    var body = ByteWriter(capacity: 8)
    if let collector { body.integer(collector) }
    return SharedObject(
      .fence, number: name.sequence, storeID: storeID, writer: name.writer, body: body.bytes
    ).encoded()
  }

  /// Decodes a fence.
  ///
  /// - Throws: `corrupted` for bytes that are not a fence of that name; `unsupportedFormat` for another format version.
  package init(_ bytes: [UInt8], _ name: PackName, storeID: [UInt8]) throws(BlobStorageError) {
    let path = SharedNames.pack(name)
    let object = try SharedObject(bytes, .fence, storeID: storeID, name: path)
    guard object.writer == name.writer, object.number == name.sequence, [0, 8].contains(object.body.count)
    else {
      throw BlobStorageError(.corrupted, "The object \(path) is a fence for another name.", path: path)
    }
    self.name = name
    collector = try bridge(object.body) { (raw) throws(BlobStorageError) -> UInt64? in
      var reader = ByteReader(raw)
      return raw.isEmpty ? nil : try reader.integer()
    }
  }
}

/// Stops a writer from publishing.
package enum Fencing {
  private static let attemptCountMax = 8

  /// Puts a fence after the last pack that a writer published.
  ///
  /// List packs afterwards, because the writer may have published one more.
  ///
  /// - Parameters:
  ///   - published: the last sequence that the writer is known to have published. Its pack may be lost.
  ///   - removed: the removed packs as of the caller's condemnation. They were published, and listings lack them.
  ///   - collector: nil for a writer that has ended.
  /// - Returns: the sequence from which on the writer publishes no pack; nil if it kept publishing during the attempts.
  package static func fence(
    _ writer: UInt64, published: UInt32 = 0, removed: RemovedPacks, by collector: UInt64?,
    _ objects: any ObjectStore, storeID: [UInt8], weaknesses: Weaknesses = []
  ) throws(BlobStorageError) -> UInt32? {
    var last: UInt32 =
      weaknesses.contains(.fencesByListing) ? 0 : max(published, removed.last(of: writer) ?? 0)
    for entry in try objects.listAll(SharedNames.packs(of: writer)) {
      guard let name = SharedNames.packName(entry.name), !removed.contains(name) else { continue }
      // A writer that was fenced before has published nothing behind that fence.
      if Fence.hasLength(entry.byteCount) {
        guard let isFence = try isFence(name, objects, storeID) else { continue }
        if isFence { return name.sequence }
      }
      last = max(last, name.sequence)
    }
    for _ in 0..<attemptCountMax {
      guard last < .max else { return nil }
      let name = PackName(writer: writer, sequence: last + 1)
      let fence = Fence(name, by: collector).encoded(storeID: storeID)
      if try objects.put(SharedNames.pack(name), .bytes(fence), ifAbsent: true) == .stored {
        return name.sequence
      }
      // The object is a pack, another collector's fence, or this one: an earlier attempt's response was lost.
      guard let isFence = try isFence(name, objects, storeID) else {
        // It has gone. If no collector has removed a pack of that name, the writer may still publish one.
        let log = try CollectionLog(objects, storeID: storeID).read(after: Collections())
        if log.removed.contains(name) { last += 1 }
        continue
      }
      if isFence { return name.sequence }
      last += 1
    }
    return nil
  }

  /// Whether the object is a fence; nil if there is none.
  static func isFence(
    _ name: PackName, _ objects: any ObjectStore, _ storeID: [UInt8]
  ) throws(BlobStorageError) -> Bool? {
    guard let (bytes, byteCount) = try objects.tail(SharedNames.pack(name), byteCount: Fence.byteCount) else {
      return nil
    }
    guard Fence.hasLength(byteCount) else { return false }
    do throws(BlobStorageError) {
      _ = try Fence(bytes, name, storeID: storeID)
      return true
    } catch {
      // A stray object also takes the name, but only a fence stays.
      guard error.code == .corrupted else { throw error }
      return false
    }
  }
}

import BlobStorage

/// What a shared store consists of: the packs that are listed and not removed.
///
/// The order that makes it one picture: packs are listed, *then* the collections are read. When they say that packs
/// were removed meanwhile, what was copied out of those may be missing in the listing, so packs are listed again.
package struct StoreListing: Sendable {
  package var collections: Collections
  /// The packs, and how long they are. Condemned ones are among them: they are read, and not counted on.
  package var packs: [PackName: Int64] = [:]
  /// From which sequence on writers have been fenced.
  package var fences: [UInt64: UInt32] = [:]
  /// Objects of removed packs: a delete that did not take place, or a put that did so late. Anybody may delete them.
  package var leftovers: [PackName] = []
  /// Not listed, not removed, and published before others that are listed: somebody has deleted objects. Nothing may
  /// be collected. Named are the first ``missingCountMax``.
  package var missing: [PackName] = []

  /// So many of those that are missing are named.
  package static let missingCountMax = 1_000
  private static let attemptCountMax = 64

  /// - Complexity: a request for each page of packs, and two of the collections.
  package static func take(
    _ objects: any ObjectStore, storeID: [UInt8], known: Collections, weaknesses: Weaknesses = []
  ) throws(BlobStorageError) -> StoreListing {
    let log = CollectionLog(objects, storeID: storeID)
    var before = try log.read(after: known)
    var gaps: [PackName]?
    for _ in 0..<attemptCountMax {
      let entries = try objects.listAll(SharedNames.packs)
      let after = try log.read(after: before)
      let isOutdated = after.removed != before.removed
      before = after
      if isOutdated { continue }
      let listing = StoreListing(entries, after)
      // Pages are not of one moment: a later pack can be in a page that was asked for when an earlier one was not there.
      if weaknesses.contains(.acceptsGaps) || listing.missing.isEmpty || listing.missing == gaps {
        return listing
      }
      gaps = listing.missing
    }
    throw BlobStorageError(.busy, "Packs were removed again and again while they were listed: try again.")
  }

  private init(_ entries: [ObjectPage.Entry], _ collections: Collections) {
    self.collections = collections
    var sequences: [UInt64: [UInt32]] = [:]
    for entry in entries {
      guard let name = SharedNames.packName(entry.name) else { continue }
      if collections.removed.contains(name) {
        leftovers.append(name)
      } else {
        sequences[name.writer, default: []].append(name.sequence)
        if entry.byteCount == Int64(Fence.byteCount) {
          fences[name.writer] = min(name.sequence, fences[name.writer] ?? .max)
        } else {
          packs[name] = entry.byteCount
        }
      }
    }
    for (writer, listed) in sequences.sorted(by: { $0.key < $1.key }) {
      var next: UInt32 = 1
      for sequence in listed.sorted() {
        if next < sequence { addMissing(writer, next..<sequence) }
        // None comes behind the last possible one.
        next = sequence == .max ? sequence : sequence + 1
      }
    }
  }

  /// Adds those of a gap that were not removed. Any name can be put into a bucket: a gap may be as long as numbers go.
  private mutating func addMissing(_ writer: UInt64, _ gap: Range<UInt32>) {
    var next = gap.lowerBound
    for removed in collections.removed.ranges[writer] ?? [] where removed.upperBound >= next {
      append(writer, next..<min(max(removed.lowerBound, next), gap.upperBound))
      guard removed.upperBound < gap.upperBound else { return }
      next = removed.upperBound + 1
    }
    append(writer, next..<max(next, gap.upperBound))
  }

  private mutating func append(_ writer: UInt64, _ sequences: Range<UInt32>) {
    for sequence in sequences.prefix(Self.missingCountMax - missing.count) {
      missing.append(PackName(writer: writer, sequence: sequence))
    }
  }
}

import BlobStorage

/// The packs of a shared store: those that are listed and not removed.
///
/// It lists packs and *then* reads the log, so that both agree. If the log removed packs meanwhile, the listing may
/// lack the copies of their records. Then it lists again.
package struct StoreListing: Sendable {
  package var collections: Collections
  /// The packs and their lengths. Condemned packs are included: they are read, but no new put relies on them.
  package var packs: [PackName: Int64] = [:]
  /// The sequence of each fenced writer's fence.
  package var fences: [UInt64: UInt32] = [:]
  /// Objects of removed packs, by a delete that was lost or a put that came late. Any machine may delete them.
  package var leftovers: [PackName] = []
  /// Packs that are neither listed nor removed, though later ones are listed: their objects were deleted. No collection
  /// may remove anything. Holds at most the first ``missingCountMax``.
  package var missing: [PackName] = []

  /// The most missing packs to name.
  package static let missingCountMax = 1_000
  private static let attemptCountMax = 64

  /// Lists the packs and reads the log until both agree.
  ///
  /// - Complexity: one request for each page of packs, and two for the log.
  package static func read(
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
      // Pages are not from one moment: a later page may have a pack whose predecessor came after an earlier page.
      if weaknesses.contains(.acceptsGaps) || listing.missing.isEmpty || listing.missing == gaps {
        return listing
      }
      gaps = listing.missing
    }
    throw BlobStorageError(.busy, "Other machines kept removing packs during the listing: try again.")
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
        // No pack follows the last possible one.
        next = sequence == .max ? sequence : sequence + 1
      }
    }
  }

  /// Adds the packs of a gap that were not removed. A gap may be huge, because anyone can put any name into a bucket.
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

import BlobStorage

/// The packs of a shared store: the listed ones that are not removed.
///
/// It lists packs and *then* reads the log. If the log removed packs meanwhile, the listing may lack the copies of
/// their records, so it lists again.
package struct StoreListing: Sendable {
  package var collections: Collections
  /// The last change as of before the listing of packs.
  package var lastChange: UInt32 = 0
  /// Whether it has only packs that changes name, with length 0. Then it proves nothing about other packs.
  package private(set) var isPartial = false
  /// Whether a change shows that its writer was fenced or has left.
  private(set) var endsWriters = false
  /// The packs and their lengths. Includes condemned packs: machines read them, but new puts do not rely on them.
  package var packs: [PackName: Int64] = [:]
  /// The sequence of each writer's fence or end mark.
  package var fences: [UInt64: UInt32] = [:]
  /// The writers among these that have left.
  package var ended: Set<UInt64> = []
  /// Objects of removed packs, left by a lost delete or a late put. Any machine may delete them.
  package var leftovers: [PackName] = []
  /// Packs that are neither listed nor removed, although later packs or a fence are listed, or a registration names
  /// them: their objects were deleted. Collections must remove nothing. Holds the first ``missingCountMax`` at most.
  package var missing: [PackName] {
    gaps.lazy.flatMap { gap in gap.sequences.lazy.map { PackName(writer: gap.writer, sequence: $0) } }
      .prefix(Self.missingCountMax).sorted()
  }
  /// All missing packs, as ranges of each writer's sequences.
  package private(set) var gaps: [(writer: UInt64, sequences: ClosedRange<UInt32>)] = []

  /// The most missing packs to list by name.
  package static let missingCountMax = 1_000
  private static let attemptCountMax = 64

  /// Lists the packs and reads the log until both agree.
  ///
  /// - Parameters:
  ///   - published: the last sequences that writers are known to have published.
  ///   - strays: packs of other stores, to ignore.
  ///   - writer: lists only this writer's packs.
  /// - Complexity: one request for each page of packs, and two for the log.
  package static func read(
    _ objects: any ObjectStore, storeID: [UInt8], known: Collections, published: [UInt64: UInt32] = [:],
    strays: Set<PackName> = [], of writer: UInt64? = nil, weaknesses: Weaknesses = []
  ) throws(BlobStorageError) -> StoreListing {
    let log = CollectionLog(objects, storeID: storeID)
    var before = try log.read(after: known)
    var gaps: [PackName]?
    for _ in 0..<attemptCountMax {
      let entries = try objects.listAll(writer.map { SharedNames.packs(of: $0) } ?? SharedNames.packs)
      let after = try log.read(after: before)
      let isOutdated = after.removed != before.removed
      before = after
      if isOutdated { continue }
      let last = Self.published(published, after.removed, of: writer)
      let noFences = try noFences(entries, after, last, strays, objects, storeID)
      let listing = StoreListing(entries, after, last, strays.union(noFences))
      // Pages are not from one moment: a later page may have a pack whose predecessor came after an earlier page.
      if weaknesses.contains(.acceptsGaps) || listing.missing.isEmpty || listing.missing == gaps {
        return listing
      }
      gaps = listing.missing
    }
    throw BlobStorageError(.busy, "Other machines kept removing packs during the listing: try again.")
  }

  /// Adds the packs that were removed: their writers had published all packs before them.
  private static func published(
    _ known: [UInt64: UInt32], _ removed: RemovedPacks, of writer: UInt64?
  ) -> [UInt64: UInt32] {
    var published = known
    for owner in writer.map({ [$0] }) ?? Array(removed.ranges.keys) {
      guard let last = removed.last(of: owner) else { continue }
      published[owner] = max(published[owner] ?? 0, last)
    }
    return published
  }

  /// The published packs whose objects are as short as a fence but are not fences: something has replaced them, so the
  /// packs are missing.
  ///
  /// No writer publishes behind a fence, or puts an end mark there. So it reads only objects that have others behind
  /// them, or whose names were published.
  private static func noFences(
    _ entries: [ObjectPage.Entry], _ collections: Collections, _ published: [UInt64: UInt32],
    _ strays: Set<PackName>, _ objects: any ObjectStore, _ storeID: [UInt8]
  ) throws(BlobStorageError) -> Set<PackName> {
    func counts(_ name: PackName) -> Bool { !strays.contains(name) && !collections.removed.contains(name) }
    var found: Set<PackName> = []
    for (index, entry) in entries.enumerated() where Fence.hasLength(entry.byteCount) {
      guard let name = SharedNames.packName(entry.name), counts(name) else { continue }
      var isPublished = published[name.writer] ?? 0 >= name.sequence
      // A listing is in order: the writer's later packs and its end mark follow.
      var next = index + 1
      while !isPublished, next < entries.count, let later = SharedNames.packName(entries[next].name),
        later.writer == name.writer
      {
        isPublished = counts(later)
        next += 1
      }
      guard isPublished else { continue }
      do throws(BlobStorageError) {
        if try Fencing.isFence(name, objects, storeID) != true { found.insert(name) }
      } catch {
        // A fence of a later build.
        guard error.code == .unsupportedFormat else { throw error }
      }
    }
    return found
  }

  /// Whether a fence keeps the pack from being part of the store.
  package func isFenced(_ name: PackName) -> Bool { fences[name.writer].map { $0 <= name.sequence } ?? false }

  /// Whether a published pack is neither listed nor removed.
  package func isMissing(_ name: PackName) -> Bool {
    !isPartial && packs[name] == nil && !collections.removed.contains(name) && !isFenced(name)
  }

  /// The end marks of writers that have no packs except these.
  package func ends(without names: Set<PackName>) -> [PackName] {
    let living = Set(packs.keys.lazy.filter { !names.contains($0) }.map(\.writer))
    return ended.subtracting(living).sorted().compactMap { writer in
      fences[writer].map { PackName(writer: writer, sequence: $0) }
    }
  }

  /// Creates a partial listing of the packs that changes name and that are not removed.
  init(
    _ changes: [Change], upTo lastChange: UInt32, _ collections: Collections, strays: Set<PackName>
  ) {
    self.collections = collections
    self.lastChange = lastChange
    isPartial = true
    for change in changes {
      endsWriters = endsWriters || change.isLast
      if change.isLast { fences[change.writer] = min(change.end, fences[change.writer] ?? .max) }
      for name in change.names where !collections.removed.contains(name) && !strays.contains(name) {
        packs[name] = 0
      }
    }
  }

  private init(
    _ entries: [ObjectPage.Entry], _ collections: Collections, _ published: [UInt64: UInt32],
    _ strays: Set<PackName>
  ) {
    self.collections = collections
    var sequences: [UInt64: [UInt32]] = published.mapValues { _ in [] }
    for entry in entries {
      guard let name = SharedNames.packName(entry.name), !strays.contains(name) else { continue }
      if collections.removed.contains(name) {
        leftovers.append(name)
      } else {
        sequences[name.writer, default: []].append(name.sequence)
        if Fence.hasLength(entry.byteCount) {
          fences[name.writer] = min(name.sequence, fences[name.writer] ?? .max)
          if entry.byteCount == Int64(Fence.endByteCount) { ended.insert(name.writer) }
        } else {
          packs[name] = entry.byteCount
        }
      }
    }
    for (writer, listed) in sequences.sorted(by: { $0.key < $1.key }) {
      var next: UInt32 = 1
      for sequence in listed.sorted() {
        if next < sequence { addMissing(writer, next..<sequence) }
        // No sequence follows the greatest one.
        next = sequence == .max ? sequence : sequence + 1
      }
      if let last = published[writer], last >= next, last < .max { addMissing(writer, next..<last + 1) }
    }
  }

  /// Adds the packs of a gap that were not removed. A gap may be huge, because any name may be put into a bucket.
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
    guard !sequences.isEmpty else { return }
    gaps.append((writer, sequences.lowerBound...sequences.upperBound - 1))
  }
}

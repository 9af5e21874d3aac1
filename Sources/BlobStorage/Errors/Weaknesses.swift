/// Protections that a test switches off, to check that it detects their absence. Nothing else does.
///
/// Release builds have no such switches, except test builds with `-DWEAKNESSES`.
package struct Weaknesses: OptionSet, Sendable {
  package let rawValue: Int
  package init(rawValue: Int) { self.rawValue = rawValue }

  package func contains(_ weakness: Weaknesses) -> Bool {
    #if DEBUG || WEAKNESSES
      isSuperset(of: weakness)
    #else
      false
    #endif
  }

  /// Writers rely on records in condemned packs (H2).
  package static let trustsCondemnedPacks = Weaknesses(rawValue: 1 << 0)
  /// gc ignores leases (H3).
  package static let ignoresLeases = Weaknesses(rawValue: 1 << 1)
  /// A put shares chunks even if they may not be on the medium (H1).
  package static let skipsSharedSync = Weaknesses(rawValue: 1 << 2)
  /// Compaction drops tombstones while copies of their refs are left (H4).
  package static let forgetsDropsEarly = Weaknesses(rawValue: 1 << 3)
  /// Compaction retires the old pack before it syncs the new one (H7).
  package static let retiresBeforeSync = Weaknesses(rawValue: 1 << 4)
  /// Stamps follow the wall clock alone (H8).
  package static let clockFollowsWall = Weaknesses(rawValue: 1 << 5)
  /// Recovery takes packs even if their writer holds their lock (H10).
  package static let recoversWithoutLock = Weaknesses(rawValue: 1 << 6)
  /// gc continues after a read error (H11).
  package static let collectsDespiteObstacles = Weaknesses(rawValue: 1 << 7)
  /// A durable put returns without a sync.
  package static let skipsSync = Weaknesses(rawValue: 1 << 8)
  /// A collection continues after a rebuild of the catalog that it planned with (H5).
  package static let ignoresRebuilds = Weaknesses(rawValue: 1 << 9)
  /// A reader does not look up again when its pack is gone (H6).
  package static let looksUpOnce = Weaknesses(rawValue: 1 << 10)
  /// No process recovers a dead writer's pack (H9).
  package static let skipsRecovery = Weaknesses(rawValue: 1 << 11)
  /// A pack may get the name of another (H12).
  package static let reusesPackNames = Weaknesses(rawValue: 1 << 12)
  /// gc does not mark the bases of chunks that were put during the collection.
  package static let forgetsNewBases = Weaknesses(rawValue: 1 << 14)
  /// A collector of a shared store ignores what writers published before they acknowledged.
  package static let removesByOldListing = Weaknesses(rawValue: 1 << 23)
  /// A view combines its tails with a snapshot of the catalog that is not the newest (V1, V2).
  package static let viewsOldSnapshots = Weaknesses(rawValue: 1 << 24)
  /// A catalog transaction does not settle the tails first (V5).
  package static let skipsSettling = Weaknesses(rawValue: 1 << 25)
  /// A commit's refs and drops are not marked as belonging together (V6).
  package static let splitsCommits = Weaknesses(rawValue: 1 << 26)
  /// A view is not extended by what others have published since the last one (V1).
  package static let skipsExtending = Weaknesses(rawValue: 1 << 27)
  /// A view reads files even if the counts show no change (V3).
  package static let ignoresCounts = Weaknesses(rawValue: 1 << 28)
  /// Long tails are neither settled nor refused (V4).
  package static let growsTails = Weaknesses(rawValue: 1 << 29)
  /// Compaction copies a frame unchanged even if some members are garbage.
  package static let copiesDeadMembers = Weaknesses(rawValue: 1 << 32)
  /// Recompression replaces chunks even if they then have more bytes.
  package static let recompressesToMore = Weaknesses(rawValue: 1 << 33)
  /// A commit is published in the live table even if views would need to fetch its rows.
  package static let publishesOverOuterRows = Weaknesses(rawValue: 1 << 34)
}

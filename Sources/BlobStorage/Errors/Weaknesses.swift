/// Protections that a test switches off, to see that it would notice their absence. Nothing else ever does.
///
/// Release builds have no such switches, unless they are built for tests with `-DWEAKNESSES`.
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
  /// gc does not look at leases (H3).
  package static let ignoresLeases = Weaknesses(rawValue: 1 << 1)
  /// A put does not care whether what it shares is on the medium (H1).
  package static let skipsSharedSync = Weaknesses(rawValue: 1 << 2)
  /// Compaction forgets records that hide versions though copies of their refs are left (H4).
  package static let forgetsDropsEarly = Weaknesses(rawValue: 1 << 3)
  /// Compaction takes the old pack away without having synced the new one (H7).
  package static let retiresBeforeSync = Weaknesses(rawValue: 1 << 4)
  /// Stamps follow the wall clock alone (H8).
  package static let clockFollowsWall = Weaknesses(rawValue: 1 << 5)
  /// Packs are recovered whether or not their writer holds their lock (H10).
  package static let recoversWithoutLock = Weaknesses(rawValue: 1 << 6)
  /// gc goes on when it could not read something (H11).
  package static let collectsDespiteObstacles = Weaknesses(rawValue: 1 << 7)
  /// A durable put returns without a sync.
  package static let skipsSync = Weaknesses(rawValue: 1 << 8)
  /// A collection goes on after the catalog it planned by was rebuilt (H5).
  package static let ignoresRebuilds = Weaknesses(rawValue: 1 << 9)
  /// A reader whose pack has gone does not look again (H6).
  package static let looksUpOnce = Weaknesses(rawValue: 1 << 10)
  /// A dead writer's pack is not recovered (H9).
  package static let skipsRecovery = Weaknesses(rawValue: 1 << 11)
  /// A pack may take the name of another (H12).
  package static let reusesPackNames = Weaknesses(rawValue: 1 << 12)
  /// gc does not mark the bases of chunks that were put while it ran.
  package static let forgetsNewBases = Weaknesses(rawValue: 1 << 14)
  /// A collector of a shared store does not look again at what was published before all had passed.
  package static let removesByOldListing = Weaknesses(rawValue: 1 << 23)
  /// A collector of a shared store does not wait for writers to pass.
  package static let removesBeforeAllPassed = Weaknesses(rawValue: 1 << 15)
  /// A writer takes any object under its pack's name for its own.
  package static let takesExistsForStored = Weaknesses(rawValue: 1 << 17)
  /// A writer relies on packs of a shared store that were condemned when it began.
  package static let pardonsSharedPacks = Weaknesses(rawValue: 1 << 18)
  /// Packs of a writer are published, or believed, without those before them.
  package static let acceptsGaps = Weaknesses(rawValue: 1 << 19)
  /// A view goes with a snapshot of the catalog that is not the newest (V1, V2).
  package static let viewsOldSnapshots = Weaknesses(rawValue: 1 << 24)
  /// A transaction of the catalog does not settle the tails first (V5).
  package static let skipsSettling = Weaknesses(rawValue: 1 << 25)
  /// The refs and drops of a commit do not say that they belong together (V6).
  package static let splitsCommits = Weaknesses(rawValue: 1 << 26)
  /// A view does not look at what others have published since the last one (V1).
  package static let skipsExtending = Weaknesses(rawValue: 1 << 27)
  /// A view looks at files although the counts say that nothing has changed (V3).
  package static let ignoresCounts = Weaknesses(rawValue: 1 << 28)
  /// Tails are neither settled nor refused when they are long (V4).
  package static let growsTails = Weaknesses(rawValue: 1 << 29)
  /// A writer relies on published packs without looking whether they are there.
  package static let reliesWithoutAsking = Weaknesses(rawValue: 1 << 16)
  /// A pack counts as published although the change that names it was not stored.
  package static let reportsBeforeChange = Weaknesses(rawValue: 1 << 20)
  /// What ends a writer does not name the packs that it has not named.
  package static let skipsUnnamedPacks = Weaknesses(rawValue: 1 << 22)
  /// A collector deletes changes before all writers have acknowledged that.
  package static let deletesChangesEarly = Weaknesses(rawValue: 1 << 30)
  /// A machine that was away believes changes whose numbers may have been deleted.
  package static let trustsOldChanges = Weaknesses(rawValue: 1 << 31)
  /// Compaction copies a frame as it is though some of its members are garbage.
  package static let copiesDeadMembers = Weaknesses(rawValue: 1 << 32)
  /// Recompression stores chunks anew that then take more bytes.
  package static let recompressesToMore = Weaknesses(rawValue: 1 << 33)
  /// A commit is published in the live table though rows that views need may have to be fetched.
  package static let publishesOverOuterRows = Weaknesses(rawValue: 1 << 34)
  /// A fence is put behind what is listed, whatever was removed.
  package static let fencesByListing = Weaknesses(rawValue: 1 << 21)
}

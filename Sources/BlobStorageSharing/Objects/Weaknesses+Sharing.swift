import BlobStorage

/// Protections of a shared store.
extension Weaknesses {
  /// A collector of a shared store does not wait for acknowledgements.
  package static let removesBeforeAllPassed = Weaknesses(rawValue: 1 << 15)
  /// A writer takes any object with its pack's name for its own.
  package static let takesExistsForStored = Weaknesses(rawValue: 1 << 17)
  /// A writer relies on packs of a shared store that were condemned when it began.
  package static let pardonsSharedPacks = Weaknesses(rawValue: 1 << 18)
  /// Machines publish or accept a writer's packs without the packs before them.
  package static let acceptsGaps = Weaknesses(rawValue: 1 << 19)
  /// A writer relies on published packs without checking that their objects exist.
  package static let reliesWithoutAsking = Weaknesses(rawValue: 1 << 16)
  /// A pack counts as published before the change that names it is stored.
  package static let reportsBeforeChange = Weaknesses(rawValue: 1 << 20)
  /// Ending a writer does not name its unnamed packs.
  package static let skipsUnnamedPacks = Weaknesses(rawValue: 1 << 22)
  /// A collector deletes changes before all writers have acknowledged their horizon.
  package static let deletesChangesEarly = Weaknesses(rawValue: 1 << 30)
  /// A returning machine trusts changes whose numbers may have been deleted and reused.
  package static let trustsOldChanges = Weaknesses(rawValue: 1 << 31)
  /// A fence follows the last listed pack, and ignores removed packs.
  package static let fencesByListing = Weaknesses(rawValue: 1 << 21)
}

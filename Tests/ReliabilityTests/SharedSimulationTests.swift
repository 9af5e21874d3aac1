import BlobStorage
import BlobStorageTestSupport
import Testing

/// Machines that share a store by the protocol of "Many machines", at the level of its objects.
@Suite("Machines that share a store", .serialized)
struct SharedSimulationTests {
  @Test("lose nothing, whoever sleeps or dies and whatever the engine answers")
  func manySeeds() throws {
    for seed in Soak.seeds(1_000) {
      let simulation = SharedSimulation(seed: seed)
      try simulation.run()
      Soak.count("shared seeds")
      for (name, number) in simulation.counts { Soak.count("shared \(name)", number) }
    }
    Soak.printCounts("the simulation of many machines")
  }

  @Test("lose nothing with one maintainer, where puts at the same time are not kept apart")
  func maintainer() throws {
    for seed in Soak.seeds(200) { try SharedSimulation(seed: seed, keepsPutsApart: false).run() }
  }

  /// The first seed of many that breaks.
  private func firstBreak(_ weaknesses: Weaknesses, keepsPutsApart: Bool = true) -> String? {
    for seed in Soak.firstSeed..<Soak.firstSeed + 2_000 {
      do {
        try SharedSimulation(seed: seed, weaknesses: weaknesses, keepsPutsApart: keepsPutsApart).run()
      } catch { return "\(error)" }
    }
    return nil
  }

  @Test(
    "are seen to lose something when a protection is switched off",
    arguments: [
      ("the second look", Weaknesses.removesByOldListing),
      ("waiting for all to pass", .removesBeforeAllPassed),
      ("looking at what is there on a 412", .takesExistsForStored),
      ("the sentence being for ever", .pardonsSharedPacks),
      ("publishing in order", .acceptsGaps),
      ("registering before listing", .registersAfterListing),
      ("counting what was removed", .fencesByListing),
      ("the entry that says removed", .deletesWithoutEntry),
    ])
  func mutations(_ name: String, _ weaknesses: Weaknesses) {
    let broken = firstBreak(weaknesses)
    #expect(broken != nil, "\(name)")
    if let broken { print("without \(name): \(broken)") }
  }

  @Test("are seen to lose something when an engine is trusted that does not keep puts apart")
  func trusted() {
    let broken = firstBreak(.trustsIfAbsent, keepsPutsApart: false)
    #expect(broken != nil)
    if let broken { print("trusted: \(broken)") }
  }
}

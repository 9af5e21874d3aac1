import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Testing

/// Machines that share a store by the protocol of "Many machines", at the level of its objects.
@Suite("Machines that share a store", .serialized)
struct SharedSimulationTests {
  @Test("lose nothing, whoever sleeps or dies and whatever the engine answers")
  func manySeeds() throws {
    for seed in Soak.seeds(120) {
      let simulation = SharedSimulation(seed: seed)
      try simulation.run()
      Soak.count("shared seeds")
      for (name, number) in simulation.counts { Soak.count("shared \(name)", number) }
    }
    Soak.printCounts("the simulation of many machines")
  }

  @Test("lose nothing with one maintainer, where puts at the same time are not kept apart")
  func maintainer() throws {
    for seed in Soak.seeds(30) { try SharedSimulation(seed: seed, keepsPutsApart: false).run() }
  }

  /// The first seed that breaks, of those that did before and of many others.
  private func firstBreak(_ weaknesses: Weaknesses, keepsPutsApart: Bool = true) -> String? {
    for seed in [1, 4, 21, 35, 44, 74, 131] + Array(Soak.firstSeed..<Soak.firstSeed + 2_000) {
      do {
        try SharedSimulation(seed: seed, weaknesses: weaknesses, keepsPutsApart: keepsPutsApart).run()
      } catch {
        Soak.count("mutations caught")
        return "\(error)"
      }
    }
    return nil
  }

  @Test(
    "are seen to lose something when a protection is switched off",
    arguments: [
      ("the second look", Weaknesses.removesByOldListing),
      ("waiting for all to pass", .removesBeforeAllPassed),
      ("looking at what is there on a 412", .takesExistsForStored),
      ("condemning for ever", .pardonsSharedPacks),
      ("publishing in order", .acceptsGaps),
      ("registering before listing", .registersAfterListing),
      ("the entry that says removed", .deletesWithoutEntry),
    ])
  func mutations(_ name: String, _ weaknesses: Weaknesses) {
    #expect(firstBreak(weaknesses) != nil, "\(name)")
  }

  @Test("are seen to lose something when an engine is trusted that does not keep puts apart")
  func trusted() {
    #expect(firstBreak(.trustsIfAbsent, keepsPutsApart: false) != nil)
  }

  @Test("are seen to go on behind a fence that does not count what was removed")
  func misplacedFence() throws {
    for weaknesses in [[], Weaknesses.fencesByListing] {
      let store = SimulatedObjectStore()
      let storeID = [UInt8](repeating: 7, count: 16)
      func publish(_ sequence: UInt32) throws -> Publication.Outcome {
        let name = PackName(writer: 5, sequence: sequence)
        return try Publication.publish(
          name, .bytes(SharedRecord.encode([], name)), store, storeID: storeID)
      }
      #expect(try publish(1) == .published)
      #expect(try publish(2) == .published)
      // Another collector removes both.
      let both = [PackName(writer: 5, sequence: 1), PackName(writer: 5, sequence: 2)]
      let log = CollectionLog(store, storeID: storeID)
      let mine = try #require(try log.condemn(both, after: Collections(), by: 1))
      let done = try #require(try log.remove(both, after: mine, by: 1))
      for name in both { try store.delete(SharedNames.pack(name)) }
      _ = try Fencing.fence(
        5, removed: done.removed, by: 2, store, storeID: storeID, weaknesses: weaknesses)
      #expect(try publish(3) == (weaknesses.isEmpty ? .fenced : .published))
    }
  }
}

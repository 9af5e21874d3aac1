import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Testing

/// Whole engines on machines that share a store, collectors among them.
@Suite("Engines that share a store")
struct MachineSimulationTests {
  @Test("lose nothing that was reported done, and bring back nothing that was dropped")
  func manySeeds() { play(Soak.seeds(6)) }

  @Test("lose nothing with one maintainer, where puts at the same time are not kept apart")
  func maintainer() { play(Soak.seeds(2), .maintained) }

  @Test("lose nothing where they read an index in place of footers")
  func indexed() { play(Soak.seeds(1), .indexed) }

  private func play(_ seeds: Soak.Seeds, _ kind: MachineSimulation.Kind = .usual) {
    var counts: [String: Int] = [:]
    for seed in seeds {
      let simulation = MachineSimulation(seed: seed, kind: kind)
      do { try simulation.run() } catch {
        Issue.record("\(error); SWIFT_DETERMINISTIC_HASHING=1 BLOB_STORAGE_SEED=\(seed) plays it again")
        if !Soak.isOn { break }
      }
      Soak.count("machine seeds")
      for (name, number) in simulation.counts {
        Soak.count("machine \(name)", number)
        counts[name, default: 0] += number
      }
    }
    // One seed alone need not have all of it.
    if kind == .usual, !Soak.isOn {
      for name in [
        "checks", "collections", "kills", "packs removed", "power cuts", "forced fences", "signs of life",
        "changes deleted", "stray objects", "packs lost",
      ] {
        #expect(counts[name, default: 0] > 0, "\(name)")
      }
    }
    Soak.printCounts("the simulation of machines")
  }

  @Test(
    "are seen to lose something when a protection is switched off",
    arguments: [
      // With the seed to search from: one that showed the loss, because others take long to find.
      ("the second look", Weaknesses.removesByOldListing, 169),
      ("waiting for all to pass", .removesBeforeAllPassed, 65),
      ("looking at what is there on a 412", .takesExistsForStored, 18),
      ("counting on nothing that is condemned", .pardonsSharedPacks, 175),
      ("naming a pack before it counts as published", .reportsBeforeChange, 219),
    ])
  func mutations(_ name: String, _ weaknesses: Weaknesses, _ seed: UInt64) {
    #expect(firstBreak(name, weaknesses, .usual, from: seed) != nil, "\(name)")
  }

  @Test(
    "are seen to lose something when an engine is trusted that does not keep puts apart",
    .enabled(if: Soak.isOn, "it takes many seeds"))
  func trusted() { #expect(firstBreak("not trusting the engine", [], .trusted) != nil) }

  private func firstBreak(
    _ name: String, _ weaknesses: Weaknesses, _ kind: MachineSimulation.Kind, from known: UInt64 = 1
  ) -> String? {
    let first = known - 1 + Soak.firstSeed
    for seed in first..<first + 500 {
      Soak.count("seeds until \(name) was missed")
      do { try MachineSimulation(seed: seed, weaknesses: weaknesses, kind: kind).run() } catch {
        // What fails with all protections on too says nothing of this one.
        if kind == .usual, (try? MachineSimulation(seed: seed, kind: kind).run()) == nil { continue }
        Soak.count("mutations caught")
        Soak.printCounts("the simulation of machines without \(name)")
        return "\(error)"
      }
    }
    return nil
  }
}

import BlobStorage
import BlobStorageTestSupport
import Testing

/// Whole engines on machines that share a store, collectors among them.
@Suite("Engines that share a store", .serialized)
struct MachineSimulationTests {
  @Test("lose nothing that was reported done, and bring back nothing that was dropped")
  func manySeeds() { play(Soak.seeds(100)) }

  @Test("lose nothing with one maintainer, where puts at the same time are not kept apart")
  func maintainer() { play(Soak.seeds(20), .maintained) }

  private func play(_ seeds: Soak.Seeds, _ kind: MachineSimulation.Kind = .usual) {
    for seed in seeds {
      let simulation = MachineSimulation(seed: seed, kind: kind)
      do { try simulation.run() } catch {
        Issue.record("\(error); SWIFT_DETERMINISTIC_HASHING=1 BLOB_STORAGE_SEED=\(seed) plays it again")
        if !Soak.isOn { break }
      }
      Soak.count("machine seeds")
      for (name, number) in simulation.counts { Soak.count("machine \(name)", number) }
    }
    Soak.printCounts("the simulation of machines")
  }

  @Test(
    "are seen to lose something when a protection is switched off",
    arguments: [
      ("the second look", Weaknesses.removesByOldListing, MachineSimulation.Kind.usual),
      ("waiting for all to pass", .removesBeforeAllPassed, .usual),
      ("looking at what is there on a 412", .takesExistsForStored, .usual),
      ("counting on nothing that is condemned", .pardonsSharedPacks, .usual),
      ("not trusting an engine that keeps no puts apart", Weaknesses(), .trusted),
    ])
  func mutations(_ name: String, _ weaknesses: Weaknesses, _ kind: MachineSimulation.Kind) {
    var broken: String?
    for seed in Soak.firstSeed..<Soak.firstSeed + 500 where broken == nil {
      do { try MachineSimulation(seed: seed, weaknesses: weaknesses, kind: kind).run() } catch {
        broken = "\(error)"
      }
      Soak.count("seeds until \(name) was missed")
    }
    if broken != nil { Soak.count("mutations caught") }
    #expect(broken != nil, "\(name)")
  }
}

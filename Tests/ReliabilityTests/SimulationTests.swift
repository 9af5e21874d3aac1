import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// Many processes on one store, their order and their luck decided by a seed.
@Suite("A simulation of many processes", .serialized)
struct SimulationTests {
  static let eraCount = 4

  @Test("loses nothing, whichever process is paused or killed and whatever the clocks say")
  func many() throws {
    for seed in Soak.seeds(6) {
      do {
        let simulation = try Simulation(seed: seed)
        try simulation.run(eras: Self.eraCount)
        Soak.count("seeds")
        for (name, number) in simulation.counts { Soak.count("simulated \(name)", number) }
      } catch {
        Issue.record(
          "\(error); SWIFT_DETERMINISTIC_HASHING=1 BLOB_STORAGE_SEED=\(seed) plays it again")
        if !Soak.isOn { break }
      }
    }
    Soak.printCounts("the simulation")
  }

  @Test(
    "plays the same run again from the same seed",
    .enabled(
      if: ProcessInfo.processInfo.environment["SWIFT_DETERMINISTIC_HASHING"] != nil,
      "sets are walked in another order each time"))
  func again() throws {
    for seed in Soak.seeds(2) {
      var traces: Set<UInt64> = []
      for _ in 0..<2 {
        let simulation = try Simulation(seed: seed)
        try simulation.run(eras: 2)
        traces.insert(simulation.trace)
      }
      #expect(traces.count == 1, "seed \(seed)")
      if Soak.isOn, seed > Soak.firstSeed + 20 { break }
    }
  }

  @Test("finds what a put that counts on condemned packs loses (H2)")
  func resurrection() throws {
    var broken: String?
    for seed in Soak.firstSeed..<Soak.firstSeed + 400 where broken == nil {
      do { try Simulation(seed: seed, weaknesses: .trustsCondemnedPacks).run(eras: Self.eraCount) } catch {
        broken = "\(error)"
      }
      Soak.count("seeds until a put without its second look was caught")
    }
    #expect(broken != nil)
  }
}

import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Real threads on real files, with the power cut at any moment: what tests that run inline cannot meet.
@Suite("Threads beside each other", .serialized)
struct ThreadTests {
  @Test("lose nothing durable in a power cut, and leave nothing in part", arguments: [false, true])
  func powerCuts(usesSimilarity: Bool) throws {
    for seed in Soak.seeds(1) {
      var options = ThreadTrial.Options()
      options.usesSimilarity = usesSimilarity
      let trial = try ThreadTrial(seed: seed, options)
      try trial.run()
      try checkCuts(trial, seed)
    }
    Soak.printCounts("power cuts beside threads")
  }

  /// What fails of the calls on packs.
  enum Failing: CaseIterable {
    /// One sync of a pack.
    case sync
    /// One sync of the folder.
    case syncOfNames
    /// Some writes, because the disk is full for a while.
    case writes
    /// All that takes room, from then on.
    case room
  }

  @Test("lose nothing durable where calls fail in the middle, and say why", arguments: Failing.allCases)
  func failingCalls(_ failing: Failing) throws {
    for seed in Soak.seeds(1) {
      var options = ThreadTrial.Options()
      options.changeCount = 12
      let start = 120 + Int(seed % 100)
      let isOver = Atomic<Bool>(false)
      options.fault = { (kind, number) in
        guard number >= start else { return nil }
        switch failing {
        case .sync, .syncOfNames:
          guard kind == (failing == .sync ? .synchronize : .syncDirectory) else { return nil }
          return isOver.exchange(true, ordering: .relaxed) ? nil : .ioError
        case .writes: return kind == .write && number < start + 60 ? .noSpace : nil
        case .room: return kind == .write || kind == .create || kind == .allocate ? .noSpace : nil
        }
      }
      let trial = try ThreadTrial(seed: seed, options)
      try trial.run()
      let codes = Set(trial.failures.map(\.code))
      #expect(
        codes.isSubset(of: failing == .sync || failing == .syncOfNames ? [.poisoned, .io] : [.noSpace]))
      #expect(!codes.isEmpty, "nothing has failed")
      try checkCuts(trial, seed)
    }
    Soak.printCounts("failing calls beside threads")
  }

  private func checkCuts(_ trial: ThreadTrial, _ seed: UInt64) throws {
    var recorded = RecordedDisk(trial.files)
    let moments = try trial.moments(Soak.isOn ? 20 : 3, recorded)
    for (turn, moment) in moments.enumerated() {
      try recorded.advance(to: moment)
      let cuts = [Cut.newest(1), .dropNames, .seed(seed &+ UInt64(moment)), .newest(3)]
      for cut in [.dropAll] + (Soak.isOn ? cuts : [cuts[turn % cuts.count]]) {
        do { try trial.check(cut, at: recorded) } catch {
          Issue.record("\(error)")
          return
        }
        Soak.count("power cuts beside threads")
      }
    }
    Soak.count("durable changes of threads", trial.durableCount)
  }
}

import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// One protection is switched off at a time: the checks of the other tests must notice.
@Suite("A protection that is switched off is noticed", .serialized)
struct MutationTests {
  /// Cuts the scenario everywhere and says what broke first.
  private func firstBreak(
    _ name: String, _ weaknesses: Weaknesses
  ) throws -> String? {
    guard let scenario = CrashTests.all.first(where: { $0.name == name }) else {
      throw Broken("no scenario \(name)")
    }
    let origin = try Lab()
    try scenario.setUp(origin)
    origin.weaknesses = weaknesses
    let whole = try origin.copy()
    let before = whole.disk.mutationCount
    try scenario.act(whole)
    for number in 1...whole.disk.mutationCount - before + 1 {
      for cut in [CrashTests.Cut.dropAll, .dropData, .seed(UInt64(number))] {
        let lab = try origin.copy()
        do {
          try CrashTests.crash(lab, scenario, number, cut)
          lab.weaknesses = []
          try lab.checkInvariants(afterPowerCut: cut.isPower)
        } catch { return "\(error)" }
      }
    }
    return nil
  }

  @Test("a durable put without a sync")
  func skippedSync() throws {
    let sound = try firstBreak("a durable put", [])
    #expect(sound == nil)
    let broken = try firstBreak("a durable put", .skipsSync)
    #expect(broken?.hasPrefix("1") == true)
  }

  @Test("H1: sharing what another writer has not synced")
  func sharedWithoutSync() throws {
    let broken = try firstBreak("a put that shares another writer's relaxed chunks", .skipsSharedSync)
    #expect(broken != nil)
  }

  @Test("H3: a collection that does not look at leases")
  func ignoredLeases() throws {
    for weaknesses in [[], Weaknesses.ignoresLeases] {
      let lab = try Lab()
      try lab.session { try lab.put($0, [("a", noise(1, 5_000))]) }
      let reader = try lab.open()
      let collector = try lab.open()
      let blob = try #require(try reader.openBlob("a", nil))
      try lab.delete(collector, ["a"])
      lab.weaknesses = weaknesses
      let weak = try lab.open()
      for _ in 1...2 { _ = try weak.collectGarbage() }
      let read = Result { try blob.read(0..<5_000) }
      if weaknesses.isEmpty {
        let data = Data(try read.get())
        #expect(data == noise(1, 5_000))
      } else {
        #expect(throws: BlobStorageError.self) { try read.get() }
      }
      blob.close()
    }
  }

  @Test("H4: a collection that forgets too early what hides a version")
  func forgottenDrop() throws {
    for weaknesses in [[], Weaknesses.forgetsDropsEarly] {
      let lab = try Lab()
      // The ref of the first version stays in a pack that is not worth compacting; what hides it is in another.
      try lab.session { engine in
        try lab.put(engine, [("a", noise(1, 100))])
        try lab.put(engine, [("big", noise(2, 60_000))])
      }
      try lab.session { engine in
        try lab.put(engine, [("other", noise(3, 20_000))])
        try lab.delete(engine, ["a"])
        try lab.delete(engine, ["other"])
      }
      lab.weaknesses = weaknesses
      try lab.session { _ = try $0.collectGarbage(CollectionOptions(garbageShareMin: 0.5)) }
      lab.weaknesses = []
      try lab.forgetCatalog()
      try lab.session { engine in
        let isRight = try lab.observed(engine) == lab.model.state
        #expect(isRight == weaknesses.isEmpty)
      }
    }
  }

  @Test("H8: a clock that goes back, and stamps that follow it")
  func clockGoesBack() throws {
    for weaknesses in [[], Weaknesses.clockFollowsWall] {
      let lab = try Lab()
      lab.weaknesses = weaknesses
      try lab.session { try lab.put($0, [("a", noise(1, 100))], archives: true) }
      lab.clock.set(1_000_000)
      try lab.session { engine in
        try lab.put(engine, [("a", noise(2, 100))], archives: true)
        let isRight = try lab.observed(engine) == lab.model.state
        #expect(isRight == weaknesses.isEmpty)
      }
    }
  }

  @Test("H12: a pack's name is not used a second time")
  func nameUsedTwice() throws {
    let lab = try Lab()
    let engine = try lab.open()
    try lab.put(engine, [("a", noise(1, 100))])
    let name = try #require(try engine.backend.packNames().live.first)
    #expect(throws: BlobStorageError.self) { _ = try engine.backend.createPack(name, header: []) }
    try engine.backend.retirePacks([name])
    #expect(throws: BlobStorageError.self) { _ = try engine.backend.createPack(name, header: []) }
  }
}

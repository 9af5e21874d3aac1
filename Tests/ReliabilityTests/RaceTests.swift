import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// Another process does something between any two steps of a collection.
@Suite("Between the steps of a collection", .serialized)
struct RaceTests {
  /// Collects, and runs `body` right before the `step`-th call that takes names away or forces something to the
  /// medium. False when the collection has fewer such steps.
  static func collect(_ lab: Lab, step: Int, _ body: @escaping (Lab) throws -> Void) throws -> Bool {
    let collector = lab.disk.process()
    let engine = try lab.open(collector)
    let other = Unsafe(lab)
    let seen = Mutex(0)
    let failure = Mutex<(any Error)?>(nil)
    let work = Unsafe(body)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      // Not inside a write: the collector may be in the one write transaction of all processes then.
      guard call.process == collector.number,
        [.rename, .remove, .synchronize, .syncDirectory, .create].contains(call.kind)
      else { return }
      let isDue = seen.withLock { seen in
        seen += 1
        return seen == step
      }
      guard isDue else { return }
      do { try work.value(other.value) } catch { failure.withLock { $0 = error } }
    }
    _ = try engine.collectGarbage(CollectionOptions(garbageShareMin: 0.1))
    lab.disk.beforeMutations(nil)
    if let failure = failure.withLock({ $0 }) { throw failure }
    try engine.close()
    return seen.withLock { $0 } >= step
  }

  private struct Unsafe<T>: @unchecked Sendable {
    let value: T
    init(_ value: T) { self.value = value }
  }

  /// Puts what gc is about to remove.
  static func resurrect(_ lab: Lab, weaknesses: Weaknesses, streamed: Bool) throws -> Int {
    let origin = try Lab()
    try CrashTests.garbageInEveryPack(origin)
    for step in 1... {
      let run = try origin.copy()
      let isDone = try collect(run, step: step) { run in
        run.weaknesses = weaknesses
        try run.session { engine in
          // The bytes of "k0", which was deleted, and of a version of "a" that was replaced.
          try run.put(engine, [("back", noise(0, 3_000))], streamed: streamed)
          try run.put(engine, [("a", noise(50, 2_500))], streamed: streamed)
        }
        run.weaknesses = []
      }
      do { try run.checkInvariants(afterPowerCut: false) } catch {
        throw Broken("step \(step): \(error)")
      }
      Soak.count("gc races")
      if !isDone { return step }
    }
    return 0
  }

  @Test("a put of what is about to go stays readable (H2)", arguments: [false, true])
  func resurrection(streamed: Bool) throws {
    let lab = try Lab()
    #expect(try Self.resurrect(lab, weaknesses: [], streamed: streamed) > 5)
  }

  @Test("a put that counts on condemned packs is noticed")
  func resurrectionWithoutCheck() throws {
    let lab = try Lab()
    #expect(throws: (any Error).self) {
      _ = try Self.resurrect(lab, weaknesses: .trustsCondemnedPacks, streamed: false)
    }
  }

  @Test("the catalog can be rebuilt at any step (H5)")
  func rebuild() throws {
    let origin = try Lab()
    try CrashTests.garbageInEveryPack(origin)
    for step in 1... {
      let lab = try origin.copy()
      let isDone = try Self.collect(lab, step: step) { lab in
        let engine = try lab.open()
        try engine.catalog.rebuild(because: nil)
        try lab.put(engine, [("a", noise(91, 700))])
        try engine.close()
      }
      do { try lab.checkInvariants(afterPowerCut: false) } catch {
        Issue.record("rebuilt at step \(step): \(error)")
        return
      }
      Soak.count("gc races")
      if !isDone { return }
    }
  }

  @Test("a second process that opens the store recovers a dead writer's pack only once (H10)")
  func recoveredTwice() throws {
    let origin = try Lab()
    try CrashTests.packOfADeadWriter(origin)
    let first = origin.disk.process()
    let stopped = Mutex(false)
    var second: Engine?
    // The first is stopped just before it seals what it recovers; the second opens with a catalog of its own.
    origin.disk.beforeMutations { (call) throws(BlobStorageError) in
      if call.process == first.number, call.kind == .synchronize { stopped.withLock { $0 = true } }
    }
    let engine = try origin.open(first)
    let firstCatalog = origin.catalog
    defer { withExtendedLifetime(firstCatalog) {} }
    try origin.forgetCatalog()
    second = try origin.open()
    try origin.checkSound(engine, "in the first")
    if let second { try origin.checkSound(second, "in the second") }
    #expect(stopped.withLock { $0 })
  }
}

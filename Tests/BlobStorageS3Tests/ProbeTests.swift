import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("The probe of conditional puts")
struct ProbeTests {
  @Test("finds that the condition holds, and leaves nothing behind")
  func holds() throws {
    let store = MemoryObjectStore()
    #expect(try ConditionalPutProbe().run(on: store, below: "probe") == .holds)
    #expect(store.names.isEmpty)
  }

  @Test("finds out an object store that ignores the condition")
  func ignored() throws {
    let store = LaxObjectStore(looksFirst: false)
    let finding = try ConditionalPutProbe(contenderCount: 5).run(on: store, below: "probe")
    #expect(finding == .ignored(winnerCount: 5))
    #expect(store.objects.names.isEmpty)
  }

  @Test("finds out an object store that looks first and stores then, which one put after the other does not")
  func looksFirst() throws {
    let store = LaxObjectStore(looksFirst: true)
    let finding = try ConditionalPutProbe().run(on: store, below: "probe")
    guard case .ignored(let winnerCount) = finding else {
      Issue.record("it was not found out")
      return
    }
    #expect(winnerCount >= 2)
    #expect(try store.put("x", .bytes([1]), ifAbsent: true) == .stored)
    #expect(try store.put("x", .bytes([2]), ifAbsent: true) == .exists)
  }

  @Test("finds out an object store that says that there is one, and stores all the same")
  func replaces() throws {
    let store = ReplacingObjectStore()
    let finding = try ConditionalPutProbe(contenderCount: 5).run(on: store, below: "probe")
    #expect(finding == .ignored(winnerCount: 1))
    #expect(store.objects.names.isEmpty)
  }

  @Test("accepts a winner whose answer was lost, and whose second attempt finds the object")
  func lostAnswer() throws {
    let store = MemoryObjectStore()
    store.trouble([.doubled])
    #expect(try ConditionalPutProbe(roundCount: 1).run(on: store, below: "probe") == .holds)
  }

  @Test("throws what the object store throws")
  func down() throws {
    let store = MemoryObjectStore()
    store.setDown(true)
    #expect(throws: BlobStorageError.self) { try ConditionalPutProbe().run(on: store, below: "probe") }
  }
}

/// An object store that does not do what it is asked for.
private final class LaxObjectStore: ForwardingObjects {
  let objects = MemoryObjectStore()
  private let looksFirst: Bool
  private let gate = Gate()

  init(looksFirst: Bool) { self.looksFirst = looksFirst }

  func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome {
    if looksFirst, ifAbsent {
      guard try objects.get(name, 0..<1) == nil else { return .exists }
      // The first caller waits for another that has looked as well.
      if name.hasPrefix("probe") { gate.pass() }
    }
    return try objects.put(name, content, ifAbsent: false)
  }

}

/// An object store that does not mean what it says.
private final class ReplacingObjectStore: ForwardingObjects, @unchecked Sendable {
  let objects = MemoryObjectStore()
  private let lock = NSLock()

  func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome {
    lock.lock()
    defer { lock.unlock() }
    let outcome = try objects.put(name, content, ifAbsent: ifAbsent)
    if outcome == .exists { _ = try objects.put(name, content, ifAbsent: false) }
    return outcome
  }

}

/// Opens when two have come.
private final class Gate: @unchecked Sendable {
  private let condition = NSCondition()
  private var count = 0

  func pass() {
    condition.lock()
    defer { condition.unlock() }
    count += 1
    condition.broadcast()
    while count < 2 { condition.wait() }
  }
}

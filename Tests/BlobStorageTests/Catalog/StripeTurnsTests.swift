import BlobStorage
import Foundation
import Synchronization
import Testing

@Suite("The turns of commits in one open store")
struct StripeTurnsTests {
  private static func stripe(_ number: Int64) -> Range<Int64> { number..<number + 1 }

  @Test("are for each stripe in the order in which commits came")
  func order() throws {
    var queue = StripeQueue()
    let first = queue.enter([Self.stripe(1), Self.stripe(5)])
    let other = queue.enter([Self.stripe(2)])
    #expect(first.turn == nil && other.turn == nil)
    let second = queue.enter([Self.stripe(5)])
    let third = queue.enter([Self.stripe(5), Self.stripe(9)])
    #expect(second.turn != nil && third.turn != nil)
    // Nothing runs on 9, but a commit that waits came before.
    let fourth = queue.enter([Self.stripe(9)])
    #expect(fourth.turn != nil)
    #expect(queue.leave(other.number).isEmpty)
    #expect(queue.leave(first.number).map(ObjectIdentifier.init) == [try Self.identity(second)])
    #expect(queue.leave(second.number).map(ObjectIdentifier.init) == [try Self.identity(third)])
    #expect(queue.leave(third.number).map(ObjectIdentifier.init) == [try Self.identity(fourth)])
    #expect(queue.leave(fourth.number).isEmpty)
    #expect(queue.enter([Self.stripe(1), Self.stripe(5), Self.stripe(9)]).turn == nil)
  }

  private static func identity(
    _ commit: (number: UInt64, turn: DispatchSemaphore?)
  ) throws -> ObjectIdentifier { ObjectIdentifier(try #require(commit.turn)) }

  @Test("of a commit of all stripes come when the earlier ones have ended, and before the later ones")
  func allStripes() throws {
    var queue = StripeQueue()
    let running = (1...2).map { queue.enter([Self.stripe($0)]) }
    let all = queue.enter([0..<4_096])
    let later = (1...3).map { queue.enter([Self.stripe($0)]) }
    #expect(later.allSatisfy { $0.turn != nil })
    #expect(queue.leave(running[1].number).isEmpty)
    #expect(queue.leave(running[0].number).map(ObjectIdentifier.init) == [try Self.identity(all)])
    #expect(queue.leave(all.number).map(ObjectIdentifier.init) == (try later.map(Self.identity)))
  }

  /// Without keys there are no stripes: a commit that must be alone still excludes such a commit.
  @Test("of a commit that must be alone exclude commits without keys")
  func alone() throws {
    var queue = StripeQueue()
    let withoutKeys = queue.enter([])
    #expect(queue.enter([Self.stripe(1)]).turn == nil)
    let alone = queue.enter(nil)
    let later = queue.enter([])
    #expect(withoutKeys.turn == nil && alone.turn != nil && later.turn != nil)
    #expect(queue.leave(withoutKeys.number).isEmpty)
    #expect(queue.leave(2).map(ObjectIdentifier.init) == [try Self.identity(alone)])
    #expect(queue.leave(alone.number).map(ObjectIdentifier.init) == [try Self.identity(later)])
  }

  /// Fails if two threads run commits to one stripe at a time: then additions are lost.
  @Test("are one thread's at a time, also when its commit fails")
  func threads() throws {
    let turns = StripeTurns()
    let count = Mutex(0)
    try together(
      (0..<4 as Range<Int64>).map { thread in
        {
          for number in 0..<500 {
            let stripes = number % 50 == 0 ? [0..<4_096] : [Self.stripe(3), Self.stripe(10 + thread)]
            do throws(BlobStorageError) {
              try turns.withTurn(stripes) { (_) throws(BlobStorageError) in
                let seen = count.withLock { $0 }
                if number % 7 == 0 { sched_yield() }
                count.withLock { $0 = seen + 1 }
                if number % 10 == 0 { throw BlobStorageError(.io, "planned") }
              }
            } catch {
              guard error.message == "planned" else { throw error }
            }
          }
        }
      })
    #expect(count.withLock { $0 } == 2_000)
  }

  /// What became of changes that were deferred.
  private final class Answers: Sendable {
    private let state = Mutex<[Int: BlobStorageError.Code?]>([:])
    var all: [Int: BlobStorageError.Code?] { state.withLock { $0 } }
    func answer(_ number: Int) -> StripeQueue.Resume {
      { [self] error in state.withLock { $0[number] = .some(error?.code) } }
    }
  }

  @Test("hold back the changes that would wait for another process, and no others, until it goes on")
  func heldUp() throws {
    let turns = StripeTurns()
    let answers = Answers()
    func isDeferred(_ stripe: Int64, _ number: Int, seconds: Double = 3_600) -> Bool {
      turns.isDeferred([Self.stripe(stripe)], patienceSeconds: seconds, answers.answer(number))
    }
    #expect(!isDeferred(1, 0))
    try turns.withTurn([Self.stripe(1), Self.stripe(5)]) { (number) throws(BlobStorageError) in
      #expect(!isDeferred(1, 0))
      let isFree = try turns.heldUp(number) { () throws(BlobStorageError) in
        #expect(isDeferred(1, 1) && isDeferred(5, 2) && !isDeferred(2, 0))
        #expect(turns.isDeferred([0..<4_096], patienceSeconds: 3_600, answers.answer(3)))
        #expect(answers.all.isEmpty)
        return true
      }
      #expect(isFree && answers.all == [1: nil, 2: nil, 3: nil])
      #expect(!isDeferred(1, 0))
    }
    // If the wait was too long, so was that of others that began with it, and those behind still wait.
    let (second, end) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    #expect(throws: BlobStorageError.self) {
      try turns.withTurn([Self.stripe(1)]) { (number) throws(BlobStorageError) in
        _ = try turns.heldUp(number) { () throws(BlobStorageError) in
          #expect(isDeferred(1, 4, seconds: 0) && isDeferred(1, 5))
          Thread.detachNewThread {
            do {
              try turns.withTurn([Self.stripe(1)]) { (_) throws(BlobStorageError) in
                second.signal()
                end.wait()
              }
            } catch { Issue.record("\(error)") }
            second.signal()
          }
          while !turns.isWaiting { sched_yield() }
          return false
        }
        throw BlobStorageError(.busy, "planned")
      }
    }
    second.wait()
    #expect(answers.all == [1: nil, 2: nil, 3: nil, 4: .busy])
    #expect(isDeferred(1, 6))
    end.signal()
    second.wait()
    #expect(answers.all == [1: nil, 2: nil, 3: nil, 4: .busy, 5: nil, 6: nil])
  }
}

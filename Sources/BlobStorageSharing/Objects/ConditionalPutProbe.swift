import BlobStorage
import Foundation
import Synchronization

/// Finds out whether of all puts of one name with `ifAbsent` exactly one stores.
///
/// Some object stores ignore the condition, and some look first and store then, so that two at once may both store:
/// only puts that are under way together tell. A probe proves nothing, but of those seen to fail none passes by luck:
/// each round is one more chance to be found out.
package struct ConditionalPutProbe: Sendable {
  /// What was found.
  package enum Finding: Hashable, Sendable {
    /// One put stored in every round, and it is its content that is there.
    case holds
    /// This many stored in one round, or another's content is there.
    case ignored(winnerCount: Int)
  }

  package var roundCount: Int
  package var contenderCount: Int

  package init(roundCount: Int = 8, contenderCount: Int = 8) {
    precondition(roundCount > 0 && contenderCount > 1, "a race has two or more, once or more")
    self.roundCount = roundCount
    self.contenderCount = contenderCount
  }

  /// Runs the races under unused names below `folder`, and removes the objects.
  package func run(on store: any ObjectStore, below folder: String) throws(BlobStorageError) -> Finding {
    let run = Hex.text(UInt64.random(in: 0...UInt64.max))
    for round in 0..<roundCount {
      let name = "\(folder)/\(run)-\(round)"
      let finding: Finding
      do throws(BlobStorageError) { finding = try race(on: store, name) } catch {
        try? store.delete(name)
        throw error
      }
      try store.delete(name)
      guard finding == .holds else { return finding }
    }
    return .holds
  }

  /// Whether an object is one of ``run(on:below:)``: one that was killed has left it.
  package static func isTrial(_ name: String, below folder: String) -> Bool {
    guard name.hasPrefix("\(folder)/") else { return false }
    let parts = name.dropFirst(folder.count + 1).split(separator: "-", omittingEmptySubsequences: false)
    guard parts.count == 2, let run = Hex.integer(UInt64.self, parts[0]), Hex.text(run) == parts[0],
      let round = Int(parts[1])
    else { return false }
    return round >= 0 && "\(round)" == parts[1]
  }

  private func race(on store: any ObjectStore, _ name: String) throws(BlobStorageError) -> Finding {
    let outcomes = Mutex<[Int: Result<ObjectPutOutcome, BlobStorageError>]>([:])
    let group = DispatchGroup()
    for contender in 0..<contenderCount {
      group.enter()
      // Threads of their own: a pool would let only some of them be under way at once.
      Thread {
        let outcome = Result { () throws(BlobStorageError) in
          try store.put(name, .bytes(Self.content(contender)), ifAbsent: true)
        }
        outcomes.withLock { $0[contender] = outcome }
        group.leave()
      }.start()
    }
    group.wait()
    var winners: [Int] = []
    for (contender, outcome) in outcomes.withLock({ $0 }) where try outcome.get() == .stored {
      winners.append(contender)
    }
    // A winner whose answer was lost was told on its second attempt that there is one. The stored object is the
    // winner's.
    let kept = try store.get(name, 0..<Int64(Self.content(0).count))
    let isRight = winners.count == 1 ? kept == Self.content(winners[0]) : winners.isEmpty && kept != nil
    guard isRight, try store.put(name, .bytes(Self.content(contenderCount)), ifAbsent: true) == .exists else {
      return .ignored(winnerCount: winners.count)
    }
    return .holds
  }

  private static func content(_ contender: Int) -> [UInt8] {
    Array("contender \(1_000_000 + contender)".utf8)
  }
}

extension ObjectStore {
  /// Below this folder an object store is tried before a store is made.
  package var trialFolder: String { "probe" }

  /// The first object that makes a place be taken, and what trials of an object store have left before it.
  package func firstThatCounts() throws(BlobStorageError) -> (trials: [String], first: String?) {
    var trials: [String] = []
    while true {
      let page = try list("", after: trials.last)
      for entry in page.entries {
        guard ConditionalPutProbe.isTrial(entry.name, below: trialFolder) else { return (trials, entry.name) }
        trials.append(entry.name)
      }
      if !page.isTruncated || page.entries.isEmpty { return (trials, nil) }
    }
  }
}

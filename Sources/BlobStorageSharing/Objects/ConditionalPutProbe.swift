import BlobStorage
import Foundation
import Synchronization

/// Tests whether the object store has conditional put: of concurrent puts of one name with `ifAbsent`, exactly one
/// stores.
///
/// Some object stores ignore the condition. Others check first and store later, so that two concurrent puts may both
/// store. Only concurrent puts reveal that. A probe proves nothing, but each round is one more chance to find the
/// fault.
package struct ConditionalPutProbe: Sendable {
  /// The result of a probe.
  package enum Finding: Hashable, Sendable {
    /// In every round one put stored, and the object has that put's content. If the response to that put was lost, no
    /// put stored, and there is an object.
    case holds
    /// In one round several puts stored, there was no object or one with another content, or a later put stored.
    /// `winnerCount` is the number of concurrent puts that stored.
    case ignored(winnerCount: Int)
  }

  package var roundCount: Int
  package var contenderCount: Int
  /// Whether the puts run one after another, for simulations. That reveals only stores that ignore the condition.
  package var isInline: Bool

  package init(roundCount: Int = 8, contenderCount: Int = 8, isInline: Bool = false) {
    precondition(roundCount > 0 && contenderCount > 1, "a race has two or more, once or more")
    self.isInline = isInline
    self.roundCount = roundCount
    self.contenderCount = contenderCount
  }

  /// Runs the rounds under unused names below `folder`, and deletes the objects.
  ///
  /// - Parameter number: the current number of log entries, with which the names begin.
  package func run(
    on store: any ObjectStore, below folder: String, number: UInt32 = 0
  ) throws(BlobStorageError) -> Finding {
    let run = Hex.text(number) + Hex.text(UInt32.random(in: 0...UInt32.max))
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

  /// Whether an object is the leftover of a killed ``run(on:below:number:)``.
  package static func isTrial(_ name: String, below folder: String) -> Bool {
    guard name.hasPrefix("\(folder)/") else { return false }
    let parts = name.dropFirst(folder.count + 1).split(separator: "-", omittingEmptySubsequences: false)
    guard parts.count == 2, let run = Hex.integer(UInt64.self, parts[0]), Hex.text(run) == parts[0],
      let round = Int(parts[1])
    else { return false }
    return round >= 0 && "\(round)" == parts[1]
  }

  /// Deletes leftovers of killed probes that began before the entry `number`. Their collectors are too late in any
  /// case.
  package static func removeTrials(
    before number: UInt32, on store: any ObjectStore, below folder: String
  ) throws(BlobStorageError) {
    for entry in try store.listAll("\(folder)/") where isTrial(entry.name, below: folder) {
      let digits = entry.name.dropFirst(folder.count + 1).prefix(8)
      guard let own = Hex.integer(UInt32.self, digits), own < number else { continue }
      try store.delete(entry.name)
    }
  }

  private func race(on store: any ObjectStore, _ name: String) throws(BlobStorageError) -> Finding {
    let outcomes = Mutex<[Int: Result<ObjectPutOutcome, BlobStorageError>]>([:])
    let group = DispatchGroup()
    for contender in 0..<contenderCount {
      let put = { @Sendable in
        let outcome = Result { () throws(BlobStorageError) in
          try store.put(name, .bytes(Self.content(contender)), ifAbsent: true)
        }
        outcomes.withLock { $0[contender] = outcome }
      }
      if isInline {
        put()
        continue
      }
      group.enter()
      // Each put has its own thread: a pool would run only some of them at once.
      Thread {
        put()
        group.leave()
      }.start()
    }
    group.wait()
    var winners: [Int] = []
    for (contender, outcome) in outcomes.withLock({ $0 }) where try outcome.get() == .stored {
      winners.append(contender)
    }
    // If the winner's response was lost, its retry found the name taken. Then there is no winner, and one object.
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
  /// The folder of the objects of ``ConditionalPutProbe``.
  package var trialFolder: String { "probe" }

  /// The first object that is not a leftover of a probe, and the leftovers before it. Without such an object the place
  /// is empty. An empty object with the name of the place itself is a folder that a console has made.
  package func firstThatCounts() throws(BlobStorageError) -> (trials: [String], first: String?) {
    var trials: [String] = []
    var last: String?
    while true {
      let page = try list("", after: last)
      for entry in page.entries where !(entry.name.isEmpty && entry.byteCount == 0) {
        guard ConditionalPutProbe.isTrial(entry.name, below: trialFolder) else { return (trials, entry.name) }
        trials.append(entry.name)
      }
      last = page.entries.last?.name
      if !page.isTruncated || last == nil { return (trials, nil) }
    }
  }
}

import BlobStorage
import Foundation

/// What a store should hold, kept as the changes that were asked for.
///
/// A change says which versions it makes and which it hides; what can be seen is what has been made by some change
/// and hidden by none. Hence any subset of the changes gives a state, which is what a crash may leave.
struct Model {
  struct Version: Hashable {
    var key: String
    var number: Int
  }

  struct Change {
    var made: [Version] = []
    var hidden: Set<Version> = []
    /// Must be there after a power cut.
    var isDurable: Bool
    /// Must be there after a kill. False while the call has not returned.
    var isDone: Bool
    var name: String
  }

  private(set) var changes: [Change] = []
  private(set) var contents: [Int: Data] = [:]
  private var nextNumber = 1

  /// What can be seen of each key, newest first, after these changes.
  static func state(_ changes: [Change]) -> [String: [Int]] {
    var hidden: Set<Version> = []
    for change in changes { hidden.formUnion(change.hidden) }
    var state: [String: [Int]] = [:]
    for change in changes {
      for version in change.made where !hidden.contains(version) {
        state[version.key, default: []].insert(version.number, at: 0)
      }
    }
    return state
  }

  var state: [String: [Int]] { Self.state(changes) }

  /// Begins a put of several keys, each its own content, all or none.
  mutating func beginPut(
    _ items: [(key: String, data: Data)], archives: Bool, isDurable: Bool
  ) -> Int {
    var change = Change(isDurable: isDurable, isDone: false, name: "put \(items.map(\.key))")
    var now = state
    for (key, data) in items {
      if !archives, let current = now[key]?.first { change.hidden.insert(Version(key: key, number: current)) }
      contents[nextNumber] = data
      change.made.append(Version(key: key, number: nextNumber))
      now[key, default: []].insert(nextNumber, at: 0)
      nextNumber += 1
    }
    changes.append(change)
    return changes.count - 1
  }

  /// Begins a drop of all but the newest `kept` versions of the keys.
  mutating func beginDrop(_ keys: [String], kept: Int, isDurable: Bool) -> Int {
    var change = Change(isDurable: isDurable, isDone: false, name: "drop \(keys) but \(kept)")
    let now = state
    for key in keys {
      for number in (now[key] ?? []).dropFirst(kept) {
        change.hidden.insert(Version(key: key, number: number))
      }
    }
    changes.append(change)
    return changes.count - 1
  }

  mutating func end(_ index: Int) { changes[index].isDone = true }

  /// A change that failed cleanly never was.
  mutating func fail(_ index: Int) {
    changes[index] = Change(isDurable: false, isDone: true, name: "failed")
  }

  /// A change that failed unclearly may or may not be there.
  mutating func leaveOpen(_ index: Int) { changes[index].isDurable = false }

  /// Takes over what a crash left: from now on that is certain.
  mutating func adopt(_ subset: [Change]) {
    changes = subset
    for index in changes.indices {
      changes[index].isDone = true
      changes[index].isDurable = true
    }
  }

  /// The changes that must be there, and those that may.
  func subsets(afterPowerCut: Bool) -> (certain: [Int], open: [Int]) {
    var certain: [Int] = []
    var open: [Int] = []
    for (index, change) in changes.enumerated() {
      if change.isDone && (!afterPowerCut || change.isDurable) {
        certain.append(index)
      } else {
        open.append(index)
      }
    }
    return (certain, open)
  }

  /// A choice of changes whose state is `found`, or nil.
  func explanation(of found: [String: [Int]], afterPowerCut: Bool) -> [Change]? {
    let (certain, open) = subsets(afterPowerCut: afterPowerCut)
    precondition(open.count <= 16, "too many open changes to try them all")
    for mask in (0..<(1 << open.count)).reversed() {
      let chosen = Set(certain + open.enumerated().filter { mask >> $0.offset & 1 == 1 }.map(\.element))
      let subset = changes.enumerated().filter { chosen.contains($0.offset) }.map(\.element)
      if Self.state(subset) == found { return subset }
    }
    return nil
  }
}

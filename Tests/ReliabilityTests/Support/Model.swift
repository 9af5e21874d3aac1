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
    /// When it was asked for, and when that returned, on a clock of the model's own.
    var begun = 0
    var ended: Int?
  }

  private(set) var changes: [Change] = []
  private(set) var contents: [Int: Data] = [:]
  private var nextNumber = 1
  private var now = 0
  /// Keys under which several writers archive at the same time: the order of what overlaps is open.
  static let sharedKey = "shared"

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

  /// The next moment.
  mutating func tick() -> Int {
    now += 1
    return now
  }

  private mutating func begin(_ change: Change) -> Int {
    var change = change
    change.begun = tick()
    changes.append(change)
    return changes.count - 1
  }

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
    return begin(change)
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
    return begin(change)
  }

  mutating func end(_ index: Int) {
    changes[index].isDone = true
    changes[index].ended = tick()
  }

  /// A change that failed cleanly never was.
  mutating func fail(_ index: Int) {
    changes[index] = Change(isDurable: false, isDone: true, name: "failed")
  }

  /// A change that failed unclearly may or may not be there.
  mutating func leaveOpen(_ index: Int) { changes[index].isDurable = false }

  /// The model as it was when only the first `count` changes had been asked for, and only some of them had returned.
  func asOf(changeCount count: Int, isDone: (Int) -> Bool) -> Model {
    var model = self
    model.changes = Array(changes.prefix(count))
    for index in model.changes.indices where !isDone(index) {
      model.changes[index].isDone = false
      model.changes[index].ended = nil
    }
    return model
  }

  /// Takes over what a crash left: from now on that is certain.
  mutating func adopt(_ subset: [Change]) {
    changes = subset
    let moment = tick()
    for index in changes.indices {
      changes[index].isDone = true
      changes[index].isDurable = true
      changes[index].ended = changes[index].ended ?? moment
    }
  }

  /// A choice of changes whose state is `found`, or nil.
  func explanation(of found: [String: [Int]], afterPowerCut: Bool) -> [Change]? {
    guard isInOrder(found[Self.sharedKey] ?? []) else { return nil }
    var chosen: Set<Int> = []
    for part in parts() {
      guard let some = explanation(of: found, part, afterPowerCut: afterPowerCut) else { return nil }
      chosen.formUnion(some)
    }
    let known = Set(changes.flatMap { $0.keys })
    guard found.keys.allSatisfy(known.contains) else { return nil }
    return changes.indices.filter(chosen.contains).map { changes[$0] }
  }

  /// The changes, divided so that those of different parts have no key in common.
  private func parts() -> [[Int]] {
    var parts: [(keys: Set<String>, indices: [Int])] = []
    for (index, change) in changes.enumerated() {
      var merged: (keys: Set<String>, indices: [Int]) = (change.keys, [index])
      parts.removeAll { part in
        guard !part.keys.isDisjoint(with: change.keys) else { return false }
        merged = (merged.keys.union(part.keys), part.indices + merged.indices)
        return true
      }
      parts.append(merged)
    }
    return parts.map { $0.indices.sorted() }
  }

  private func explanation(of found: [String: [Int]], _ part: [Int], afterPowerCut: Bool) -> [Int]? {
    let keys = part.reduce(into: Set<String>()) { $0.formUnion(changes[$1].keys) }
    let wanted = Self.comparable(found.filter { keys.contains($0.key) })
    let seen = Set(wanted.values.joined())
    let hidden = part.reduce(into: Set<Version>()) { $0.formUnion(changes[$1].hidden) }
    var certain: [Int] = []
    var open: [Int] = []
    for index in part {
      let change = changes[index]
      if change.isDone && (!afterPowerCut || change.isDurable)
        || change.made.contains(where: { seen.contains($0.number) })
      {
        certain.append(index)
      } else if change.made.allSatisfy({ hidden.contains($0) }) {
        open.append(index)
      }
      // What made a version that nothing hides and that is not there has not happened.
    }
    precondition(open.count <= 20, "too many open changes to try them all")
    for mask in (0..<(1 << open.count)).reversed() {
      let chosen = (certain + open.enumerated().filter { mask >> $0.offset & 1 == 1 }.map(\.element)).sorted()
      if Self.comparable(Self.state(chosen.map { changes[$0] })) == wanted { return chosen }
    }
    return nil
  }

  /// Whether this is what should be seen, no change being open.
  func matches(_ found: [String: [Int]]) -> Bool {
    Self.comparable(found) == Self.comparable(state) && isInOrder(found[Self.sharedKey] ?? [])
  }

  private static func comparable(_ state: [String: [Int]]) -> [String: [Int]] {
    var state = state
    state[sharedKey]?.sort()
    return state
  }

  /// Whether no version, newest first, stands before one that was put only after it was done.
  private func isInOrder(_ numbers: [Int]) -> Bool {
    let makers = numbers.map { number in changes.first { $0.made.contains { $0.number == number } } }
    for (place, newer) in makers.enumerated() {
      for older in makers[(place + 1)...] {
        guard let newer, let older else { return false }
        if let ended = newer.ended, ended < older.begun { return false }
      }
    }
    return true
  }

  /// Settles what was under way of these keys when their only writer was killed: it is there by now, or never was.
  mutating func settle(_ keys: Set<String>, found: [String: [Int]]) -> Bool {
    let part = changes.indices.filter { !changes[$0].keys.isDisjoint(with: keys) }
    guard let chosen = explanation(of: found, part, afterPowerCut: false) else { return false }
    for index in part where !changes[index].isDone {
      if chosen.contains(index) { end(index) } else { fail(index) }
    }
    return true
  }

  // MARK: What a reader may see meanwhile

  /// Whether a version could be the current one of its key at some time since `start`.
  func mayBeCurrent(_ number: Int, of key: String, since start: Int) -> Bool {
    guard let maker = changes.first(where: { $0.made.contains(Version(key: key, number: number)) }) else {
      return false
    }
    if isHidden(Version(key: key, number: number), before: start) { return false }
    // Something younger was there for sure, and was never hidden.
    return !changes.contains { other in
      guard let ended = other.ended, ended < start, let madeBefore = maker.ended, madeBefore < other.begun
      else {
        return false
      }
      return other.made.contains { $0.key == key && !mayBeHidden($0) }
    }
  }

  /// Whether the key could have had no version at some time since `start`.
  func mayBeAbsent(_ key: String, since start: Int) -> Bool {
    !changes.contains { change in
      guard let ended = change.ended, ended < start else { return false }
      return change.made.contains { $0.key == key && !mayBeHidden($0) }
    }
  }

  func mayBeHidden(_ version: Version) -> Bool { changes.contains { $0.hidden.contains(version) } }

  private func isHidden(_ version: Version, before moment: Int) -> Bool {
    changes.contains { change in
      guard let ended = change.ended, ended < moment else { return false }
      return change.hidden.contains(version)
    }
  }
}

extension Model.Change {
  var keys: Set<String> { Set(made.map(\.key)).union(hidden.map(\.key)) }
}

extension Model {
  /// The changes in words, for messages.
  func describe(_ keys: Set<String>? = nil) -> String {
    changes.filter { keys?.isDisjoint(with: $0.keys) != true && !$0.keys.isEmpty }.map { change in
      "[\(change.name) made \(change.made.map(\.number)) hid \(change.hidden.map(\.number).sorted())"
        + "\(change.isDurable ? " durable" : "")\(change.isDone ? " done" : "")]"
    }.joined()
  }
}

import BlobStorage
import Foundation

/// What machines were told, and so what every machine must come to show.
struct MachineModel {
  /// One version of a key.
  struct Name: Hashable, CustomStringConvertible {
    var key: String
    var id: BlobVersion.ID

    init(_ key: String, _ id: BlobVersion.ID) {
      self.key = key
      self.id = id
    }

    var description: String { "\(key) \(id)" }
  }

  /// What a process has done that was not reported durable yet.
  struct Work {
    /// With their contents' numbers, and those of the changes that made them.
    var added: [(name: Name, content: Int, change: Int)] = []
    var hidden: [Name] = []
  }

  /// What was ever put, by the number that a version's metadata says.
  private(set) var contents: [Int: Data] = [:]
  /// Reported durable, with its content's number.
  private(set) var reported: [Name: Int] = [:]
  /// Reported to be dropped or replaced, durably.
  private(set) var hidden: Set<Name> = []
  /// How many have begun to hide it, and may have.
  private var doubts: [Name: Int] = [:]

  /// Changes that have begun, with the versions that were known then.
  private var underWay: [Int: (keys: Set<String>, known: Set<Name>)] = [:]
  private var lastChange = 0
  /// By keys, how many changes had begun when one ended that may have hidden what no machine had reported yet.
  private var wild: [String: Int] = [:]

  /// A number for content that is about to be put.
  mutating func add(_ content: Data) -> Int {
    contents[contents.count + 1] = content
    return contents.count
  }

  /// Whether it was reported, and no change has begun that hides it or may know of it since.
  func isSure(_ name: Name) -> Bool {
    guard reported[name] != nil, doubts[name] == nil else { return false }
    return !underWay.values.contains { $0.keys.contains(name.key) && !$0.known.contains(name) }
  }

  /// A machine is about to hide versions of these keys, of those that can be seen or of others. Returns a number for the
  /// change, and all that it may hide.
  mutating func begin(_ keys: Set<String>, _ visible: Set<Name>) -> (number: Int, known: Set<Name>) {
    let known = visible.union(names(of: keys))
    doubt(known)
    lastChange += 1
    underWay[lastChange] = (keys, known)
    return (lastChange, known)
  }

  /// The change has ended. Returns what has come since and may be hidden as well.
  ///
  /// - Parameter isWild: what was not reported yet may be among it.
  mutating func end(_ number: Int, isWild: Bool) -> Set<Name> {
    guard let (keys, known) = underWay.removeValue(forKey: number) else { return [] }
    if isWild { for key in keys { wild[key] = lastChange } }
    return names(of: keys).subtracting(known)
  }

  mutating func doubt(_ names: Set<Name>) {
    for name in names { doubts[name, default: 0] += 1 }
  }

  /// It was not hidden after all.
  mutating func trust(_ name: Name) {
    guard let count = doubts[name] else { return }
    doubts[name] = count > 1 ? count - 1 : nil
  }

  /// Everything reported of these keys.
  private func names(of keys: Set<String>) -> Set<Name> {
    Set(reported.keys.filter { keys.contains($0.key) })
  }

  /// All that a process has done so far is durable.
  mutating func finish(_ work: inout Work) {
    for (name, content, change) in work.added where wild[name.key] ?? 0 < change { reported[name] = content }
    hidden.formUnion(work.hidden)
    work = Work()
  }
}

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
    var added: [(name: Name, number: Int)] = []
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

  /// A number for content that is about to be put.
  mutating func add(_ content: Data) -> Int {
    contents[contents.count + 1] = content
    return contents.count
  }

  /// Whether it was reported, and nobody has begun to hide it.
  func isSure(_ name: Name) -> Bool { reported[name] != nil && doubts[name] == nil }

  /// Somebody is about to hide some of these.
  mutating func doubt(_ names: Set<Name>) {
    for name in names { doubts[name, default: 0] += 1 }
  }

  /// It was not hidden after all.
  mutating func trust(_ name: Name) {
    guard let count = doubts[name] else { return }
    doubts[name] = count > 1 ? count - 1 : nil
  }

  /// Everything reported of these keys.
  func names(of keys: Set<String>) -> Set<Name> { Set(reported.keys.filter { keys.contains($0.key) }) }

  /// All that a process has done so far is durable.
  mutating func finish(_ work: inout Work) {
    for (name, number) in work.added { reported[name] = number }
    hidden.formUnion(work.hidden)
    work = Work()
  }
}

/// Prints facts as a table of names and values.
struct FactTable {
  private var facts: [(name: String, value: String)] = []

  mutating func add(_ name: String, _ value: String) { facts.append((name, value)) }
  mutating func add(_ name: String, _ count: Int) { add(name, HumanText.grouped(count)) }
  mutating func add(_ name: String, byteCount: Int64) { add(name, HumanText.size(byteCount)) }

  /// Writes the facts to standard output.
  func print() throws {
    let width = facts.map(\.name.count).max() ?? 0
    let lines = facts.map { fact in
      fact.name + String(repeating: " ", count: width + 2 - fact.name.count) + fact.value + "\n"
    }
    try StandardOutput.write(lines.joined())
  }
}

/// A shell pattern: `*` and `?` stand for any bytes and any one character, `[…]` for one of a set, `\` takes the next
/// character as it is. `*` and `?` match '/' as well.
struct ShellPattern {
  private let pattern: [Character]

  init(_ text: String) { pattern = Array(text) }

  /// Whether the whole text matches.
  ///
  /// - Complexity: text times pattern: the last `*` alone is tried again.
  func matches(_ text: String) -> Bool {
    let text = Array(text)
    var (position, place) = (0, 0)
    var star: (place: Int, position: Int)?
    while position < text.count {
      if place < pattern.count, pattern[place] == "*" {
        star = (place, position)
        place += 1
      } else if let next = step(place, text[position]) {
        place = next
        position += 1
      } else if let last = star {
        star = (last.place, last.position + 1)
        place = last.place + 1
        position = last.position + 1
      } else {
        return false
      }
    }
    while place < pattern.count, pattern[place] == "*" { place += 1 }
    return place == pattern.count
  }

  /// Where the pattern goes on after matching one character, or nil when it does not match.
  private func step(_ place: Int, _ character: Character) -> Int? {
    guard place < pattern.count else { return nil }
    switch pattern[place] {
    case "?": return place + 1
    case "\\" where place + 1 < pattern.count: return pattern[place + 1] == character ? place + 2 : nil
    case "[":
      guard let end = pattern[(place + 1)...].dropFirst().firstIndex(of: "]") else {
        return character == "[" ? place + 1 : nil
      }
      var set = pattern[(place + 1)..<end]
      let isNegated = set.first == "!" || set.first == "^"
      if isNegated { set = set.dropFirst() }
      return Self.contains(Array(set), character) != isNegated ? end + 1 : nil
    default: return pattern[place] == character ? place + 1 : nil
    }
  }

  private static func contains(_ set: [Character], _ character: Character) -> Bool {
    var index = 0
    while index < set.count {
      if index + 2 < set.count, set[index + 1] == "-" {
        if set[index] <= character, character <= set[index + 2] { return true }
        index += 3
      } else {
        if set[index] == character { return true }
        index += 1
      }
    }
    return false
  }
}

import BlobStorage

/// A shell pattern: `*` and `?` stand for any bytes and any one character, `[…]` for one of a set, `\` takes the next
/// character as it is. `*` and `?` match '/' as well. A character is a Unicode scalar, because names are compared by
/// bytes.
package struct ShellPattern: Sendable {
  private let pattern: PatternMatch
  private let isOfFolders: Bool
  private let isOfPaths: Bool

  /// A pattern that ends in '/' matches folders only; that '/' is not part of it.
  package init(_ text: String) {
    var scalars = Array(text.unicodeScalars)
    isOfFolders = scalars.count > 1 && scalars.last == "/"
    if isOfFolders { scalars.removeLast() }
    pattern = PatternMatch(pattern: scalars)
    isOfPaths = scalars.contains("/")
  }

  /// Whether a file or folder below the root matches: by its path if the pattern holds a '/', else by its name.
  package func matches(path: String, isFolder: Bool) -> Bool {
    if isOfFolders, !isFolder { return false }
    if isOfPaths { return matches(path) }
    let scalars = Array(path.unicodeScalars)
    return pattern.matches(scalars.split(separator: "/").last.map { Array($0) } ?? scalars)
  }

  /// Whether the whole text matches.
  ///
  /// - Complexity: text times pattern: the last `*` alone is tried again.
  package func matches(_ text: String) -> Bool { pattern.matches(Array(text.unicodeScalars)) }
}

/// A shell pattern for whole keys: `*` stands for any characters, '/' included, `?` for one, `[…]` for one of a set,
/// and `\` takes the next character as it is. A character is a Unicode scalar, because keys are compared by bytes.
public struct KeyPattern: Sendable {
  /// The literal prefix of every matching key.
  public let prefix: String
  private let pattern: PatternMatch

  public init(_ text: String) {
    pattern = PatternMatch(pattern: Array(text.unicodeScalars))
    prefix = String(text.unicodeScalars.prefix { !"*?[\\".unicodeScalars.contains($0) })
  }

  public func matches(_ key: String) -> Bool {
    key.utf8.starts(with: prefix.utf8) && pattern.matches(Array(key.unicodeScalars))
  }
}

/// Matches Unicode scalars with a shell pattern.
struct PatternMatch: Sendable {
  let pattern: [Unicode.Scalar]

  func matches(_ text: [Unicode.Scalar]) -> Bool {
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
  private func step(_ place: Int, _ character: Unicode.Scalar) -> Int? {
    guard place < pattern.count else { return nil }
    switch pattern[place] {
    case "?": return place + 1
    case "\\" where place + 1 < pattern.count: return pattern[place + 1] == character ? place + 2 : nil
    case "[":
      let first = pattern.dropFirst(place + 1).first
      let isNegated = first == "!" || first == "^"
      let start = place + (isNegated ? 2 : 1)
      // A ']' that stands first belongs to the set: POSIX.1-2017, Shell, 2.13.1.
      guard let end = pattern.dropFirst(start + 1).firstIndex(of: "]") else {
        return character == "[" ? place + 1 : nil
      }
      return Self.contains(Array(pattern[start..<end]), character) != isNegated ? end + 1 : nil
    default: return pattern[place] == character ? place + 1 : nil
    }
  }

  private static func contains(_ set: [Unicode.Scalar], _ character: Unicode.Scalar) -> Bool {
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

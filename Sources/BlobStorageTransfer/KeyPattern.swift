import BlobStorage

/// A shell pattern for whole keys: `*` stands for any characters, '/' included, `?` for one, `[…]` for one of a set,
/// and `\` takes the next character as it is. A character is a Unicode scalar, because keys are compared by bytes.
public struct KeyPattern: Sendable {
  /// The literal prefix of every matching key.
  public let prefix: String
  private let pattern: PatternMatch

  public init(_ text: String) {
    pattern = PatternMatch(tokens: PatternToken.parse(Array(text.unicodeScalars)[...], isLenient: true) ?? [])
    prefix = String(text.unicodeScalars.prefix { !"*?[\\".unicodeScalars.contains($0) })
  }

  public func matches(_ key: String) -> Bool {
    key.utf8.starts(with: prefix.utf8) && pattern.matches(Array(key.unicodeScalars))
  }
}

/// What stands for one character or several in a shell pattern.
enum PatternToken: Sendable, Equatable {
  case literal(Unicode.Scalar)
  case any
  case star
  case set(PatternSet)

  /// Parses a pattern.
  ///
  /// - Parameter isLenient: takes a `[` without a `]`, and a `\` at the end, as they are.
  /// - Returns: nil for such a pattern otherwise.
  static func parse(_ text: ArraySlice<Unicode.Scalar>, isLenient: Bool) -> [Self]? {
    var tokens: [Self] = []
    var rest = text
    while let first = rest.popFirst() {
      switch first {
      case "*": tokens.append(.star)
      case "?": tokens.append(.any)
      case "\\":
        if let next = rest.popFirst() {
          tokens.append(.literal(next))
        } else if isLenient {
          tokens.append(.literal("\\"))
        } else {
          return nil
        }
      case "[":
        if let (set, end) = PatternSet.parse(rest) {
          tokens.append(.set(set))
          rest = rest[end...]
        } else if isLenient {
          tokens.append(.literal("["))
        } else {
          return nil
        }
      default: tokens.append(.literal(first))
      }
    }
    return tokens
  }

  func matches(_ character: Unicode.Scalar) -> Bool {
    switch self {
    case .literal(let scalar): scalar == character
    case .any: true
    case .star: false
    case .set(let set): set.contains(character)
    }
  }
}

/// The characters between brackets: POSIX.1-2017, Base Definitions, 9.3.5, as wildmatch.c of git reads it.
struct PatternSet: Sendable, Equatable {
  /// The first and the last character of each range.
  private static let classes = [
    "alnum": "09AZaz", "alpha": "AZaz", "blank": "  \t\t", "cntrl": "\0\u{1f}\u{7f}\u{7f}", "digit": "09",
    "graph": "!~", "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "  \t\r", "upper": "AZ",
    "xdigit": "09AFaf",
  ]

  private var isNegated = false
  private var ranges: [ClosedRange<Unicode.Scalar>] = []

  func contains(_ character: Unicode.Scalar) -> Bool {
    ranges.contains { $0.contains(character) } != isNegated
  }

  /// Parses what follows the `[`. Returns the index behind the `]`; nil without one, or for a class that is not known.
  static func parse(_ text: ArraySlice<Unicode.Scalar>) -> (set: Self, end: Int)? {
    var set = Self()
    var index = text.startIndex
    if index < text.endIndex, text[index] == "!" || text[index] == "^" {
      set.isNegated = true
      index += 1
    }
    var previous: Unicode.Scalar?
    var isFirst = true
    while index < text.endIndex {
      let scalar = text[index]
      // A ']' that stands first belongs to the set.
      if scalar == "]", !isFirst { return (set, index + 1) }
      isFirst = false
      if scalar == "[", index + 1 < text.endIndex, text[index + 1] == ":" {
        guard let end = text[(index + 2)...].firstIndex(of: "]") else { return nil }
        if end > index + 2, text[end - 1] == ":" {
          var name = String.UnicodeScalarView()
          name.append(contentsOf: text[(index + 2)..<(end - 1)])
          guard let ends = classes[String(name)].map({ Array($0.unicodeScalars) }) else { return nil }
          set.ranges += stride(from: 0, to: ends.count, by: 2).map { ends[$0]...ends[$0 + 1] }
          (index, previous) = (end + 1, nil)
          continue
        }
      }
      if scalar == "-", let start = previous, index + 1 < text.endIndex, text[index + 1] != "]" {
        index += text[index + 1] == "\\" ? 2 : 1
        guard index < text.endIndex else { return nil }
        if start <= text[index] { set.ranges.append(start...text[index]) }
        (index, previous) = (index + 1, nil)
        continue
      }
      if scalar == "\\" { index += 1 }
      guard index < text.endIndex else { return nil }
      set.ranges.append(text[index]...text[index])
      (index, previous) = (index + 1, text[index])
    }
    return nil
  }
}

/// Matches Unicode scalars with a shell pattern, in which `*` stands for any characters.
struct PatternMatch: Sendable, Equatable {
  let tokens: [PatternToken]

  /// Whether the whole text matches.
  ///
  /// - Complexity: text times pattern: the last `*` alone is tried again.
  func matches(_ text: [Unicode.Scalar]) -> Bool {
    var (position, place) = (0, 0)
    var star: (place: Int, position: Int)?
    while position < text.count {
      if place < tokens.count, tokens[place] == .star {
        star = (place, position)
        place += 1
      } else if place < tokens.count, tokens[place].matches(text[position]) {
        place += 1
        position += 1
      } else if let last = star {
        star = (last.place, last.position + 1)
        (place, position) = (last.place + 1, last.position + 1)
      } else {
        return false
      }
    }
    while place < tokens.count, tokens[place] == .star { place += 1 }
    return place == tokens.count
  }
}

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

/// A shell pattern for whole keys: `*` stands for any characters, '/' included, `?` for one, `[…]` for one of a set, and
/// `\` takes the next character as it is.
public struct KeyPattern: Sendable {
  /// The beginning of every key that matches.
  public let prefix: String
  private let pattern: ShellPattern

  public init(_ text: String) {
    pattern = ShellPattern(ofWholeTexts: text)
    prefix = String(text.prefix { !"*?[\\".contains($0) })
  }

  public func matches(_ key: String) -> Bool {
    // Keys are compared by bytes.
    key.utf8.starts(with: prefix.utf8) && pattern.matches(key)
  }
}

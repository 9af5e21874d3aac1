import BlobStorage
import SystemPackage

/// A pattern that can never leave anything out, and why.
public struct UselessPattern: Sendable, Hashable, Codable {
  public var pattern: String
  /// One clause for a person, which continues “the pattern … has no effect: ”.
  public var reason: String

  public init(pattern: String, reason: String) {
    self.pattern = pattern
    self.reason = reason
  }
}

/// Says what to leave out below a folder, by the rules of gitignore(5).
///
/// The last pattern that matches a file or folder decides. Nothing below a folder that is left out can be brought back.
/// Two things differ: `?` and `[…]` stand for a Unicode scalar instead of a byte, and a pattern may begin with `./` or
/// with the path of the folder.
package struct IgnoreRules: Sendable {
  private struct Rule: Sendable {
    /// Nil if it never matches.
    var parts: [PathPart]?
    /// Whether `!` stands in front: what it matches is not left out.
    var brings = false
    var isOfFolders = false
    /// Whether it has no '/' and so matches names in any folder.
    var isOfNames = false
  }

  private var rules: [Rule] = []
  package private(set) var useless: [UselessPattern] = []

  /// - Parameter folder: the folder that the paths to match are relative to; nil if they have none in common.
  package init(_ patterns: [String], below folder: FilePath? = nil) {
    for pattern in patterns {
      let (rule, reason) = Self.parse(Array(pattern.unicodeScalars), below: folder)
      if let reason {
        useless.append(UselessPattern(pattern: pattern, reason: reason))
      } else if rule.brings, !rules.contains(where: { !$0.brings }) {
        useless.append(UselessPattern(pattern: pattern, reason: "no pattern before it leaves anything out"))
      }
      rules.append(rule)
    }
  }

  /// Whether to leave out a file or folder. Does not look at the folders above it.
  package func excludes(_ path: String, isFolder: Bool) -> Bool {
    if rules.isEmpty { return false }
    return excludes(path.unicodeScalars.split(separator: "/").map { Array($0) }[...], isFolder: isFolder)
  }

  /// Whether to leave out a file or folder, or a folder above it.
  package func excludesPath(_ path: String, isFolder: Bool) -> Bool {
    if rules.isEmpty { return false }
    let parts = path.unicodeScalars.split(separator: "/").map { Array($0) }
    return parts.indices.contains { index in
      excludes(parts[...index], isFolder: index < parts.count - 1 || isFolder)
    }
  }

  private func excludes(_ parts: ArraySlice<[Unicode.Scalar]>, isFolder: Bool) -> Bool {
    for rule in rules.reversed() where isFolder || !rule.isOfFolders {
      guard let pattern = rule.parts else { continue }
      if PathPart.match(pattern, rule.isOfNames ? parts.suffix(1) : parts) { return !rule.brings }
    }
    return false
  }

  // MARK: Parsing

  /// - Returns: the rule, and why it never matches, if it does not.
  private static func parse(
    _ scalars: [Unicode.Scalar], below folder: FilePath?
  ) -> (rule: Rule, reason: String?) {
    var text = trimmed(scalars)[...]
    var rule = Rule()
    if text.first == "!" {
      rule.brings = true
      text.removeFirst()
    }
    if let folder, let rest = rest(of: text, below: folder) { text = rest }
    while text.starts(with: "./".unicodeScalars) {
      text = ["/"] + text.dropFirst(2).drop { $0 == "/" }
    }
    if text.isEmpty || text == ["/"] { return (rule, "it is empty") }
    if text.last == "/" {
      rule.isOfFolders = true
      text.removeLast()
    }
    rule.isOfNames = !text.contains("/")
    if text.first == "/" { text.removeFirst() }
    text = withoutEscapedSlashes(text)
    guard let tokens = PatternToken.parse(text, isLenient: false) else {
      return (rule, "a [ has no ], or a \\ stands at its end")
    }
    var parts: [PathPart] = []
    for part in rule.isOfNames
      ? [tokens[...]] : tokens.split(separator: .literal("/"), omittingEmptySubsequences: false)
    {
      if part.isEmpty { return (rule, "no name between two slashes is empty") }
      if part.allSatisfy({ $0 == .literal(".") }), part.count <= 2 {
        return (rule, "no path has . or .. in it")
      }
      let isAnyFolders = !rule.isOfNames && part.count > 1 && part.allSatisfy { $0 == .star }
      parts.append(isAnyFolders ? .anyFolders : .name(PatternMatch(tokens: Array(part))))
    }
    // At its end, `**` stands foreverything in a folder, and not for the folder.
    if parts.last == .anyFolders { parts.append(.name(PatternMatch(tokens: [.star]))) }
    rule.parts = parts
    return (rule, nil)
  }

  /// Replaces `\/` by `/`. After the name `**` it stands for at least one folder, because git looks for a slash there.
  private static func withoutEscapedSlashes(_ text: ArraySlice<Unicode.Scalar>) -> ArraySlice<Unicode.Scalar>
  {
    var found: [Unicode.Scalar] = []
    var rest = text
    while let first = rest.popFirst() {
      guard first == "\\", let next = rest.popFirst() else {
        found.append(first)
        continue
      }
      if next != "/" {
        found += [first, next]
        continue
      }
      let name = found[((found.lastIndex(of: "/") ?? -1) + 1)...]
      if name.count > 1, name.allSatisfy({ $0 == "*" }) {
        found.removeLast(name.count)
        found += "*/**".unicodeScalars
      }
      found.append("/")
    }
    return found[...]
  }

  /// Without the blanks at its end; one behind a backslash stays.
  private static func trimmed(_ scalars: [Unicode.Scalar]) -> [Unicode.Scalar] {
    var end = 0
    var index = 0
    while index < scalars.count {
      let isEscaped = scalars[index] == "\\" && index + 1 < scalars.count
      if scalars[index] != " " { end = index + (isEscaped ? 2 : 1) }
      index += isEscaped ? 2 : 1
    }
    return Array(scalars[..<end])
  }

  /// What follows the folder's own path in a pattern, with a '/' in front. Nil if the folder has an entry that the
  /// pattern could mean as it is.
  private static func rest(
    of text: ArraySlice<Unicode.Scalar>, below folder: FilePath
  ) -> ArraySlice<Unicode.Scalar>? {
    var names = [folder.lexicallyNormalized()]
    if let absolute = try? folder.absolute() { names.append(absolute.lexicallyNormalized()) }
    let pattern = text.starts(with: "./".unicodeScalars) ? text.dropFirst(2) : text
    for name in names where name.string != "." && name.string != "/" {
      let start = EscapedName.key(of: name.bytes).text.unicodeScalars
      guard pattern.starts(with: start), pattern.dropFirst(start.count).first == "/",
        let first = name.components.first,
        first.kind != .regular || (try? SystemFiles().status(of: folder.appending([first]))) == nil
      else { continue }
      return pattern.dropFirst(start.count)
    }
    return nil
  }
}

/// A part of a pattern for paths, between slashes.
private enum PathPart: Sendable, Equatable {
  /// `**`: any number of folders.
  case anyFolders
  case name(PatternMatch)

  /// Whether the whole path matches.
  static func match(_ pattern: [Self], _ path: ArraySlice<[Unicode.Scalar]>) -> Bool {
    var (place, position) = (0, path.startIndex)
    var last: (place: Int, position: Int)?
    while position < path.endIndex {
      if place < pattern.count, pattern[place] == .anyFolders {
        last = (place, position)
        place += 1
      } else if place < pattern.count, case .name(let name) = pattern[place],
        name.matches(path[position])
      {
        place += 1
        position += 1
      } else if let found = last {
        last = (found.place, found.position + 1)
        (place, position) = (found.place + 1, found.position + 1)
      } else {
        return false
      }
    }
    return place == pattern.count
  }
}

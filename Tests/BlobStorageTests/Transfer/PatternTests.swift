import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

@Suite("A pattern for keys")
struct KeyPatternTests {
  @Test(
    "matches whole keys, '/' included, by their bytes",
    arguments: [
      ("a/*.jpg", "a/b/c.jpg", true), ("a/*.jpg", "xa/b.jpg", false), ("a", "a/b", false), ("a/", "a/", true),
      ("a/", "a", false), ("*/", "a/", true), ("?", "/", true), ("[!a]b", "cb", true), (#"\*"#, "*", true),
      (#"\*"#, "x", false), ("*\u{e9}", "x\u{e9}", true), ("*\u{e9}", "xe\u{301}", false),
      ("e*", "e\u{301}", true), ("\u{e9}", "e\u{301}", false), ("*", "", true),
    ])
  func match(_ pattern: String, _ key: String, _ isMatch: Bool) {
    #expect(KeyPattern(pattern).matches(key) == isMatch)
  }

  @Test(
    "knows how all keys begin that match",
    arguments: [("a/*", "a/"), ("ab", "ab"), (#"a\b"#, "a"), ("[a]", "")])
  func prefix(_ pattern: String, _ prefix: String) {
    #expect(KeyPattern(pattern).prefix == prefix)
  }
}

@Suite("Rules that leave out files")
struct IgnoreRulesTests {
  private static let paths: [(path: String, isFolder: Bool)] = {
    let names = ["a", "b", "ab", "a b", "a ", ".a", "[", "]", "-", "!a", "a.b", "\\", "é", "*"]
    var paths: [(String, Bool)] = []
    for name in names {
      paths += [("f/\(name)", false), ("f/\(name)d", true), ("f/\(name)d/\(name)", false)]
      paths += [(name, true), ("\(name)/a", true), ("\(name)/a/b", true), ("\(name)/a/b/\(name)", false)]
      paths += [("\(name)/b", false), ("\(name)/a/ab", false)]
    }
    return [("f", true)] + paths
  }()

  private static let patterns: [[String]] = {
    let single = [
      "a", "/a", "a/", "/a/", "a/b", "a/b/", "/a/b", "b/a", "*", "/*", "*/", "*/a", "a/*", "*/*/b", "a*",
      "*b", "a*b",
      "?", "??", "a?b", "[ab]", "[!a]", "[^a]", "[a-b]b", "[]]", "[!]]", "[]-]", "[a-]", "[-a]", "[[]", "[",
      "a[", "[a",
      "[]", "[!]", "[[:alpha:]]", "[[:punct:]]", "[![:alnum:]]", "[[:alpha:]-]", "[[:none:]]", "[[:alpha]",
      "[[:]",
      "[\\]]", "[\\a]", "[b-a]", "[/]", "a[/]b", "a[x/]b", "**", "**/", "/**", "**/a", "**/a/b", "a/**",
      "a/**/b",
      "/**/a", "**/**/a", "a/**/", "f/**/a", "f/***", "***", "a**b", "a**/b", "**a", "**b/a", "a/**b", "a//b",
      "//a",
      "a//", "/", "//", "\\a", "\\*", "\\!a", "\\[", "\\", "a\\", "\\\\", "a ", "a\\ ", "a  ", " ", "\\ ",
      "a b", "a\\ b",
      "a.b", ".a", ".", "..", "a/.", "a/./b", "a/../a", "f/*", "f/a", "f/*d", "f/*d/", "f/*/a", "é", "f/é",
      "é/",
    ]
    let several = [
      ["*", "!a"], ["*", "!f", "f/*", "!f/a"], ["/*", "!/a", "/a/*", "!/a/b"], ["a", "!a", "a"],
      ["a/", "!a/b"],
      ["!a", "a"], ["*", "!*/", "!*b"], ["a*", "!ab", "a b"], ["**/b", "!a/**/b"], ["!a"], ["*", "!", "!/"],
      ["*", "! a"],
    ]
    var random = SplitMix64(seed: 12)
    let parts = [
      "a", "b", "/", "/", "*", "**", "?", "[ab]", "[!a]", "\\", "!", ".", " ", "[", "]", "-", "ab", "f", "d",
    ]
    let made = (0..<300).map { _ in
      (0..<(1 + Int(random.next() % 3))).map { _ in
        (0..<(1 + Int(random.next() % 5))).map { _ in parts[Int(random.next() % UInt64(parts.count))] }
          .joined()
      }
    }
    return single.map { [$0] } + several + made
  }()

  /// A pattern that may begin with `./`, or has `**` at the end of a longer name: there git 2.39 compares pointers into
  /// different strings, so its answer depends on addresses. By gitignore(5), these are two ordinary asterisks.
  private static func differs(_ pattern: String) -> Bool {
    pattern.drop { $0 == "!" || $0 == "/" }.hasPrefix("./")
      || pattern.contains(/[^\/]\*\*+ *(?:\/|\\\/|$)/)
  }

  @Test(
    "leave out what git ignores", .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/git")))
  func asGit() throws {
    let folder = try TemporaryFolder()
    let root = folder.path.string
    for (path, isFolder) in Self.paths {
      if isFolder {
        try FileManager.default.createDirectory(atPath: "\(root)/\(path)", withIntermediateDirectories: true)
      } else {
        try Data().write(to: URL(filePath: "\(root)/\(path)"))
      }
    }
    try run(["init", "-q"], in: root)
    // A byte of é is what ? stands for in git.
    let asked = Self.paths.filter { !$0.path.contains("é") }
    var answeredCount = 0
    for patterns in Self.patterns where !patterns.contains(where: Self.differs) {
      let isOfBytes = patterns.contains { $0.contains("é") }
      let paths = isOfBytes ? Self.paths : asked
      try Data(patterns.map { $0 + "\n" }.joined().utf8).write(to: URL(filePath: "\(root)/.git/info/exclude"))
      let answer = try run(
        ["check-ignore", "--no-index", "--stdin", "-z"], in: root,
        input: paths.map { "./\($0.path)\0" }.joined())
      let ignored = Set(answer.split(separator: "\0").map { String($0.dropFirst(2)) })
      let rules = IgnoreRules(patterns)
      for (path, isFolder) in paths {
        #expect(
          rules.excludesPath(path, isFolder: isFolder) == ignored.contains(path), "\(patterns) and “\(path)”")
      }
      if !ignored.isEmpty { answeredCount += 1 }
    }
    #expect(answeredCount > 100)
  }

  /// Runs git; returns what it puts out.
  @discardableResult
  private func run(_ arguments: [String], in folder: String, input: String = "") throws -> String {
    let (inputFile, outputFile) = (folder + "-in", folder + "-out")
    defer { for file in [inputFile, outputFile] { try? FileManager.default.removeItem(atPath: file) } }
    try Data(input.utf8).write(to: URL(filePath: inputFile))
    try Data().write(to: URL(filePath: outputFile))
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/git")
    process.arguments = arguments
    process.currentDirectoryURL = URL(filePath: folder)
    process.environment = ["HOME": folder, "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"]
    process.standardInput = try FileHandle(forReadingFrom: URL(filePath: inputFile))
    process.standardOutput = try FileHandle(forWritingTo: URL(filePath: outputFile))
    try process.run()
    process.waitUntilExit()
    // 1 if nothing is ignored.
    #expect(process.terminationStatus <= 1)
    return String(decoding: try Data(contentsOf: URL(filePath: outputFile)), as: UTF8.self)
  }

  @Test("take a character for one, however many bytes it has")
  func characters() {
    for pattern in ["?", "[é]", "é"] {
      #expect(IgnoreRules([pattern]).excludes("a/é", isFolder: false), "\(pattern)")
    }
    #expect(!IgnoreRules(["\u{e9}"]).excludes("e\u{301}", isFolder: false))
  }

  @Test("may begin with the path that is imported, unless that is a folder below it")
  func ownPath() throws {
    let folder = try TemporaryFolder()
    let tree = folder.path.appending("d")
    try FileManager.default.createDirectory(atPath: "\(tree)/e/d", withIntermediateDirectories: true)
    for pattern in ["\(tree)/cache", "./cache", "/cache", "!\(tree)/x"] {
      let rules = IgnoreRules(["x", pattern], below: tree)
      #expect(rules.useless == [], "\(pattern)")
      #expect(rules.excludes("cache", isFolder: true) == !pattern.hasPrefix("!"), "\(pattern)")
      #expect(rules.excludes("x", isFolder: true) == !pattern.hasPrefix("!"), "\(pattern)")
      #expect(!rules.excludes("a/cache", isFolder: true))
    }
    let above = tree.appending("e")
    #expect(IgnoreRules(["d/e/x"], below: FilePath("d/e")).excludes("x", isFolder: false))
    // That is a path below it.
    #expect(IgnoreRules(["\(above)/x"], below: above).excludes("x", isFolder: false))
    try FileManager.default.createDirectory(
      atPath: "\(above)\(above)", withIntermediateDirectories: true)
    let rules = IgnoreRules(["\(above)/x"], below: above)
    #expect(!rules.excludes("x", isFolder: false))
    #expect(rules.excludes("\(above.string.dropFirst())/x", isFolder: false))
  }

  @Test(
    "are named if they have no effect",
    arguments: ["", " ", "/", "a//b", "a/../b", "a/.", "..", "[a", "a\\", "!a", "[[:none:]]"])
  func useless(_ pattern: String) {
    #expect(IgnoreRules([pattern]).useless.map(\.pattern) == [pattern])
    #expect(IgnoreRules(["x", "a", "!a", "*/b", "[a]"]).useless == [])
  }
}

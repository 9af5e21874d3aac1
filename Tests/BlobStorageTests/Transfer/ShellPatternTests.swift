import BlobStorage
import BlobStorageTransfer
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

@Suite("A shell pattern")
struct ShellPatternTests {
  @Test(
    "matches as a shell would",
    arguments: [
      ("*", "", true), ("*", "a/b", true), ("a?c", "abc", true), ("a?c", "ac", false),
      ("*.log", "x.log", true),
      ("*.log", "x.log.gz", false), ("a*b*c", "aXbYbZc", true), ("a*b*c", "aXbYb", false),
      ("[abc]x", "bx", true), ("[a-c]x", "dx", false), ("[a-c]x", "ax", true), ("[a-c]x", "cx", true),
      ("[0-9]", "9", true),
      ("[!a-c]x", "dx", true), ("[^a-c]x", "ax", false),
      ("[]a]", "]", true), ("[]a]", "a", true), ("[]a]", "b", false),
      ("[!]a]", "b", true), ("[!]a]", "]", false), ("[!]a]", "a", false), ("[!]", "[!]", true),
      ("[", "[", true), ("[a", "[a", true), ("[a", "a", false), ("[a-]", "-", true), ("[-a]", "-", true),
      ("\\*", "*", true), ("\\*", "a", false), ("\\", "\\", true), ("é?", "éa", true), ("", "", true),
      ("", "a", false), ("\u{e9}", "e\u{301}", false), ("e?", "e\u{301}", true),
      ("[e]\u{301}", "e\u{301}", true),
      ("*\u{301}", "e\u{301}", true),
    ] as [(String, String, Bool)])
  func matching(_ pattern: String, _ text: String, _ expected: Bool) {
    #expect(ShellPattern(pattern).matches(text) == expected, "\(pattern) and \(text)")
  }

  @Test(
    "means names, paths when it holds a slash, and folders when it ends in one",
    arguments: [
      ("build", "a/build", false, true), ("build", "a/build", true, true), ("build/", "a/build", true, true),
      ("build/", "a/build", false, false), ("a/build", "a/build", true, true),
      ("a/build/", "a/build", true, true), ("a/build/", "a/build", false, false),
      ("a/build", "x/a/build", true, false), ("/", "a", true, false), ("\u{301}x", "a/\u{301}x", false, true),
      ("a/\u{301}x", "b/a/\u{301}x", false, false),
    ] as [(String, String, Bool, Bool)])
  func paths(_ pattern: String, _ path: String, _ isFolder: Bool, _ expected: Bool) {
    #expect(
      ShellPattern(pattern).matches(path: path, isFolder: isFolder) == expected, "\(pattern) and \(path)")
  }
}

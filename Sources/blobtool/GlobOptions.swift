import ArgumentParser
import BlobStorage
import BlobStorageTransfer

/// `--glob`: selects the keys of a command by shell patterns.
struct GlobOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Only keys that match a shell pattern as a whole; * also stands for /. Repeat it for more patterns.",
      valueName: "glob"))
  var glob: [String] = []

  func validate() throws {
    guard glob.allSatisfy({ !$0.isEmpty }) else { throw ValidationError("a --glob is empty") }
  }

  /// Accepts keys that match one of the patterns, or all keys if there are none.
  var filter: @Sendable (String) -> Bool {
    let patterns = glob.map(KeyPattern.init)
    return { key in patterns.isEmpty || patterns.contains { $0.matches(key) } }
  }

  /// A prefix that all matching keys of `prefix` have, to list fewer: that of the pattern, if there is one pattern and
  /// it is longer; else `prefix`.
  func prefix(within prefix: KeyPrefix) -> KeyPrefix {
    guard glob.count == 1, let first = glob.first.map(KeyPattern.init)?.prefix,
      first.utf8.count > prefix.text.utf8.count
    else {
      return prefix
    }
    return .bytes(first)
  }
}

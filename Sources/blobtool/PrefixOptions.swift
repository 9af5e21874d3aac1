import ArgumentParser
import BlobStorage

/// `--prefix` and `--prefix-bytes`: select keys.
struct PrefixOptions: ParsableArguments {
  @Option(help: "The key PREFIX and the keys below it, which begin with PREFIX/.")
  var prefix: String?

  @OptionGroup var bytes: PrefixBytesOption

  func validate() throws {
    guard prefix == nil || bytes.prefixBytes == nil else {
      throw ValidationError("--prefix and --prefix-bytes exclude each other")
    }
    try RawText.check([prefix ?? ""])
  }

  /// Nil if neither is given.
  var value: KeyPrefix? { bytes.value ?? prefix.map { .below($0) } }

  /// - Throws: `ValidationError` for an empty prefix, which is probably a shell variable that was never set.
  func checkNotEmpty() throws {
    guard value?.isAll != true else {
      throw ValidationError("an empty prefix would mean every key: use --all for that")
    }
  }
}

/// `--prefix-bytes` of commands that take a prefix as an argument.
struct PrefixBytesOption: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Every key that begins with these bytes, also in the middle of a name: log-2025 means log-2025.txt, too.",
      valueName: "prefix"))
  var prefixBytes: String?

  func validate() throws { try RawText.check([prefixBytes ?? ""]) }

  var value: KeyPrefix? { prefixBytes.map { .bytes($0) } }

  /// The prefix that an argument or the option gives; all keys for neither.
  func value(or argument: String) throws -> KeyPrefix {
    guard argument.isEmpty || value == nil else {
      throw ValidationError("give a prefix or --prefix-bytes")
    }
    return value ?? .below(argument)
  }
}

extension KeyPrefix {
  /// What a sentence says of its keys.
  var description: String {
    let shown = text.printable
    if self == .bytes(text) || text.utf8.last == UInt8(ascii: "/") { return "begins with “\(shown)”" }
    return "is “\(shown)” or begins with “\(shown)/”"
  }
}

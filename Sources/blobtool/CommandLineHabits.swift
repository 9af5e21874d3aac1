import ArgumentParser

/// Understands what users type by habit: options of the store before the command, and commands of other tools.
enum CommandLineHabits {
  private static let optionsWithValue = [
    "--store", "--state", "--pack-cache", "--catalog-limit", "--progress",
  ]
  private static let flags = ["--json", "--quiet", "-q"]
  /// Commands of other tools, and the command to use here.
  private static let synonyms = [
    "add": "put", "backup": "import", "cat": "get", "clean": "gc", "create": "init", "du": "stats",
    "fsck": "verify", "history": "versions", "log": "versions", "mirror": "copy", "forget": "keep",
    "prune": "keep",
    "remove": "delete", "rm": "delete", "save": "put", "upload": "put",
  ]

  /// The arguments with the options moved behind the command.
  ///
  /// - Throws: `ValidationError` for an unknown command, with the most likely one.
  static func resolved(_ arguments: [String]) throws -> [String] {
    try resolved(arguments, below: Blobtool.self)
  }

  private static func resolved(
    _ arguments: [String], below parent: any ParsableCommand.Type
  ) throws -> [String] {
    var early: [String] = []
    var rest = arguments[...]
    while let first = rest.first {
      if flags.contains(first) || optionsWithValue.contains(where: { first.hasPrefix($0 + "=") }) {
        early.append(first)
        rest = rest.dropFirst()
      } else if optionsWithValue.contains(first), rest.count > 1 {
        early += rest.prefix(2)
        rest = rest.dropFirst(2)
      } else {
        break
      }
    }
    guard let word = rest.first, !word.hasPrefix("-") else { return Array(rest) }
    rest = rest.dropFirst()
    if word == "help" { return try [word] + resolved(Array(rest), below: parent) }
    let commands = parent.configuration.subcommands
    guard let command = commands.first(where: { $0.words.contains(word) }) else {
      throw unknown(word, commands)
    }
    let isParent = !command.configuration.subcommands.isEmpty
    return try [word] + (isParent ? resolved(early + rest, below: command) : early + rest)
  }

  private static func unknown(
    _ word: String, _ commands: [any ParsableCommand.Type]
  ) -> ValidationError {
    let shown = commands.filter { $0.configuration.shouldDisplay }.flatMap { $0.words }
    var hint = ""
    if let other = synonyms[word], shown.contains(other) {
      hint = " (use `\(other)`)"
    } else if let near = shown.min(by: { distance($0, word) < distance($1, word) }),
      distance(near, word) <= max(1, min(2, word.count / 3))
    {
      hint = " (did you mean `\(near)`?)"
    }
    return ValidationError("there is no command “\(word.printable)”\(hint)")
  }

  /// The number of characters to insert, remove or replace.
  private static func distance(_ left: String, _ right: String) -> Int {
    var row = Array(0...right.count)
    for (index, character) in left.enumerated() {
      var diagonal = row[0]
      row[0] = index + 1
      for (column, other) in right.enumerated() {
        let replaced = diagonal + (character == other ? 0 : 1)
        diagonal = row[column + 1]
        row[column + 1] = min(replaced, diagonal + 1, row[column] + 1)
      }
    }
    return row[right.count]
  }
}

extension ParsableCommand {
  /// The command's name and its aliases.
  static var words: [String] { [_commandName] + configuration.aliases }
}

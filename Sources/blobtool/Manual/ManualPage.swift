/// A page of the manual, section 1, in macros that every `man` supports.
struct ManualPage {
  let fileName: String
  let text: String

  /// Makes the pages of a command and of its subcommands.
  static func pages(
    _ command: ToolHelp.Command, version: String, above: [String] = []
  ) -> [ManualPage] {
    let words = above + [command.commandName]
    let commands = (command.subcommands ?? []).filter {
      $0.shouldDisplay != false && $0.commandName != "help"
    }
    var seeAlso = commands.map { (words + [$0.commandName]).joined(separator: "-") }
    if !above.isEmpty { seeAlso.insert(above.joined(separator: "-"), at: 0) }
    return [ManualPage(words, command, commands, seeAlso: seeAlso, version: version)]
      + commands.flatMap { pages($0, version: version, above: words) }
  }

  /// - Parameter words: the command, such as `blobtool import`; the page's name is then `blobtool-import`.
  private init(
    _ words: [String], _ command: ToolHelp.Command, _ commands: [ToolHelp.Command], seeAlso: [String],
    version: String
  ) {
    let name = words.joined(separator: "-")
    let arguments = (command.arguments ?? []).filter(\.shouldDisplay)
    var page = ManualText()
    page.macro(".TH", [name.uppercased(), "1", "", "blobtool \(version)", "blobtool"])
    page.section("NAME")
    page.line("\(name) \\- \(ManualText.escaped(command.abstract ?? ""))")
    page.section("SYNOPSIS")
    page.line(
      "\\fB\(ManualText.escaped(words.joined(separator: " ")))\\fR "
        + (commands.isEmpty ? "" : "\\fIcommand\\fR … "))
    for argument in arguments where argument.names?.contains(where: { $0.name == "help" }) != true {
      page.line(Self.usage(argument))
    }
    if let discussion = command.discussion {
      page.section("DESCRIPTION")
      page.paragraphs(discussion)
    }
    if !commands.isEmpty {
      page.section("COMMANDS")
      for command in commands {
        let words = [command.commandName] + (command.aliases ?? [])
        page.item("\\fB\(ManualText.escaped(words.joined(separator: ", ")))\\fR", command.abstract ?? "")
      }
    }
    if !arguments.isEmpty {
      page.section("OPTIONS")
      for argument in arguments { page.item(Self.title(argument), Self.explanation(argument)) }
    }
    page.section("ENVIRONMENT")
    page.item("\\fBBLOBTOOL_STORE\\fR", "The store, where --store does not say another.")
    page.item(
      "\\fBAWS_ACCESS_KEY_ID\\fR and other AWS variables", "How to reach a store in a bucket.")
    page.section("EXIT STATUS")
    for (status, meaning) in [
      ("0", "Done."), ("1", "Failed: I/O, no such store, no space, a limit."),
      ("3", "The key, version or digest asked for is not in the store."),
      ("4", "Damage was found: stored bytes do not match their digest or checksum."),
      ("5", "The store is busy in a way that waiting did not solve, or a condition does not hold."),
      ("64", "Wrong usage."),
      ("130, 143", "Interrupted by SIGINT or SIGTERM; what was finished before stays."),
    ] { page.item("\\fB\(status)\\fR", meaning) }
    page.section("SEE ALSO")
    page.line(seeAlso.map { "\\fB\(ManualText.escaped($0))\\fR(1)" }.joined(separator: ", "))
    fileName = name + ".1"
    text = page.text
  }

  private static func usage(_ argument: ToolHelp.Argument) -> String {
    var usage = argument.sortedNames.first.map { "\\fB\(ManualText.escaped($0))\\fR" } ?? ""
    if argument.kind != "flag" {
      if !usage.isEmpty { usage += " " }
      usage += "\\fI\(ManualText.escaped(argument.valueName ?? "value"))\\fR"
    }
    if argument.isRepeating { usage += " …" }
    return argument.isOptional ? "[\(usage)]" : usage
  }

  private static func title(_ argument: ToolHelp.Argument) -> String {
    let names = argument.sortedNames.map { "\\fB\(ManualText.escaped($0))\\fR" }.joined(separator: ", ")
    let value = "\\fI\(ManualText.escaped(argument.valueName ?? "value"))\\fR"
    if argument.kind == "positional" { return value }
    return argument.kind == "option" ? "\(names) \(value)" : names
  }

  private static func explanation(_ argument: ToolHelp.Argument) -> String {
    var text = argument.abstract ?? ""
    if let values = argument.allValues, !values.isEmpty, argument.kind == "option" {
      text += " One of: \(values.joined(separator: ", "))."
    }
    if let value = argument.defaultValue, !value.isEmpty, argument.kind != "flag" {
      text += " Default: \(value)."
    }
    if let discussion = argument.discussion { text += "\n\n" + discussion }
    return text
  }
}

/// Text with the macros of a manual page.
struct ManualText {
  private(set) var text = ""

  mutating func macro(_ name: String, _ values: [String]) {
    text += name + values.map { " \"\(Self.escaped($0).replacing("\"", with: "\\(dq"))\"" }.joined() + "\n"
  }

  mutating func section(_ name: String) { macro(".SH", [name]) }

  /// Adds a line that may change fonts. The caller must escape text from elsewhere.
  mutating func line(_ line: String) {
    guard !line.isEmpty else { return }
    let isControl = line.hasPrefix(".") || line.hasPrefix("'")
    text += (isControl ? "\\&" : "") + line + "\n"
  }

  mutating func paragraphs(_ plain: String) {
    for (index, paragraph) in plain.split(separator: "\n\n").enumerated() {
      if index > 0 { text += ".PP\n" }
      for part in paragraph.split(separator: "\n") { line(Self.escaped(String(part))) }
    }
  }

  mutating func item(_ title: String, _ explanation: String) {
    text += ".TP\n"
    line(title)
    for (index, paragraph) in explanation.split(separator: "\n\n").enumerated() {
      if index > 0 { text += ".IP\n" }
      for part in paragraph.split(separator: "\n") { line(Self.escaped(String(part))) }
    }
    if explanation.isEmpty { text += "\\&\n" }
  }

  /// Escapes backslashes, which would begin commands, and hyphens, which would become typographic ones.
  static func escaped(_ plain: String) -> String {
    plain.replacing("\\", with: "\\e").replacing("-", with: "\\-")
  }
}

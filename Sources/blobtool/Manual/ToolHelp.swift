/// The argument parser's description of the tool, as far as manual pages need it.
struct ToolHelp: Decodable {
  struct Command: Decodable {
    var commandName: String
    var aliases: [String]?
    var abstract: String?
    var discussion: String?
    var shouldDisplay: Bool?
    var subcommands: [Command]?
    var arguments: [Argument]?
  }

  struct Argument: Decodable {
    struct Name: Decodable {
      var kind: String
      var name: String

      /// The name as the user types it.
      var text: String { (kind == "long" ? "--" : "-") + name }
    }

    var kind: String
    var shouldDisplay: Bool
    var isOptional: Bool
    var isRepeating: Bool
    var names: [Name]?
    var valueName: String?
    var defaultValue: String?
    var allValues: [String]?
    var abstract: String?
    var discussion: String?

    /// The long names first.
    var sortedNames: [String] {
      (names ?? []).sorted { $0.kind == "long" && $1.kind != "long" }.map(\.text)
    }
  }

  var command: Command
}

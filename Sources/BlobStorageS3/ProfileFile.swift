/// Parses a file of profiles, such as `~/.aws/credentials`: sections in brackets with lines `name = value`.
///
/// Settings that are indented below a setting without a value belong to it: `s3.addressing_style`. `#` and `;` begin a
/// comment at the start of a line or after a space. All other lines are skipped, because other programs use the file
/// too.
package struct ProfileFile: Sendable {
  private var sections: [String: [String: String]] = [:]

  package init(_ text: String) {
    var section: String?
    var owner: String?
    for line in text.split(whereSeparator: \.isNewline) {
      let trimmed = Self.trimmed(line)
      guard let first = trimmed.first, first != "#", first != ";" else { continue }
      if first == "[" {
        section = trimmed.firstIndex(of: "]").map {
          Self.trimmed(trimmed[trimmed.index(after: trimmed.startIndex)..<$0]).split(separator: " ").joined(
            separator: " ")
        }
        owner = nil
        continue
      }
      guard let section, let equals = trimmed.firstIndex(of: "=") else { continue }
      let name = Self.trimmed(trimmed[..<equals]).lowercased()
      let value = Self.withoutComment(Self.trimmed(trimmed[trimmed.index(after: equals)...]))
      if line.first == " " || line.first == "\t" {
        if let owner { sections[section, default: [:]]["\(owner).\(name)"] = value }
      } else {
        sections[section, default: [:]][name] = value
        owner = value.isEmpty ? name : nil
      }
    }
  }

  /// A profile's settings, by their names in lower case.
  ///
  /// A configuration file names each profile but the default one `profile NAME`.
  package subscript(profile name: String) -> [String: String]? {
    sections["profile \(name)"] ?? sections[name]
  }

  private static func trimmed(_ text: Substring) -> Substring {
    var text = text
    while text.first?.isWhitespace == true { text.removeFirst() }
    while text.last?.isWhitespace == true { text.removeLast() }
    return text
  }

  private static func withoutComment(_ value: Substring) -> String {
    var previous: Character = "x"
    for index in value.indices {
      if value[index] == "#" || value[index] == ";", previous.isWhitespace {
        return String(trimmed(value[..<index]))
      }
      previous = value[index]
    }
    return String(value)
  }
}

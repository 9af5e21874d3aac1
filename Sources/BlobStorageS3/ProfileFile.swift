import Foundation

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
      let trimmed = line.trimmingCharacters(in: .whitespaces)
      guard let first = trimmed.first, first != "#", first != ";" else { continue }
      if first == "[" {
        section = trimmed.firstIndex(of: "]").map {
          trimmed[..<$0].dropFirst().split(whereSeparator: \.isWhitespace).joined(separator: " ")
        }
        owner = nil
        continue
      }
      guard let section, let equals = trimmed.firstIndex(of: "=") else { continue }
      let name = trimmed[..<equals].trimmingCharacters(in: .whitespaces).lowercased()
      let value = Self.withoutComment(trimmed[equals...].dropFirst().trimmingCharacters(in: .whitespaces))
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

  private static func withoutComment(_ value: String) -> String {
    var previous: Character = "x"
    for index in value.indices {
      if value[index] == "#" || value[index] == ";", previous.isWhitespace {
        return value[..<index].trimmingCharacters(in: .whitespaces)
      }
      previous = value[index]
    }
    return value
  }
}

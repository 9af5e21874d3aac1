import Foundation

/// Prints results as JSON, one value a line.
struct JSONText {
  private let encoder: JSONEncoder

  init() {
    encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    encoder.dateEncodingStrategy = .custom { date, encoder in
      var container = encoder.singleValueContainer()
      try container.encode(date.text)
    }
  }

  /// Encodes a value without line breaks. Escapes terminal controls as JSON allows, so the value stays exact.
  func line(_ value: some Encodable) throws -> String {
    TerminalText.escape(String(decoding: try encoder.encode(value), as: UTF8.self)) {
      String(format: "\\u%04x", $0.value)
    }
  }

  /// Prints one value.
  static func print(_ value: some Encodable) throws {
    try StandardOutput.write(JSONText().line(value) + "\n")
  }
}

extension Double {
  /// Seconds to the millisecond.
  var roundedToMilliseconds: Double { (self * 1_000).rounded() / 1_000 }
}

import Foundation

/// Results as JSON, each value on a line of its own.
struct JSONText {
  private let encoder: JSONEncoder

  init() {
    encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
  }

  /// The value without line breaks.
  func line(_ value: some Encodable) throws -> String {
    String(decoding: try encoder.encode(value), as: UTF8.self)
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

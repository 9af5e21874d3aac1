import BlobStorage

/// Parses an XML response: an element with its text and child elements.
///
/// Responses are small and plain. The reader accepts elements, text, and the five named and the numbered characters. It
/// skips attributes and namespaces. It refuses document type declarations, deep nesting and malformed input, so that no
/// document costs more work than its length.
package struct Markup: Hashable, Sendable {
  package var name: String
  package var text = ""
  package var children: [Markup] = []

  package init(name: String) { self.name = name }

  /// The text of the first child element named `name`.
  package subscript(_ name: String) -> String? { children.first { $0.name == name }?.text }

  /// Parses a document; nil if it is malformed.
  package init?(_ bytes: [UInt8]) {
    var reader = MarkupReader(bytes)
    guard let element = reader.document() else { return nil }
    self = element
  }
}

/// Parses a document from beginning to end. Each method returns nil or false for malformed input.
private struct MarkupReader {
  private static let depthMax = 16
  private let bytes: [UInt8]
  private var index = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  mutating func document() -> Markup? {
    if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { index = 3 }
    guard passMiscellany(), let element = element(), passMiscellany(), index == bytes.count else {
      return nil
    }
    return element
  }

  private mutating func element() -> Markup? {
    var open: [Markup] = []
    while true {
      if skip("<![CDATA[") {
        guard let end = find("]]>"), !open.isEmpty,
          let text = String(validating: bytes[index..<end], as: UTF8.self)
        else { return nil }
        open[open.count - 1].text += text
        index = end + 3
      } else if skip("<!--") {
        guard pass("-->") else { return nil }
      } else if skip("</") {
        guard let name = name(), passSpace(), skip(">"), let done = open.popLast(), done.name == name else {
          return nil
        }
        guard !open.isEmpty else { return done }
        open[open.count - 1].children.append(done)
      } else if skip("<") {
        guard let name = name(), open.count < Self.depthMax, let isEmpty = attributes() else { return nil }
        if !isEmpty {
          open.append(Markup(name: name))
        } else if open.isEmpty {
          return Markup(name: name)
        } else {
          open[open.count - 1].children.append(Markup(name: name))
        }
      } else {
        guard !open.isEmpty, let text = text() else { return nil }
        open[open.count - 1].text += text
      }
    }
  }

  /// Parses characters up to the next `<`.
  private mutating func text() -> String? {
    var text: [UInt8] = []
    while index < bytes.count, bytes[index] != UInt8(ascii: "<") {
      if bytes[index] == UInt8(ascii: "&") {
        guard let end = bytes[index...].prefix(12).firstIndex(of: UInt8(ascii: ";")),
          let character = Self.character(bytes[(index + 1)..<end])
        else { return nil }
        text += Array(String(character).utf8)
        index = end + 1
      } else {
        text.append(bytes[index])
        index += 1
      }
    }
    return index < bytes.count ? String(validating: text, as: UTF8.self) : nil
  }

  private static func character(_ name: ArraySlice<UInt8>) -> Character? {
    let name = String(decoding: name, as: UTF8.self)
    switch name {
    case "amp": return "&"
    case "lt": return "<"
    case "gt": return ">"
    case "quot": return "\""
    case "apos": return "'"
    default:
      guard name.first == "#" else { return nil }
      let number = name.hasPrefix("#x") ? UInt32(name.dropFirst(2), radix: 16) : UInt32(name.dropFirst())
      return number.flatMap { $0 == 0 ? nil : UnicodeScalar($0) }.map { Character($0) }
    }
  }

  /// Skips the rest of a tag. Returns whether the tag also closes its element; nil if malformed.
  private mutating func attributes() -> Bool? {
    while true {
      let before = index
      guard passSpace() else { return nil }
      if skip("/>") { return true }
      if skip(">") { return false }
      guard index > before, name() != nil, passSpace(), skip("="), passSpace(), index < bytes.count else {
        return nil
      }
      let quote = bytes[index]
      guard quote == UInt8(ascii: "\"") || quote == UInt8(ascii: "'"),
        let end = bytes[(index + 1)...].firstIndex(of: quote)
      else { return nil }
      index = end + 1
    }
  }

  private mutating func name() -> String? {
    let start = index
    while index < bytes.count, bytes[index].isLetterOrDigit(or: "_-.:") { index += 1 }
    return index > start ? String(decoding: bytes[start..<index], as: UTF8.self) : nil
  }

  /// Skips the declaration, comments and space before and after the document's element.
  private mutating func passMiscellany() -> Bool {
    while passSpace() {
      if skip("<?") {
        guard pass("?>") else { return false }
      } else if skip("<!--") {
        guard pass("-->") else { return false }
      } else {
        return true
      }
    }
    return false
  }

  /// Skips space. Always true, so that it can be part of a condition.
  private mutating func passSpace() -> Bool {
    while index < bytes.count, [0x20, 0x09, 0x0A, 0x0D].contains(bytes[index]) { index += 1 }
    return true
  }

  private mutating func skip(_ text: StaticString) -> Bool {
    let wanted = UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
    guard bytes[index...].starts(with: wanted) else { return false }
    index += wanted.count
    return true
  }

  private mutating func pass(_ text: StaticString) -> Bool {
    guard let end = find(text) else { return false }
    index = end + text.utf8CodeUnitCount
    return true
  }

  /// The next index where `text` begins.
  private func find(_ text: StaticString) -> Int? {
    let wanted = UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
    return bytes[index...].indices.first { bytes[$0...].starts(with: wanted) }
  }
}

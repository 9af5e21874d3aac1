import BlobStorage

/// An element of an answer in XML, with the text and the elements in it.
///
/// Answers are small and plain: the reader takes elements, text, the five named and the numbered characters, and
/// refuses everything by which a document could make it work more than its bytes are worth: declarations of its own,
/// depth, and what is not well-formed. Attributes and namespaces are passed over.
package struct Markup: Hashable, Sendable {
  package var name: String
  package var text = ""
  package var children: [Markup] = []

  package init(name: String) { self.name = name }

  /// The text of the first element of that name in this one.
  package subscript(_ name: String) -> String? { children.first { $0.name == name }?.text }

  /// The document's one element, or nil when it is none.
  package init?(_ bytes: [UInt8]) {
    var reader = MarkupReader(bytes)
    guard let element = reader.document() else { return nil }
    self = element
  }
}

/// Reads a document from its beginning to its end. Every part returns nil or false where it is not what it should be.
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
      if take("<![CDATA[") {
        guard let end = find("]]>"), !open.isEmpty,
          let text = String(validating: bytes[index..<end], as: UTF8.self)
        else { return nil }
        open[open.count - 1].text += text
        index = end + 3
      } else if take("<!--") {
        guard pass("-->") else { return nil }
      } else if take("</") {
        guard let name = name(), passSpace(), take(">"), let done = open.popLast(), done.name == name else {
          return nil
        }
        guard !open.isEmpty else { return done }
        open[open.count - 1].children.append(done)
      } else if take("<") {
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

  /// The characters up to the next `<`.
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

  /// Passes the rest of a tag; true when the element is closed by it.
  private mutating func attributes() -> Bool? {
    while true {
      let before = index
      guard passSpace() else { return nil }
      if take("/>") { return true }
      if take(">") { return false }
      guard index > before, name() != nil, passSpace(), take("="), passSpace(), index < bytes.count else {
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
    while index < bytes.count, Self.isNameByte(bytes[index]) { index += 1 }
    return index > start ? String(decoding: bytes[start..<index], as: UTF8.self) : nil
  }

  private static func isNameByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "."),
      UInt8(ascii: ":"):
      true
    default: false
    }
  }

  /// Passes what may stand before and after the document's element.
  private mutating func passMiscellany() -> Bool {
    while passSpace() {
      if take("<?") {
        guard pass("?>") else { return false }
      } else if take("<!--") {
        guard pass("-->") else { return false }
      } else {
        return true
      }
    }
    return false
  }

  /// Always true, so that it can stand in a condition.
  private mutating func passSpace() -> Bool {
    while index < bytes.count, [0x20, 0x09, 0x0A, 0x0D].contains(bytes[index]) { index += 1 }
    return true
  }

  private mutating func take(_ text: StaticString) -> Bool {
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

  /// Where the text begins, from here on.
  private func find(_ text: StaticString) -> Int? {
    let wanted = UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
    return bytes[index...].indices.first { bytes[$0...].starts(with: wanted) }
  }
}

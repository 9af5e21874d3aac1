/// Keys under which the store keeps records of its own. They begin with a NUL, unlike any caller's key, and no list of
/// keys shows them. Format.md, "Internal keys".
package enum InternalKey {
  package static let prefix: [UInt8] = [0]
  /// Comes after all internal keys and before all others.
  static let last: [UInt8] = [0, 0xff]

  /// The purpose of an internal key: its second byte.
  package enum Purpose: UInt8, Sendable, CaseIterable {
    /// Attributes of files that are too long for metadata.
    case attributes = 0x61  // a
    /// A hold on keys or on a state.
    case hold = 0x68  // h
    /// A state that was dropped, and that other states build on.
    case link = 0x6c  // l
    /// The state that an import has recorded.
    case state = 0x73  // s
    /// A version that a state may have, and that an import has replaced, or kept for the state alone. The key follows;
    /// a replaced version keeps its stamp.
    case replaced = 0x76  // v

    package var prefix: [UInt8] { [0, rawValue] }

    package func key(_ rest: some Collection<UInt8>) -> [UInt8] { prefix + rest }
  }

  package static func isInternal(_ key: some Collection<UInt8>) -> Bool { key.first == 0 }
}

extension InternalKey {
  /// The name of any key in reports.
  package static func shown(_ key: [UInt8]) -> String {
    isInternal(key) ? description(of: key) : String(decoding: key, as: UTF8.self)
  }

  /// The name of an internal key in reports.
  package static func description(of key: [UInt8]) -> String {
    let rest = String(decoding: key.dropFirst(2), as: UTF8.self)
    return switch key.dropFirst().first.flatMap(Purpose.init) {
    case .attributes: "attributes of imported files"
    case .hold: "hold \(rest)"
    case .link, .state: "state \(rest)"
    case .replaced: "a state of “\(rest)”"
    case nil: "internal key \(Hex.text(Array(key.dropFirst())))"
    }
  }
}

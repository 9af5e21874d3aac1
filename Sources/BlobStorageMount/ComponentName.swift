import BlobStorage

/// The name of a key's component in a mounted folder. Mounting.md, "Names".
///
/// Most components are their own names. Every other name begins with `%` and one of five words. A component that looks
/// like such a name gets one more `%` in front. No two components have the same name.
package enum ComponentName: Hashable {
  case component([UInt8])
  /// A folder beside a file of the same component.
  case folder([UInt8])
  /// A component too long for a name, by its first bytes.
  case long(start: [UInt8], isFolder: Bool)

  package static let byteCountMax = 255
  private static let percent = UInt8(ascii: "%")
  private static let empty = Array("%empty".utf8)
  private static let dot = Array("%dot".utf8)
  private static let dots = Array("%dotdot".utf8)
  private static let folder = Array("%folder-".utf8)
  private static let long = Array("%long-".utf8)
  private static let startByteCountMax = 200
  private static let digestByteCount = 16

  /// The name of a component.
  ///
  /// - Parameter isBesideFile: whether it is a folder, and a file has its usual name.
  package static func name(of component: [UInt8], isBesideFile: Bool = false) -> [UInt8] {
    let name = escaped(component)
    let prefix = isBesideFile ? folder : []
    guard prefix.count + name.count > byteCountMax else { return prefix + name }
    // The start ends where a character ends: names are UTF-8, as keys are.
    var end = startByteCountMax
    while component.indices.contains(end), component[end] & 0xC0 == 0x80 { end -= 1 }
    let digest = Array(BlobDigest.of(component).hex.utf8.prefix(digestByteCount))
    return prefix + long + digest + [UInt8(ascii: "-")] + component.prefix(end)
  }

  private static func escaped(_ component: [UInt8]) -> [UInt8] {
    switch component {
    case []: empty
    case [UInt8(ascii: ".")]: dot
    case [UInt8(ascii: "."), UInt8(ascii: ".")]: dots
    default: isReserved(component[...]) ? [percent] + component : component
    }
  }

  /// Whether it would be a name of another component, apart from the number of its `%`.
  private static func isReserved(_ text: ArraySlice<UInt8>) -> Bool {
    guard text.first == percent else { return false }
    let rest = [percent] + text.drop { $0 == percent }
    return [empty, dot, dots].contains(rest) || rest.starts(with: folder) || rest.starts(with: long)
  }

  /// Parses a name. Several names can mean one component; only ``name(of:isBesideFile:)`` is in the folder.
  package init(_ name: [UInt8]) {
    guard name.first == Self.percent else {
      self = .component(name)
      return
    }
    if name.starts(with: Self.folder) {
      switch Self(Array(name.dropFirst(Self.folder.count))) {
      case .component(let component), .folder(let component): self = .folder(component)
      case .long(let start, _): self = .long(start: start, isFolder: true)
      }
    } else if name.starts(with: Self.long) {
      let start = name.dropFirst(Self.long.count + Self.digestByteCount + 1)
      self = .long(start: Array(start), isFolder: false)
    } else {
      switch name {
      case Self.empty: self = .component([])
      case Self.dot: self = .component([UInt8(ascii: ".")])
      case Self.dots: self = .component([UInt8(ascii: "."), UInt8(ascii: ".")])
      default: self = .component(Self.isReserved(name[...]) ? Array(name.dropFirst()) : name)
      }
    }
  }
}

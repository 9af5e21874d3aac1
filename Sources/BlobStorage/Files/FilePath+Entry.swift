import SystemPackage

/// The same as swift-system's path functions, but each parses its result once. In a debug build swift-system's take a
/// millisecond, which was a third of the tests' time.
extension FilePath {
  /// The path of the entry `name` in this folder.
  package func entry(_ name: String) -> FilePath { withSuffix(isEmpty ? name : "/" + name) }

  /// This path with `suffix` appended to its last component.
  package func withSuffix(_ suffix: String) -> FilePath {
    var text = text
    for byte in suffix.utf8 { text.append(CChar(bitPattern: byte)) }
    text.append(0)
    return FilePath(platformString: text)
  }

  /// The folder of this entry: empty for a bare name, the root for the root.
  package var folder: FilePath {
    var text = text
    while let last = text.last, last != CChar(UInt8(ascii: "/")) { text.removeLast() }
    text.append(0)
    return FilePath(platformString: text)
  }

  /// The path's bytes as the system has them, which need not be UTF-8.
  package var bytes: [UInt8] { text.map { UInt8(bitPattern: $0) } }

  /// The characters without the terminating zero.
  private var text: [CChar] {
    withPlatformString { text in
      var count = 0
      while text[count] != 0 { count += 1 }
      return Array(UnsafeBufferPointer(start: text, count: count))
    }
  }
}

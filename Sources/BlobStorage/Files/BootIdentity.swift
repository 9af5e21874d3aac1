import CBlobKernels
import SystemPackage

/// Tells whether the machine has been started again since.
package enum BootIdentity {
  /// A text that is the same until the machine is started again, and then never comes back.
  ///
  /// Where the system does not tell, the text is empty: take that as "another start every time".
  package static func current() -> String {
    var text = [CChar](repeating: 0, count: 128)
    let count = uninterrupted {
      text.withUnsafeMutableBufferPointer { Int(bs_boot_identity($0.baseAddress, $0.count)) }
    }
    return count > 0 ? String(decoding: text[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self) : ""
  }
}

/// An unpredictable number, for names and writer identities.
package func randomUInt64() -> UInt64 {
  var generator = SystemRandomNumberGenerator()
  return generator.next()
}

import CBlobKernels
import SystemPackage

/// Identifies the boot of this machine.
package enum BootIdentity {
  /// A text that stays the same until the machine restarts, and never returns after that.
  ///
  /// Empty if the system does not tell. Treat an empty text as a new boot every time.
  ///
  /// - Throws: if this process may not open or allocate more: other processes know the identity and rely on it.
  package static func current() throws(BlobStorageError) -> String {
    var text = [CChar](repeating: 0, count: 128)
    let count = uninterrupted {
      text.withUnsafeMutableBufferPointer { Int(bs_boot_identity($0.baseAddress, $0.count)) }
    }
    let shortages = [Errno.tooManyOpenFiles, .tooManyOpenFilesInSystem, .noMemory].map { -Int($0.rawValue) }
    if shortages.contains(count) {
      throw .systemCall("open", path: "/proc/sys/kernel/random/boot_id", errno: Int32(-count))
    }
    return count > 0 ? String(decoding: text[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self) : ""
  }
}

/// A random number for names and writer identities.
package func randomUInt64() -> UInt64 {
  var generator = SystemRandomNumberGenerator()
  return generator.next()
}

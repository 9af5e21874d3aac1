import Foundation
import Testing

#if canImport(Glibc)
  import Glibc
#endif

/// Root may read every folder. Where this thread can do without that right, what others are refused is tested as root too.
enum Privileges {
  #if os(Linux)
    static let canBeDropped = true
  #else
    static let canBeDropped = geteuid() != 0
  #endif

  /// Runs `body` on this thread as an owner without root's right to pass over permissions: capabilities(7),
  /// CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
  static func dropped<T>(_ body: () throws -> T) throws -> T {
    #if os(Linux)
      guard geteuid() == 0 else { return try body() }
      let before = try capabilities()
      var without = before
      without[0] &= ~(1 << 1 | 1 << 2)
      try set(without)
      defer { #expect(throws: Never.self) { try set(before) } }
    #endif
    return try body()
  }

  #if os(Linux)
    // The library exports them and no header of Swift's declares them. `data` is effective, permitted, inheritable, twice.
    private typealias Call =
      @convention(c) (UnsafeMutablePointer<UInt32>, UnsafeMutablePointer<UInt32>) -> Int32

    private static func call(_ name: String, _ data: inout [UInt32]) throws {
      let call = try #require(dlsym(dlopen(nil, RTLD_NOW), name))
      // The third version of the interface, and this thread.
      var header: [UInt32] = [0x2008_0522, 0]
      try #require(unsafeBitCast(call, to: Call.self)(&header, &data) == 0)
    }

    private static func capabilities() throws -> [UInt32] {
      var data = [UInt32](repeating: 0, count: 6)
      try call("capget", &data)
      return data
    }

    private static func set(_ data: [UInt32]) throws {
      var data = data
      try call("capset", &data)
    }
  #endif
}

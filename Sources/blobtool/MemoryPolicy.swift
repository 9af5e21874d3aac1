import Foundation

/// How the process gives memory back.
enum MemoryPolicy {
  /// Has buffers of this size and more go back to the system as soon as they are freed.
  ///
  /// glibc would keep those of a stream in an arena for each thread: tens of megabytes, the more the longer it runs.
  /// Other C libraries lack the call.
  static func apply() {
    typealias SetOption = @convention(c) (_ option: Int32, _ value: Int32) -> Int32
    guard let symbol = dlsym(nil, "mallopt") else { return }
    _ = unsafeBitCast(symbol, to: SetOption.self)(mmapThreshold, byteCount)
  }

  /// `M_MMAP_THRESHOLD` of `malloc.h`, which Swift does not import.
  private static let mmapThreshold: Int32 = -3
  private static let byteCount: Int32 = 256 << 10
}

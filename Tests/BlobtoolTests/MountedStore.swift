import Foundation
import Testing

/// A workshop's store, mounted by the tool on the folder `m`.
final class MountedStore: Sendable {
  let workshop: Workshop
  let running: Running

  /// Whether this machine has FUSE. Everything else that a mount needs is installed with what the tests need.
  static let isPossible = FileManager.default.fileExists(atPath: "/dev/fuse")
  static let obstacle: Comment = "this machine has no /dev/fuse"

  init(_ workshop: Workshop) async throws {
    self.workshop = workshop
    try FileManager.default.createDirectory(
      atPath: workshop.path("m"), withIntermediateDirectories: true)
    running = try await workshop.start(["mount", "m", "--json"])
    try await running.wait(for: .errors) { $0.contains("press Ctrl-C to unmount") }
    let errors = running.isRunning ? "" : try await running.outcome().errors
    try #require(isMounted, "\(errors)")
  }

  deinit {
    guard isMounted else { return }
    running.signal(SIGKILL)
    Self.unmount(path(""))
  }

  func path(_ name: String) -> String { workshop.path("m/\(name)") }

  var isMounted: Bool {
    let table = try? String(contentsOfFile: "/proc/mounts", encoding: .utf8)
    return table?.contains(
      " \(URL(filePath: workshop.path("m")).resolvingSymlinksInPath().path) fuse.blobtool ") == true
  }

  /// Unmounts what a killed process has left.
  static func unmount(_ path: String) {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/sh")
    process.arguments = ["-c", "umount -l \"$0\" || fusermount3 -u -z \"$0\"", path]
    if (try? process.run()) != nil { process.waitUntilExit() }
  }

  /// Ends the mount with a signal. Returns how the tool ended.
  func end(_ signal: Int32 = SIGINT) async throws -> Outcome {
    running.signal(signal)
    return try await running.outcome()
  }
}

/// A file that is open, and read from the store each time: the system drops what it has read.
final class UncachedFile: Sendable {
  struct Refusal: Error {
    var path: String
    var errno: Int32
  }

  private let descriptor: Int32

  init(_ path: String) throws {
    var opened = open(path, O_RDONLY)
    // The system asks once more if the version was replaced just then; on a busy machine that may not be enough.
    for _ in 0..<5 where opened < 0 && errno == ESTALE { opened = open(path, O_RDONLY) }
    guard opened >= 0 else { throw Refusal(path: path, errno: errno) }
    descriptor = opened
  }

  deinit { close(descriptor) }

  /// The bytes of a range that the file has; nil when they cannot be read.
  func read(_ range: Range<Int>) -> Data? {
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)
    var data = Data(count: range.count)
    let count = data.withUnsafeMutableBytes {
      pread(descriptor, $0.baseAddress, range.count, off_t(range.lowerBound))
    }
    return count < 0 ? nil : data.prefix(count)
  }
}

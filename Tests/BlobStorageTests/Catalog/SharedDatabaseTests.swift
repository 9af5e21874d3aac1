import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// The databases of one process: LMDB must not open a file twice.
@Suite("Stores that share a catalog's file")
struct SharedDatabaseTests {
  /// How often this process has a file open.
  private func descriptorCount(of file: URL) throws -> Int {
    let wanted = try #require(identity(file.path))
    return try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count {
      identity("/proc/self/fd/\($0)") == wanted
    }
  }

  private func identity(_ path: String) -> String? {
    var status = stat()
    guard stat(path, &status) == 0 else { return nil }
    return "\(status.st_dev) \(status.st_ino)"
  }

  @Test("have it open once", arguments: ["a relative path", "a link", "a mount"])
  func once(_ way: String) throws {
    let place = try StorePlace()
    let first = try place.engine()
    _ = try first.put("k", [1], PutOptions())
    let locks = try place.databaseFile().deletingLastPathComponent().appending(path: "lock.mdb")
    let count = try descriptorCount(of: locks)
    #expect(count > 0)
    let second = place.temporary.path.appending("second").string
    var path = place.path + "/../store"
    switch way {
    case "a link":
      try FileManager.default.createSymbolicLink(atPath: second, withDestinationPath: place.path)
      path = second
    case "a mount":
      try FileManager.default.createDirectory(atPath: second, withIntermediateDirectories: false)
      // Where mounts are not allowed, nothing has two names in this way.
      if try Mounts.bind(place.path, at: second) { path = second }
    default: break
    }
    defer { Mounts.end(at: second) }
    let other = try Engine(path: path, configuration: StoreConfiguration(threadCount: 1))
    #expect(try other.data("k", nil) == Data([1]))
    #expect(try descriptorCount(of: locks) == count)
    try other.close()
    // Closing the second one takes no lock away from the first.
    #expect(try first.data("k", nil) == Data([1]))
    try first.close()
  }
}

import CBlobKernels
import SystemPackage

/// Closes a descriptor when its last owner goes. One thread at a time uses it.
package final class OwnedDescriptor: Sendable {
  package let number: Int32

  package init(owning number: Int32) { self.number = number }

  deinit { closeDescriptor(number) }

  /// Opens the path `relative` in a folder. Messages show it as `path`.
  package static func open(
    _ directory: Int32, _ relative: FilePath, _ path: @autoclosure () -> FilePath, _ options: Int32,
    _ attempt: String
  ) throws(BlobStorageError) -> OwnedDescriptor {
    let number = try systemCall(attempt, path()) {
      relative.withPlatformString { bs_open_at(directory, $0, options) }
    }
    return OwnedDescriptor(owning: Int32(number))
  }

  /// Opens the entry `name` of a folder. Messages show it as `path`.
  package static func open(
    _ directory: Int32, _ name: [CChar], _ path: @autoclosure () -> FilePath, _ options: Int32,
    _ attempt: String
  ) throws(BlobStorageError) -> OwnedDescriptor {
    OwnedDescriptor(owning: Int32(try systemCall(attempt, path()) { bs_open_at(directory, name, options) }))
  }

  package func status(_ path: @autoclosure () -> FilePath) throws(BlobStorageError) -> FileStatus {
    var raw = bs_status()
    _ = try systemCall("stat", path()) { bs_status_of(number, &raw) }
    return FileStatus(raw)
  }
}

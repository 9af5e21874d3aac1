import BlobStorage
import Foundation
import SystemPackage

/// Writes the output of `get` to standard output, a device or pipe, or a new file that appears whole or not at all.
final class OutputTarget: Sendable {
  private let descriptor: FileDescriptor
  private let name: String
  /// The temporary and the final name of a new file.
  private let names: (temporary: String, final: String)?

  private init(_ descriptor: FileDescriptor, name: String, names: (temporary: String, final: String)? = nil) {
    self.descriptor = descriptor
    self.name = name
    self.names = names
  }

  /// Standard output.
  static let standardOutput = OutputTarget(.standardOutput, name: "standard output")

  /// A file at `path`. Replaces an existing file, follows a link, and writes to a device or pipe.
  ///
  /// - Parameter storeFolder: nothing is written into this folder.
  static func file(_ path: String, outside storeFolder: String) throws -> OutputTarget {
    let file = URL(fileURLWithPath: path)
    let folder = URL(fileURLWithPath: storeFolder).resolvingSymlinksInPath().path + "/"
    // A new file is in an existing folder, and an existing one may be a link.
    let places = [file.deletingLastPathComponent(), file].map { $0.resolvingSymlinksInPath().path + "/" }
    guard !places.contains(where: { $0.utf8.starts(with: folder.utf8) }) else {
      throw Failure(
        ExitStatus.failed, "\(path.printable) belongs to the store itself: write to a file outside of it.")
    }
    var status = stat()
    let exists = stat(path, &status) == 0
    do {
      if exists, status.st_mode & S_IFMT != S_IFREG {
        return OutputTarget(
          try FileDescriptor.open(FilePath(path), .writeOnly, options: .closeOnExec), name: path)
      }
      let final = exists ? URL(fileURLWithPath: path).resolvingSymlinksInPath().path : path
      let folder = FilePath(final).removingLastComponent()
      // Not derived from the name, which may already have the maximum length.
      let name = ".blobtool-\(String(UInt64.random(in: 0 ... .max), radix: 36)).partial"
      let temporary = folder.appending(name)
      let permissions = FilePermissions(rawValue: exists ? status.st_mode & 0o777 : 0o666)
      let descriptor = try FileDescriptor.open(
        temporary, .writeOnly, options: [.create, .exclusiveCreate, .closeOnExec], permissions: permissions)
      // Restore permissions that the umask removed. Ignore a medium without permissions.
      if exists { fchmod(descriptor.rawValue, status.st_mode & 0o777) }
      return OutputTarget(descriptor, name: path, names: (temporary.string, final))
    } catch let error as Errno {
      throw Failure(ExitStatus.failed, "Cannot write \(path.printable): \(error.description).")
    }
  }

  /// Appends all bytes.
  func write(_ bytes: UnsafeRawBufferPointer) throws {
    try descriptor.writeWhole(bytes, to: name)
  }

  /// Renames a new file to its final name. A file that it replaces stays until the new one is on the medium.
  func finish() throws {
    guard let names else { return }
    do {
      if access(names.final, F_OK) == 0, fsync(descriptor.rawValue) != 0 { throw Errno(rawValue: errno) }
      try descriptor.close()
      if rename(names.temporary, names.final) != 0 { throw Errno(rawValue: errno) }
    } catch {
      unlink(names.temporary)
      throw Failure(ExitStatus.failed, "Cannot write \(name.printable): \(error).")
    }
  }

  /// Deletes an unfinished new file.
  func abandon() {
    guard let names else { return }
    try? descriptor.close()  // it is going away
    unlink(names.temporary)
  }
}

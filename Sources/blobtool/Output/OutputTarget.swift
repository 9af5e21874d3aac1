import Foundation
import SystemPackage

/// Where `get` writes: standard output, a device or pipe, or a new file that is there whole or not at all.
final class OutputTarget: Sendable {
  private let descriptor: FileDescriptor
  private let name: String
  /// The name a new file has until it is whole, and the one it gets then.
  private let names: (temporary: String, final: String)?

  private init(_ descriptor: FileDescriptor, name: String, names: (temporary: String, final: String)? = nil) {
    self.descriptor = descriptor
    self.name = name
    self.names = names
  }

  /// Standard output.
  static let standardOutput = OutputTarget(.standardOutput, name: "standard output")

  /// A file at `path`. One that exists is replaced; a link is followed, and a device or pipe is written to.
  static func file(_ path: String) throws -> OutputTarget {
    var status = stat()
    let exists = stat(path, &status) == 0
    do {
      if exists, status.st_mode & S_IFMT != S_IFREG {
        return OutputTarget(try FileDescriptor.open(FilePath(path), .writeOnly), name: path)
      }
      let final = exists ? URL(fileURLWithPath: path).resolvingSymlinksInPath().path : path
      let folder = FilePath(final).removingLastComponent()
      // Not made from the name, which may be as long as a name can be.
      let name = ".blobtool-\(String(UInt64.random(in: 0 ... .max), radix: 36)).partial"
      let temporary = folder.appending(name)
      let permissions = FilePermissions(rawValue: exists ? status.st_mode & 0o777 : 0o666)
      let descriptor = try FileDescriptor.open(
        temporary, .writeOnly, options: [.create, .exclusiveCreate], permissions: permissions)
      // The umask has taken some away. Where a medium has none to give, there is nothing to keep.
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

  /// Gives a new file its name.
  func finish() throws {
    guard let names else { return }
    do { try descriptor.close() } catch {
      unlink(names.temporary)
      throw Failure(ExitStatus.failed, "Cannot write \(name.printable): \(error).")
    }
    guard rename(names.temporary, names.final) == 0 else {
      let reason = Errno(rawValue: errno)
      unlink(names.temporary)
      throw Failure(ExitStatus.failed, "Cannot write \(name.printable): \(reason.description).")
    }
  }

  /// Removes what was written of a new file.
  func abandon() {
    guard let names else { return }
    try? descriptor.close()  // it is going away
    unlink(names.temporary)
  }
}

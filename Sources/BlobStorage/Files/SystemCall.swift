import CBlobKernels
import SystemPackage

/// Repeats a shim call while it is interrupted. Returns its result, zero or more.
///
/// Only ``uninterrupted(_:)`` knows `EINTR`.
package func systemCall(
  _ attempt: @autoclosure () -> String, _ path: @autoclosure () -> FilePath, _ body: () -> Int
) throws(BlobStorageError) -> Int {
  let outcome = uninterrupted(body)
  if outcome >= 0 { return outcome }
  throw .systemCall(attempt(), path: path(), errno: Int32(-outcome))
}

/// Fills a buffer, or stops when a call reads nothing; returns the number of bytes.
///
/// - Parameter call: a shim call that reads into the rest of the buffer, after `done` filled bytes.
func readAll(
  into buffer: UnsafeMutableRawBufferPointer, _ path: @autoclosure () -> FilePath,
  _ call: (_ rest: UnsafeMutableRawBufferPointer, _ done: Int) -> Int
) throws(BlobStorageError) -> Int {
  var done = 0
  while done < buffer.count {
    let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done...])
    let count = try systemCall("read", path()) { call(rest, done) }
    if count == 0 { break }
    done += count
  }
  return done
}

/// Like ``systemCall(_:_:_:)``, but returns a failure as negative errno.
package func uninterrupted(_ body: () -> Int) -> Int {
  while true {
    let outcome = body()
    if outcome != -Int(Errno.interrupted.rawValue) { return outcome }
  }
}

/// Closes a descriptor. Only its owner may call this, and only once: the system may have reused the number.
///
/// Debug builds trap if the number is not open. Other errors lose nothing, because everything that must survive was
/// synced.
package func closeDescriptor(_ descriptor: Int32) {
  let outcome = bs_close(descriptor)
  assert(outcome != -Int(Errno.badFileDescriptor.rawValue), "descriptor \(descriptor) was closed twice")
}

extension BlobStorageError {
  /// The error of a failed system call. The only table from `errno` to code.
  ///
  /// - Parameter attempt: The words between "cannot" and the path: "open", "write to".
  package static func systemCall(_ attempt: String, path: FilePath, errno: Int32) -> Self {
    let reason = Errno(rawValue: errno)
    let code: Code =
      switch reason {
      case .permissionDenied, .notPermitted: .permissionDenied
      case .noSpace, .diskQuotaExceeded: .noSpace
      case .readOnlyFileSystem: .readOnly
      default: .io
      }
    let message = "cannot \(attempt) \(path.string): \(reason.description)"
    return Self(code, message, path: path.string, errno: errno)
  }

  /// Whether the call failed because the name does not exist.
  package var isMissingName: Bool { errno == Errno.noSuchFileOrDirectory.rawValue }

  /// Whether the medium or its permissions forbid this process to write.
  package var isRefusal: Bool { code == .permissionDenied || code == .readOnly }

  /// The error of a call on a closed file.
  package static func closedFile(_ path: FilePath) -> Self {
    Self(.closed, "\(path.string) was closed before", path: path.string)
  }
}

extension FilePath {
  /// The absolute path. Only a relative path costs a system call.
  package func absolute() throws(BlobStorageError) -> FilePath {
    if isAbsolute { return self }
    var text = [CChar](repeating: 0, count: 4_096)
    let count = try systemCall("find the working directory for", self) {
      text.withUnsafeMutableBufferPointer { Int(bs_working_directory_path($0.baseAddress, $0.count)) }
    }
    let directory = FilePath(platformString: Array(text[..<count]) + [0])
    return directory.appending(components)
  }

  /// This path with a relative path appended, given as bytes.
  package func appending(bytes: some Collection<UInt8>) -> FilePath {
    bytes.isEmpty ? self : appending(FilePath(platformString: [CChar](terminating: bytes)).components)
  }
}

extension [CChar] {
  /// A name or path with a terminating zero, as system calls take it.
  package init(terminating bytes: some Collection<UInt8>) {
    let whole = bytes.withContiguousStorageIfAvailable { source in
      [CChar](unsafeUninitializedCapacity: source.count + 1) { target, count in
        UnsafeMutableRawBufferPointer(target).copyMemory(from: UnsafeRawBufferPointer(source))
        target[source.count] = 0
        count = source.count + 1
      }
    }
    self = whole ?? bytes.map { CChar(bitPattern: $0) } + [0]
  }
}

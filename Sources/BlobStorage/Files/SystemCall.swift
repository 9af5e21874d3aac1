import CBlobKernels
import SystemPackage

/// Runs a shim call until it is not interrupted; what it returns is zero or more.
///
/// The only place that knows about `EINTR` and about the shim's negative errno.
package func systemCall(
  _ attempt: @autoclosure () -> String, _ path: @autoclosure () -> FilePath, _ body: () -> Int
) throws(BlobStorageError) -> Int {
  let outcome = uninterrupted(body)
  if outcome >= 0 { return outcome }
  throw .systemCall(attempt(), path: path(), errno: Int32(-outcome))
}

/// Fills a buffer, or stops where a call reads nothing more; returns the count of bytes.
///
/// - Parameter call: a shim call that reads into the rest of the buffer, after the `done` bytes that are filled.
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

/// As ``systemCall(_:_:_:)``, for callers that take a failure for an answer: returns the negative errno.
package func uninterrupted(_ body: () -> Int) -> Int {
  while true {
    let outcome = body()
    if outcome != -Int(Errno.interrupted.rawValue) { return outcome }
  }
}

/// Closes a descriptor. Only its owner may, and once: by the second time the number may be another file's.
///
/// Debug builds stop where the number is not open. Other errors lose nothing, because what has to be kept was synced.
package func closeDescriptor(_ descriptor: Int32) {
  let outcome = bs_close(descriptor)
  assert(outcome != -Int(Errno.badFileDescriptor.rawValue), "descriptor \(descriptor) was closed twice")
}

extension BlobStorageError {
  /// The error that a failed system call becomes: the one table from `errno` to code.
  ///
  /// - Parameter attempt: What was tried, to stand between "cannot" and the path: "open", "write to".
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

  /// Whether it failed because nothing has that name.
  package var isMissingName: Bool { errno == Errno.noSuchFileOrDirectory.rawValue }

  /// Whether the medium or its permissions do not let this process write.
  package var isRefusal: Bool { code == .permissionDenied || code == .readOnly }

  /// The error of a call on a file that was closed before.
  package static func closedFile(_ path: FilePath) -> Self {
    Self(.closed, "\(path.string) was closed before", path: path.string)
  }
}

extension FilePath {
  /// This path from the root on; only a relative path costs a system call.
  package func absolute() throws(BlobStorageError) -> FilePath {
    if isAbsolute { return self }
    var text = [CChar](repeating: 0, count: 4_096)
    let count = try systemCall("find the working directory for", self) {
      text.withUnsafeMutableBufferPointer { Int(bs_working_directory_path($0.baseAddress, $0.count)) }
    }
    let directory = FilePath(platformString: Array(text[..<count]) + [0])
    return directory.appending(components)
  }

  /// The path of what has these bytes as its path below this one, as the system writes it.
  package func appending(bytes: some Collection<UInt8>) -> FilePath {
    bytes.isEmpty ? self : appending(FilePath(platformString: [CChar](terminating: bytes)).components)
  }
}

extension [CChar] {
  /// A name or path with a zero behind it, as the system takes it.
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

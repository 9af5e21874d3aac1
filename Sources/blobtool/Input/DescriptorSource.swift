import BlobStorage
import Foundation
import Synchronization
import SystemPackage

/// Reads bytes from a pipe or terminal as they come.
///
/// The library could read the descriptor itself, but a signal must end a wait for a silent terminal.
final class DescriptorSource: Sendable {
  private let descriptor: FileDescriptor
  private let name: String
  private let atEnd: @Sendable () throws -> Void
  private static let byteCountMax = 1 << 18
  private static let waitMilliseconds: Int32 = 100

  /// Reads `descriptor`, and does not close it. Messages use `name`.
  ///
  /// - Parameter atEnd: is called at the end of the bytes. If it throws, so does ``next()``.
  init(_ descriptor: FileDescriptor, name: String, atEnd: @escaping @Sendable () throws -> Void = {}) {
    self.descriptor = descriptor
    self.name = name
    self.atEnd = atEnd
  }

  /// The source for a put: `first`, then the rest of the descriptor.
  func content(after first: Data? = nil) -> BlobContent {
    let first = Mutex(first)
    return .stream { [self] in try first.withLock { $0.take() } ?? next() }
  }

  /// Reads everything up to the end; nil as soon as it exceeds `byteCountMax`.
  func whole(byteCountMax: Int) throws -> Data? {
    var whole = Data()
    while let data = try next() {
      whole += data
      if whole.count > byteCountMax { return nil }
    }
    return whole
  }

  /// Waits for at least one byte; nil at the end.
  func next() throws -> Data? {
    try waitUntilReadable()
    var data = Data(count: Self.byteCountMax)
    do {
      let count = try data.withUnsafeMutableBytes { try descriptor.read(into: $0) }
      if count > 0 { return data.prefix(count) }
      try atEnd()
      return nil
    } catch let error as Errno {
      throw Failure(ExitStatus.failed, "Cannot read \(name.printable): \(error.description).")
    }
  }

  private func waitUntilReadable() throws {
    var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    repeat { try Interruption.check() } while poll(&request, 1, Self.waitMilliseconds) == 0
  }
}

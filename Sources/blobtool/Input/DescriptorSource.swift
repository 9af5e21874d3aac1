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
  private static let byteCountMax = 1 << 18
  private static let waitMilliseconds: Int32 = 100

  /// Reads `descriptor`, and does not close it. Messages use `name`.
  init(_ descriptor: FileDescriptor, name: String) {
    self.descriptor = descriptor
    self.name = name
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
      return count == 0 ? nil : data.prefix(count)
    } catch let error as Errno {
      throw Failure(ExitStatus.failed, "Cannot read \(name.printable): \(error.description).")
    }
  }

  private func waitUntilReadable() throws {
    var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    repeat { try Interruption.check() } while poll(&request, 1, Self.waitMilliseconds) == 0
  }
}

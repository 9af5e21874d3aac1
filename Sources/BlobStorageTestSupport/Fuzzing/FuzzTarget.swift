import BlobStorage
import Foundation

/// A decoder that is given bytes from anywhere: it refuses them by one of a few codes, or takes them, and nothing else.
///
/// To add one: make a `static let` of it in a file of its own, and name it in ``all``. The daily tests then run it on
/// its seeds, on what is in `Fixtures/fuzz` under its name and on seeded changes of both; `tools/fuzz` runs it with
/// libFuzzer for as long as one likes.
public struct FuzzTarget: Sendable {
  /// What it is called on the command line, and its folder in `Fixtures/fuzz`.
  public let name: String
  /// Inputs to begin with, that reach what it is about.
  public let seeds: @Sendable () -> [[UInt8]]
  private let body: @Sendable ([UInt8]) -> Void

  package init(
    _ name: String, seeds: @escaping @Sendable () -> [[UInt8]], _ body: @escaping @Sendable ([UInt8]) -> Void
  ) {
    self.name = name
    self.seeds = seeds
    self.body = body
  }

  /// Runs the decoder; returns unless it is wrong.
  public func run(_ bytes: [UInt8]) { body(bytes) }

  /// All of them.
  public static let all: [FuzzTarget] = [
    .records, .texts, .patterns, .codec, .encoding, .pack, .packRecords, .footer, .lease, .state, .store,
    .parts,
  ]
}

/// What targets have in common.
enum Fuzzing {
  /// What a decoder may say to bytes from anywhere.
  static let refusals: Set<BlobStorageError.Code> = [
    .corrupted, .unsupportedFormat, .notAStore, .limitExceeded,
  ]

  /// The value, or nil for bytes that were refused.
  @discardableResult
  static func attempt<T>(
    also allowed: Set<BlobStorageError.Code> = [], _ body: () throws(BlobStorageError) -> T
  ) -> T? {
    do throws(BlobStorageError) { return try body() } catch {
      require(refusals.contains(error.code) || allowed.contains(error.code), "\(error.code): \(error)")
      return nil
    }
  }

  /// Stops the process, so that the fuzzer notices.
  static func require(_ condition: Bool, _ message: @autoclosure () -> String) {
    guard !condition else { return }
    // Release builds do not say it.
    FileHandle.standardError.write(Data("Fatal error: \(message())\n".utf8))
    preconditionFailure()
  }

  /// Runs a decoder on borrowed bytes.
  static func decode<T>(
    _ bytes: some Collection<UInt8>, _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) -> T? {
    Array(bytes).withUnsafeBytes { raw in attempt { () throws(BlobStorageError) in try body(raw) } }
  }
}

/// Takes numbers and bytes off an input; zeros once it is used up.
struct InputReader {
  private var rest: ArraySlice<UInt8>

  init(_ bytes: [UInt8]) { rest = bytes[...] }

  var isEmpty: Bool { rest.isEmpty }

  mutating func byte() -> Int { Int(rest.popFirst() ?? 0) }

  mutating func short() -> Int { byte() | byte() << 8 }

  mutating func long() -> UInt64 {
    var value: UInt64 = 0
    for shift in 0..<8 { value |= UInt64(byte()) << UInt64(8 * shift) }
    return value
  }

  mutating func bytes(_ count: Int) -> [UInt8] {
    defer { rest = rest.dropFirst(count) }
    return Array(rest.prefix(count))
  }

  mutating func all() -> [UInt8] { bytes(rest.count) }
}

import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Synchronization
import Testing

/// A store to copy from or into: in a folder, or of objects.
struct CopyPlace {
  private let folder: StorePlace?
  let remote: RemotePlace?
  private let packByteCount: Int64

  init(isRemote: Bool, _ options: StoreOptions = StoreOptions(), packByteCount: Int64 = 100_000) throws {
    folder = isRemote ? nil : try StorePlace(options)
    remote = isRemote ? try RemotePlace(options) : nil
    self.packByteCount = packByteCount
  }

  /// Opens it again: a store of objects on that machine.
  ///
  /// - Parameter time: of one in a folder.
  func engine(_ machine: String = "one", time: PassingTime = .system) throws -> Engine {
    if let remote { return try remote.engine(machine, packByteCount: packByteCount) }
    var environment = Engine.Environment()
    environment.time = time
    environment.packByteCountTarget = packByteCount
    return try (try #require(folder)).engine(environment)
  }

  var folderPath: String { folder?.path ?? "" }

  /// From each kind to each.
  static let pairs = [(false, false), (false, true), (true, false), (true, true)]
}

/// Copies, without telling how far it is; a mirror whatever it drops.
@discardableResult
func runCopy(
  _ source: Engine, to target: Engine, prefix: String = "", isMirror: Bool = false
) throws -> CopyReport {
  try Copier(
    from: source, to: target, CopyOptions(prefix: prefix, isMirror: isMirror, isForced: isMirror)
  ).run()
}

/// What is put in tests of copying: parts that blobs share, near copies, texts, noise.
struct CopyContent {
  private let words: [[UInt8]]
  private var parts: [[UInt8]] = []

  init(_ random: inout SplitMix64) {
    words = (0..<300).map { _ in
      let count = Int.random(in: 2...9, using: &random)
      let letters: [UInt8] = random.bytes(count).map { 97 + $0 % 26 }
      return letters + [32]
    }
    for index in 0..<8 {
      parts.append(index % 2 == 0 ? text(20_000, &random) : random.bytes(9_000))
    }
  }

  private func text(_ count: Int, _ random: inout SplitMix64) -> [UInt8] {
    var bytes: [UInt8] = []
    while bytes.count < count { bytes += words.randomElement(using: &random) ?? [] }
    return bytes
  }

  func next(_ random: inout SplitMix64) -> [UInt8] {
    var bytes: [UInt8] = []
    for _ in 0..<Int.random(in: 0...5, using: &random) {
      var part = parts.randomElement(using: &random) ?? []
      for _ in 0..<Int.random(in: 0...4, using: &random) {
        part[Int.random(in: 0..<part.count, using: &random)] ^= 1
      }
      bytes += part
    }
    return bytes
  }

  /// So many chunks of 1 KiB that their manifest has lists.
  static func long(_ random: inout SplitMix64) -> [UInt8] { random.bytes(6_000_000) }
}

/// Objects that take so many puts and no more.
final class LimitedObjects: ForwardingObjects {
  let objects: MemoryObjectStore
  private let left: Mutex<Int>

  init(_ objects: MemoryObjectStore, putCount: Int) {
    self.objects = objects
    left = Mutex(putCount)
  }

  var place: String { objects.place }

  func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome {
    let isTaken = left.withLock { left in
      left -= 1
      return left >= 0
    }
    guard isTaken else { throw BlobStorageError(.io, "The object store does not answer.") }
    return try objects.put(name, content, ifAbsent: ifAbsent)
  }

}
